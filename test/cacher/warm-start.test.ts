import { afterEach, describe, expect, it } from "vitest";
import { WatchFanoutError } from "../../src/base/errors.ts";
import type { StateKeeper } from "../../src/cache-files/kept-state.ts";
import { Cacher } from "../../src/cacher/cacher.ts";
import type { CacherOptions } from "../../src/cacher/options.ts";
import type { CacheWatchRequest } from "../../src/cacher/request/request.ts";
import type { StoredObject } from "../../src/model/object.ts";
import { MemoryStorage } from "../../src/storage/memory/memory-storage.ts";
import { MemoryStore } from "../../src/storage/memory/memory-store.ts";
import type { RevisionRequirement, WatchStream } from "../../src/storage/storage.ts";
import { FakeClock } from "../fake-clock.ts";
import { readAll, silent } from "./cached-store.ts";
import { MemoryDisk } from "./memory-keeper.ts";
import { OutlivingStorage } from "./outliving-storage.ts";

const everything = { scope: { prefix: "" }, afterRevision: undefined, withPrevious: true } as const;
const any: RevisionRequirement = { match: "ANY" };

/** A day in the life of the store, in milliseconds since the epoch. */
const midday = 1_700_000_000_000;

/** A store, and processes one after the other that cache it, with one disk. */
class Processes {
  readonly clock = new FakeClock();
  readonly #store = new MemoryStore({ clock: this.clock });
  readonly store = new MemoryStorage({ store: this.#store, resource: "things" });
  readonly others = new MemoryStorage({ store: this.#store, resource: "others" });
  readonly upstream = new OutlivingStorage(this.store);
  /** The difference between the time of day and the clock, which a test may change. */
  epoch = midday;
  readonly disk = new MemoryDisk(() => this.epoch + this.clock.now());
  #cacher: Cacher | undefined;

  get cacher(): Cacher {
    if (this.#cacher === undefined) throw new Error("No process runs.");
    return this.#cacher;
  }

  /** Starts a process, and waits until it has done what it can at once. */
  async start(options: Partial<CacherOptions> = {}): Promise<Cacher> {
    const { clock, upstream: storage, disk } = this;
    this.#cacher = new Cacher({
      ...{ storage, clock, logger: silent, name: "things", random: () => 0.5 },
      consistencyIntervalMs: 0,
      keeper: disk.keeper(),
      timeOfDay: () => this.epoch + clock.now(),
      ...options,
    });
    this.#cacher.start();
    await clock.elapse(200);
    this.upstream.reads.push("|");
    return this.#cacher;
  }

  async stop(): Promise<void> {
    await this.#cacher?.close();
    this.#cacher = undefined;
    this.upstream.reads.length = 0;
  }

  /** Ends the process, and starts another one. */
  async restart(options?: Partial<CacherOptions>): Promise<Cacher> {
    await this.stop();
    return this.start(options);
  }

  async write(
    ...entries: readonly (readonly [key: string, value: string | null])[]
  ): Promise<number> {
    const revision = await this.store.txn(
      entries.map(([key, value]) =>
        value === null
          ? { type: "delete" as const, key }
          : { type: "put" as const, key, value: Buffer.from(value) },
      ),
    );
    await this.clock.settle();
    return revision;
  }

  async watch(request: Partial<CacheWatchRequest>): Promise<WatchStream> {
    const stream = this.cacher.watch({ ...everything, ...request });
    await this.clock.settle();
    return stream;
  }

  async list(at: RevisionRequirement = any): Promise<string[]> {
    const page = await this.cacher.list({ prefix: "", limit: 0, at });
    const items = page.items.map(({ key, value }) => `${key}=${Buffer.from(value).toString()}`);
    return [...items, `→${page.revision}`];
  }
}

/** A store with a, b and c at revision 2, then a change of a and the end of b, and a process that has kept all of it. */
async function kept(): Promise<Processes> {
  const processes = new Processes();
  await processes.write(["a", "1"], ["b", "1"], ["c", "1"]);
  await processes.start();
  await processes.write(["a", "2"]);
  await processes.write(["b", null]);
  await processes.clock.elapse(100);
  return processes;
}

function reasonOf(stream: WatchStream): string | undefined {
  readAll(stream);
  const { ended } = stream;
  return ended instanceof WatchFanoutError ? ended.reason : undefined;
}

async function reasonFrom(call: Promise<unknown>): Promise<string> {
  return call.then(
    () => "none",
    (error: unknown) => (error instanceof WatchFanoutError ? error.reason : String(error)),
  );
}

let processes: Processes;

afterEach(() => processes.stop());

describe("A cache whose process is restarted", () => {
  it("continues from its revision without a list", async () => {
    processes = await kept();
    await processes.stop();
    await processes.write(["d", "1"]);
    await processes.start();
    expect(await processes.list({ match: "LINEARIZABLE" })).toEqual(["a=2", "c=1", "d=1", "→5"]);
    expect(processes.upstream.reads).not.toContain("list");
    expect(processes.cacher.stats()).toMatchObject({ relists: 0, reconnects: 0, staleForMs: 0 });
    expect(processes.cacher.upstreamFailure).toBeUndefined();
  });

  it("lets streams resume from the event window of the process before", async () => {
    processes = await kept();
    await processes.restart();
    const stream = await processes.watch({ afterRevision: 2 });
    const latest = await processes.watch({ afterRevision: 3, delivery: "LATEST_STATE" });
    await processes.write(["c", "2"]);
    expect(readAll(stream)).toEqual([
      "→2",
      "MODIFIED:a=2(1)@3 DELETED:b=1(1)@4 MODIFIED:c=2(1)@5 →5",
    ]);
    expect(readAll(latest)).toEqual(["→3", "DELETED:b=1(1)@4 MODIFIED:c=2(1)@5 →5"]);
  });

  it("keeps what it applies after the restart, for the next one", async () => {
    processes = await kept();
    await processes.restart();
    await processes.write(["e", "1"]);
    processes.upstream.goAway();
    await processes.restart();
    expect(await processes.list()).toEqual(["a=2", "c=1", "e=1", "→5"]);
    const stream = await processes.watch({ afterRevision: 2 });
    expect(readAll(stream)).toEqual(["→2", "MODIFIED:a=2(1)@3 DELETED:b=1(1)@4 ADDED:e=1@5 →5"]);
  });

  it("serves states in the event window", async () => {
    processes = await kept();
    processes.upstream.goAway();
    await processes.restart();
    expect(await processes.list({ match: "EXACT", revision: 3 })).toEqual([
      "a=2",
      "b=1",
      "c=1",
      "→3",
    ]);
    expect(await processes.list({ match: "EXACT", revision: 2 })).toEqual([
      "a=1",
      "b=1",
      "c=1",
      "→2",
    ]);
  });

  it("continues from an older state that is on disk", async () => {
    processes = await kept();
    await processes.stop();
    processes.disk.lose(2);
    await processes.start();
    expect(await processes.list({ match: "LINEARIZABLE" })).toEqual(["a=2", "c=1", "→4"]);
    expect(processes.upstream.reads).not.toContain("list");
    const stream = await processes.watch({ afterRevision: 2 });
    expect(readAll(stream).at(-1)).toBe("MODIFIED:a=2(1)@3 DELETED:b=1(1)@4 →4");
  });
});

describe("A cache that starts while its store is away", () => {
  it("serves ANY, and NOT_OLDER_THAN of what it has, with their age", async () => {
    processes = await kept();
    processes.upstream.goAway();
    await processes.stop();
    await processes.clock.elapse(5_000);
    await processes.start();
    expect(processes.cacher.ready).toBe(true);
    expect(await processes.list()).toEqual(["a=2", "c=1", "→4"]);
    expect(await processes.list({ match: "NOT_OLDER_THAN", revision: 4 })).toHaveLength(3);
    expect(processes.cacher.staleForMs).toBeGreaterThanOrEqual(5_200);
    expect(processes.cacher.staleForMs).toBeLessThan(6_000);
    await processes.clock.elapse(1_000);
    expect(processes.cacher.staleForMs).toBeGreaterThanOrEqual(6_200);
  });

  it("serves nothing that only the store can answer", async () => {
    processes = await kept();
    processes.upstream.goAway();
    await processes.restart();
    expect(await reasonFrom(processes.list({ match: "LINEARIZABLE" }))).toBe(
      "UPSTREAM_UNAVAILABLE",
    );
    const newer = { match: "NOT_OLDER_THAN", revision: 5 } as const;
    expect(await reasonFrom(processes.list(newer))).toBe("UPSTREAM_UNAVAILABLE");
    const streams = [
      await processes.watch({}),
      await processes.watch({ afterRevision: 5 }),
      await processes.watch({ sendInitialEvents: true }),
    ];
    expect(streams.map(reasonOf)).toEqual(Array(3).fill("UPSTREAM_UNAVAILABLE"));
  });

  it("does not know the age of a state that is from the future of a clock that was set back", async () => {
    processes = await kept();
    processes.upstream.goAway();
    await processes.stop();
    processes.epoch -= 60_000;
    await processes.start();
    expect(processes.cacher.staleForMs).toBeGreaterThan(midday - 100_000);
  });

  it("is not made younger by a clock that is set back later", async () => {
    processes = await kept();
    processes.upstream.goAway();
    await processes.stop();
    await processes.clock.elapse(5_000);
    await processes.start();
    processes.epoch -= 3_600_000;
    await processes.clock.elapse(1_000);
    expect(processes.cacher.staleForMs).toBeGreaterThanOrEqual(6_000);
  });

  it("follows it once it is back, and streams continue", async () => {
    processes = await kept();
    processes.upstream.goAway();
    await processes.restart();
    const stream = await processes.watch({ afterRevision: 4 });
    await processes.write(["a", "3"]);
    expect(readAll(stream)).toEqual(["→4"]);
    processes.upstream.comeBack();
    await processes.clock.elapse(10_000);
    expect(readAll(stream)).toEqual(["MODIFIED:a=3(2)@5 →5"]);
    expect(processes.upstream.reads).not.toContain("list");
    expect(processes.cacher.staleForMs).toBeUndefined();
  });
});

describe("A cache with a state that its store can't continue", () => {
  it("relists what is compacted, and delivers the difference", async () => {
    processes = await kept();
    processes.upstream.goAway();
    await processes.restart();
    const latest = await processes.watch({ afterRevision: 3, delivery: "LATEST_STATE" });
    const every = await processes.watch({ afterRevision: 3 });
    await processes.write(["c", null], ["d", "1"]);
    await processes.store.compact(await processes.write(["a", "3"]));
    processes.upstream.comeBack();
    await processes.clock.elapse(10_000);
    expect(processes.cacher.stats()).toMatchObject({ relists: 1, revision: 6 });
    expect(readAll(latest).slice(1)).toEqual([
      "DELETED:b=1(1)@4 ADDED:d=1@5 MODIFIED:a=3(2)@6 DELETED:c=1(1)@6 →6",
    ]);
    expect(reasonOf(every)).toBe("HISTORY_LOST");
  });

  it("does not continue from the state of another history", async () => {
    processes = await kept();
    const before = processes.cacher.currentHistoryId;
    processes.upstream.goAway();
    await processes.restart();
    const stream = await processes.watch({ afterRevision: 4 });
    const after = await processes.store.renewHistory(before);
    processes.upstream.comeBack();
    await processes.clock.elapse(10_000);
    expect(reasonOf(stream)).toBe("HISTORY_CHANGED");
    expect(processes.cacher.currentHistoryId).toBe(after);
    expect(processes.upstream.reads).toContain("list");
  });

  it("finds a restored store with the same id by the last change that it has kept", async () => {
    processes = await kept();
    await processes.stop();
    const [first, second] = inBackup;
    await restored(processes, first, second, [["c", "other"]], [["a", "5"]]);
    await processes.start();
    await processes.clock.elapse(10_000);
    expect(await processes.list({ match: "LINEARIZABLE" })).toEqual([
      "a=5",
      "b=1",
      "c=other",
      "→5",
    ]);
    expect(processes.upstream.reads).toContain("list");
  });

  it("finds one without the deletion that was the last change, also where states can't be compared", async () => {
    processes = await kept();
    Object.assign(processes.upstream, { writtenAfter: undefined });
    await processes.stop();
    const [first, second] = inBackup;
    await restored(processes, first, second, [["d", "1"]], [["e", "1"]]);
    await processes.start();
    await processes.clock.elapse(10_000);
    const now = ["a=2", "b=1", "c=1", "d=1", "e=1", "→5"];
    expect(await processes.list({ match: "LINEARIZABLE" })).toEqual(now);
    expect(processes.upstream.reads).toContain("list");
  });

  it("finds one with the same last change as well, by what was written since instead", async () => {
    processes = await kept();
    // A revision of another resource, which the backup does not have.
    await processes.others.put({ key: "z", value: Buffer.from("") });
    const linearizable = processes.list({ match: "LINEARIZABLE" });
    await processes.clock.elapse(1_000);
    await linearizable;
    expect(processes.disk.state).toMatchObject({ revision: 5 });
    await processes.stop();
    await restored(processes, ...inBackup, [["c", "other"]], [["d", "1"]]);
    await processes.start();
    await processes.clock.elapse(10_000);
    expect(await processes.list({ match: "LINEARIZABLE" })).toEqual([
      "a=2",
      "c=other",
      "d=1",
      "→6",
    ]);
    expect(processes.upstream.reads).toContain("list");
  });
});

/** What `kept` has written. */
const inBackup = [
  [
    ["a", "1"],
    ["b", "1"],
    ["c", "1"],
  ],
  [["a", "2"]],
  [["b", null]],
] as const;

/** The store is restored from a backup, and then written to: it has these transactions, and its marker has the same id. */
async function restored(
  processes: Processes,
  ...writes: readonly (readonly (readonly [key: string, value: string | null])[])[]
): Promise<void> {
  const { clock, upstream } = processes;
  const other = new MemoryStorage({ clock });
  upstream.broughtBackId = await processes.store.historyId();
  for (const entries of writes) {
    await other.txn(
      entries.map(([key, value]) =>
        value === null
          ? { type: "delete" as const, key }
          : { type: "put" as const, key, value: Buffer.from(value) },
      ),
    );
  }
  upstream.storage = other;
}

describe("What a cache keeps", () => {
  it("is nothing once its history has ended, until it has listed the new one", async () => {
    processes = await kept();
    const lists = Promise.withResolvers<void>();
    const list = processes.upstream.list.bind(processes.upstream);
    processes.upstream.list = async (request) => {
      await lists.promise;
      return list(request);
    };
    await processes.store.renewHistory(processes.cacher.currentHistoryId);
    await processes.clock.elapse(10_000);
    expect(processes.disk.state).toBeUndefined();
    lists.resolve();
    await processes.clock.elapse(10_000);
    expect(processes.disk.state).toMatchObject({ historyId: processes.cacher.currentHistoryId });
  });

  it("is nothing once the right to it was lost", async () => {
    processes = await kept();
    await processes.stop();
    const denied = new WatchFanoutError("UPSTREAM_DENIED", "The right was taken away.");
    await processes.start({ mayNotServeAfter: ({ reason }) => reason === "UPSTREAM_DENIED" });
    processes.upstream.get = async () => {
      throw denied;
    };
    processes.upstream.currentRevision = async () => {
      throw denied;
    };
    processes.upstream.goAway();
    processes.upstream.comeBack();
    await processes.clock.elapse(10_000);
    expect(processes.cacher.ready).toBe(false);
    expect(processes.disk.state).toBeUndefined();
  });

  it("has the id of its history once that is known", async () => {
    processes = new Processes();
    const id = await processes.store.historyId();
    processes.upstream.historyId = async () => "";
    await processes.write(["a", "1"]);
    await processes.start();
    expect(processes.disk.state).toMatchObject({ historyId: "" });
    processes.upstream.historyId = async () => id;
    await processes.clock.elapse(3_000);
    expect(processes.disk.state).toMatchObject({ historyId: id });
  });

  it("gets progress while nothing is written, so that what follows is not compacted soon", async () => {
    processes = await kept();
    await processes.others.put({ key: "z", value: Buffer.from("") });
    await processes.clock.elapse(61_000);
    expect(processes.disk.state).toMatchObject({ revision: 5, events: { length: 2 } });
    await processes.stop();
    await processes.others.put({ key: "z", value: Buffer.from("") });
    await processes.store.compact(5);
    await processes.start();
    expect(processes.cacher.stats()).toMatchObject({ relists: 0, revision: 6 });
  });

  it("is all of the state, also when the keeper asks for it before the cache has it", async () => {
    processes = await kept();
    await processes.stop();
    const keeper = processes.disk.keeper();
    let current = (): Iterable<StoredObject> => [];
    const load: StateKeeper["load"] = (signal, asked = current) => {
      current = asked;
      return keeper.load(signal);
    };
    const starting = processes.start({ keeper: { ...keeper, load } });
    const keys = (): string[] => Array.from(current(), ({ key }) => key);
    for (let i = 0; i < 5; i++) await Promise.resolve();
    expect(processes.cacher.ready).toBe(false);
    expect(keys()).toEqual(["a", "c"]);
    await starting;
    await processes.write(["d", "1"]);
    expect(keys()).toEqual(["a", "c", "d"]);
  });

  it("is written to the end when the cache is closed", async () => {
    processes = new Processes();
    const calls: string[] = [];
    const keeper = { ...processes.disk.keeper(), close: async () => void calls.push("closed") };
    const cacher = await processes.start({ keeper });
    expect(calls).toEqual([]);
    await cacher.close();
    expect(calls).toEqual(["closed"]);
  });

  it("is replaced by a relist", async () => {
    processes = await kept();
    await processes.store.txn([{ type: "put", key: "a", value: Buffer.from("9") }]);
    await processes.store.compact(5);
    await processes.clock.elapse(10_000);
    expect(processes.cacher.stats()).toMatchObject({ relists: 1 });
    expect(processes.disk.state).toMatchObject({ revision: 5, eventsAfter: 5, events: [] });
  });
});
