import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import type { EtcdClient } from "../../../src/etcd/client/etcd-client.ts";
import { WatchEvent } from "../../../src/model/event.ts";
import { StoredObject } from "../../../src/model/object.ts";
import { HistoryTracker } from "../../../src/reflector/history-tracker.ts";
import { EtcdStorage } from "../../../src/storage/etcd/etcd-storage.ts";
import type { Operation } from "../../../src/storage/memory/mvcc-store.ts";
import { type Etcd, startEtcd } from "../../etcd/etcd.ts";
import { put, remove } from "../../storage/conformance/opened.ts";
import { clientOf, newPrefix, Source } from "../../storage/etcd/source.ts";

/*
 * Two etcds that have had the same writes are one that was restored: what the second gets after them is what was written
 * after the restore. Their revisions are the same before each test.
 */

const { signal } = new AbortController();
const historyKey = "/history";
const historyId = "3f0d1c52-7a4e-4c8b-9a55-0d5b1f6a2e41";

let etcds: readonly [Etcd, Etcd];
let clients: readonly [EtcdClient, EtcdClient];

beforeAll(async () => {
  etcds = await Promise.all([startEtcd(), startEtcd()]);
  clients = [clientOf(etcds[0], { historyKey }), clientOf(etcds[1], { historyKey })];
  for (const etcd of etcds) await new Source(etcd).putBytes(Buffer.from(historyKey), historyId);
});

afterAll(async () => {
  for (const client of clients) await client.close();
  for (const etcd of etcds) await etcd.stop();
});

/** The operations of one transaction; a number: so many of another resource. */
type Write = readonly Operation[] | number;

class Restored {
  readonly prefix = newPrefix();
  readonly storages = [
    new EtcdStorage(clients[0], { prefix: this.prefix }),
    new EtcdStorage(clients[1], { prefix: this.prefix }),
  ] as const;
  readonly #sources = [new Source(etcds[0]), new Source(etcds[1])] as const;

  /** Before the restore. */
  inBackup(...writes: readonly Write[]): Promise<unknown> {
    return Promise.all([this.#write(0, writes), this.#write(1, writes)]);
  }

  /** That were lost. */
  lost(...writes: readonly Write[]): Promise<void> {
    return this.#write(0, writes);
  }

  /** After the restore, up to the revision of the other one and beyond. */
  async written(...writes: readonly Write[]): Promise<void> {
    await this.#write(1, writes);
    const [before = 0, after = 0] = await this.#revisions();
    await this.#write(1, [Math.max(0, before - after) + 5]);
    // The next test begins at the same revision.
    const [now = 0, then = 0] = await this.#revisions();
    await this.#write(0, [then - now]);
  }

  /** The state before the restore. */
  async listed(): Promise<{ objects: readonly StoredObject[]; revision: number }> {
    const page = await this.storages[0].list({
      prefix: "",
      limit: 0,
      at: { match: "LINEARIZABLE" },
    });
    return { objects: page.items, revision: page.revision };
  }

  /** A tracker of what a cache of these objects has, which asks the restored etcd. */
  tracker(objects: readonly StoredObject[]): HistoryTracker {
    const keys = new Set(objects.map(({ key }) => key));
    const has = keys.has.bind(keys);
    return new HistoryTracker(this.storages[1], { prefix: "" }, () => {}, {
      has,
      clock: systemClock,
    });
  }

  compact(revision: number): Promise<void> {
    return this.#sources[1].compact(revision);
  }

  #revisions(): Promise<number[]> {
    return Promise.all(this.#sources.map((source) => source.revision()));
  }

  async #write(at: 0 | 1, writes: readonly Write[]): Promise<void> {
    const source = this.#sources[at];
    for (const write of writes) {
      if (typeof write !== "number") await source.write(this.prefix, write);
      else for (let i = 0; i < write; i++) await source.putBytes(Buffer.from("/other"));
    }
  }
}

function deletion(key: string, revision: number, createRevision: number): WatchEvent {
  const object = new StoredObject(key, Buffer.alloc(0), revision, createRevision, 1, 0n);
  return new WatchEvent("DELETED", object, undefined);
}

/** Returns how many times the new etcd was asked for what it has written, from now on. */
function countComparisons({ storages: [, store] }: Restored): () => number {
  let count = 0;
  const compare = store.writtenAfter.bind(store);
  store.writtenAfter = (request) => {
    count++;
    return compare(request);
  };
  return () => count;
}

async function outcomeOf(tracker: HistoryTracker): Promise<string> {
  return tracker.confirm(signal).then(
    () => "confirmed",
    (error: Error & { reason?: string }) => error.reason ?? error.message,
  );
}

describe("A restored etcd with the same marker, of which the last known change is in the backup", () => {
  test("is another history if a deletion before the list was lost", async () => {
    const restored = new Restored();
    await restored.inBackup([put("gone")], [put("a")]);
    await restored.lost([remove("gone")], 1);
    const { objects, revision } = await restored.listed();
    expect(objects.map(({ key }) => key)).toEqual(["a"]);
    await restored.written();
    const tracker = restored.tracker(objects);
    tracker.reset(historyId, objects, revision);
    expect(await outcomeOf(tracker)).toBe("HISTORY_CHANGED");
  });

  test("is another history if a deletion before the end of a kept state without events was lost", async () => {
    const restored = new Restored();
    await restored.inBackup([put("gone")], [put("a")]);
    await restored.lost([remove("gone")], 1);
    const { objects, revision } = await restored.listed();
    await restored.written();
    const tracker = restored.tracker(objects);
    const kept = { objects, revision, historyId, syncedAt: 0 };
    tracker.restore({ ...kept, events: [], eventsAfter: revision });
    expect(await outcomeOf(tracker)).toBe("HISTORY_CHANGED");
  });

  test("is another history if the same object was written at the same revision, and others before it", async () => {
    const restored = new Restored();
    await restored.inBackup([put("beat")]);
    await restored.lost([put("old")], [put("beat")]);
    const { objects, revision } = await restored.listed();
    await restored.written([put("new")], [put("beat")]);
    const tracker = restored.tracker(objects);
    tracker.reset(historyId, objects, revision);
    expect(await outcomeOf(tracker)).toBe("HISTORY_CHANGED");
  });

  test("is another history if only the last of the known events were written again", async () => {
    const restored = new Restored();
    await restored.inBackup([put("gone"), put("beat")]);
    await restored.lost([remove("gone")], [put("beat")]);
    const { objects, revision } = await restored.listed();
    await restored.written(1, [put("beat")]);
    const tracker = restored.tracker(objects);
    const events = [
      deletion("gone", revision - 1, revision - 2),
      new WatchEvent("MODIFIED", objects[0] as StoredObject, undefined),
    ];
    const kept = { objects, revision, historyId, syncedAt: 0 };
    tracker.restore({ ...kept, events, eventsAfter: revision - 2 });
    expect(await outcomeOf(tracker)).toBe("HISTORY_CHANGED");
  });
});

describe("A restored etcd with a marker, of which a kept state has no id", () => {
  test("does not give its id to the state, whose last known changes it has not", async () => {
    const restored = new Restored();
    await restored.inBackup([put("beat")]);
    const before = await restored.listed();
    await restored.lost(1, [put("beat")]);
    const { objects, revision } = await restored.listed();
    await restored.written([put("new")], [put("beat")]);
    const tracker = restored.tracker(objects);
    const kept = { objects, revision, historyId: "", syncedAt: 0 };
    const events = [new WatchEvent("MODIFIED", objects[0] as StoredObject, undefined)];
    tracker.restore({ ...kept, events, eventsAfter: before.revision });
    await tracker.check(signal);
    expect(tracker.id).toBe("");
    expect(await outcomeOf(tracker)).toBe("HISTORY_CHANGED");
    expect(tracker.id).toBe("");
  });

  test("gives it once the state was compared", async () => {
    const same = new Restored();
    await same.inBackup([put("a")], [put("b")]);
    const { objects, revision } = await same.listed();
    await same.written();
    const tracker = same.tracker(objects);
    const kept = { objects, revision, historyId: "", syncedAt: 0 };
    const [, b] = objects as [StoredObject, StoredObject];
    const events = [new WatchEvent("ADDED", b, undefined)];
    tracker.restore({ ...kept, events, eventsAfter: revision - 1 });
    const comparisons = countComparisons(same);
    expect([await outcomeOf(tracker), comparisons(), tracker.id]).toEqual(["confirmed", 1, ""]);
    await tracker.check(signal);
    expect(tracker.id).toBe(historyId);
  });
});

describe("An etcd with the known history", () => {
  test.each([
    ["is confirmed by its last events, without a comparison of the state", false],
    ["is confirmed by a comparison of the state if events before the last are compacted", true],
  ])("%s", async (_what, isCompacted) => {
    const same = new Restored();
    await same.inBackup([put("a"), put("b")]);
    const before = await same.listed();
    await same.inBackup([remove("b")], [put("a")], 3);
    const { objects, revision } = await same.listed();
    await same.written();
    const events = [
      deletion("b", before.revision + 1, before.revision),
      new WatchEvent("MODIFIED", objects[0] as StoredObject, undefined),
    ];
    if (isCompacted) await same.compact(before.revision + 1);
    const tracker = same.tracker(objects);
    const kept = { objects, revision, historyId, syncedAt: 0 };
    tracker.restore({ ...kept, events, eventsAfter: before.revision });
    const comparisons = countComparisons(same);
    expect(await outcomeOf(tracker)).toBe("confirmed");
    expect(comparisons()).toBe(isCompacted ? 1 : 0);
  });
});

describe("A restored etcd that has compacted all before the last known change", () => {
  test("is another history if only that was written again, at the same revision", async () => {
    const restored = new Restored();
    await restored.inBackup([put("beat")]);
    const before = await restored.listed();
    await restored.lost([put("old")], [put("beat")]);
    const { objects, revision } = await restored.listed();
    await restored.written([put("new")], [put("beat")]);
    const [beat, old] = objects as [StoredObject, StoredObject];
    const events = [
      new WatchEvent("ADDED", old, undefined),
      new WatchEvent("MODIFIED", beat, undefined),
    ];
    await restored.compact(revision - 1);
    const tracker = restored.tracker(objects);
    const kept = { objects, revision, historyId, syncedAt: 0 };
    tracker.restore({ ...kept, events, eventsAfter: before.revision });
    expect(await outcomeOf(tracker)).toBe("HISTORY_CHANGED");
  });
});
