import { setImmediate as nextTurn } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { revisionTooOld } from "../../../src/base/errors.ts";
import { Gate } from "../../../src/base/gate.ts";
import type { EtcdClient } from "../../../src/etcd/client/etcd-client.ts";
import { WatchBatch, WatchEvent } from "../../../src/model/event.ts";
import { DeletionSearch } from "../../../src/storage/etcd/key-history.ts";
import { object } from "../../cacher/objects.ts";
import { FakeClock } from "../../fake-clock.ts";

const current = 2_000_000;

interface Searching {
  readonly clock: FakeClock;
  /** Where each search has begun. */
  readonly starts: number[];
  /** Where it ends. */
  readonly ends: number[];
  /** Another one of the same etcd. */
  search(owner?: object): DeletionSearch;
}

/** An etcd in which the key was deleted at these revisions. `hangs`: its watches deliver nothing. */
function etcdWith(deletions: readonly number[], compacted: number = 0, hangs = false): Searching {
  const clock = new FakeClock();
  const client = { clock, pastSearches: new Gate({ concurrent: 1 }) } as unknown as EtcdClient;
  const starts: number[] = [];
  const ends: number[] = [];
  const open = (after: number, upTo: number) => {
    starts.push(after);
    ends.push(upTo);
    const isTooOld = after < compacted;
    const events = deletions
      .filter((revision) => revision > after && revision <= upTo)
      .map((revision) => new WatchEvent("DELETED", object("k", 1).deletedAt(revision), undefined));
    const batches = isTooOld || hangs ? [] : [new WatchBatch(upTo, events)];
    return {
      read: () => batches.shift(),
      ended: isTooOld ? revisionTooOld(after, compacted) : undefined,
      onReadable: (listener: () => void) => void clock.setImmediate(listener),
      requestProgress: () => {},
      close: () => {},
    };
  };
  const search = (owner = {}) => new DeletionSearch({ client, open, owner, signal: undefined });
  return { clock, starts, ends, search };
}

/** Settles as `promise` does, while time passes. */
async function passing<T>(clock: FakeClock, promise: Promise<T>, stepMs = 100): Promise<T> {
  let isOver = false;
  promise.then(
    () => (isOver = true),
    () => (isOver = true),
  );
  while (!isOver) {
    clock.advance(stepMs);
    await nextTurn();
  }
  return promise;
}

describe("A search for deletions", () => {
  test("begins near the current revision, and further back only if it has found nothing", async () => {
    const etcd = etcdWith([current - 100_000, current - 10_000]);
    const search = etcd.search();
    expect(await passing(etcd.clock, search.latest(current, current))).toBe(current - 10_000);
    expect(etcd.starts).toEqual([current - 20_000]);
    const older = await passing(etcd.clock, search.latest(current - 10_001, current));
    expect([older, etcd.starts]).toEqual([
      current - 100_000,
      [current - 20_000, current - 160_000],
    ]);
  });

  test("goes back 500,000 revisions at most, and says that there may be more", async () => {
    const etcd = etcdWith([current - 600_000]);
    const search = etcd.search();
    expect(await passing(etcd.clock, search.latest(current, current))).toBeUndefined();
    expect(etcd.starts.at(-1)).toBe(current - 500_000);
    expect([search.isLimited, search.after]).toEqual([true, current - 500_000]);
    const far = etcd.search();
    expect(await far.latest(current - 550_000, current)).toBeUndefined();
    expect([far.isLimited, far.after, etcd.starts.length]).toEqual([true, current - 550_000, 3]);
  });

  test("ends where etcd is compacted", async () => {
    const etcd = etcdWith([current - 100], current - 50);
    const search = etcd.search();
    expect(await passing(etcd.clock, search.latest(current, current))).toBeUndefined();
    expect([search.isLimited, search.after]).toEqual([false, current - 50]);
    expect(etcd.starts).toEqual([current - 20_000, current - 50]);
  });

  test("knows 1,000 deletions at once, and searches again for older ones", async () => {
    const all = Array.from({ length: 1_500 }, (_, i) => current - 2 * i).reverse();
    const etcd = etcdWith(all);
    const search = etcd.search();
    const found: number[] = [];
    for (let upTo = current; ; upTo = (found.at(-1) as number) - 1) {
      const next = await passing(etcd.clock, search.latest(upTo, current));
      if (next === undefined) break;
      found.push(next);
    }
    expect(found).toEqual(all.toReversed());
  });

  test("waits for the one before, and a pause of ten times what that takes etcd", async () => {
    const etcd = etcdWith([current - 100]);
    const first = await passing(etcd.clock, etcd.search().latest(current, current));
    expect(first).toBe(current - 100);
    const begun = etcd.clock.now();
    const second = etcd.search().latest(current, current);
    await passing(etcd.clock, second, 10);
    expect(etcd.starts).toHaveLength(2);
    // 20,000 revisions take 28 ms.
    expect(etcd.clock.now() - begun).toBeGreaterThanOrEqual(200);
  });

  test("waits for the longest one of another caller, and callers take turns", async () => {
    const etcd = etcdWith([]);
    const greedy = {};
    const all = Array.from({ length: 4 }, () => etcd.search(greedy).latest(current, current));
    const ended = Promise.allSettled(all);
    while (!etcd.starts.includes(current - 500_000)) {
      etcd.clock.advance(100);
      await nextTurn();
    }
    const before = etcd.starts.length;
    const other = etcd.search().latest(current - 5_000, current);
    while (etcd.starts.length === before) {
      etcd.clock.advance(100);
      await nextTurn();
    }
    // Only the other caller has asked for this revision.
    expect(etcd.ends.at(-1)).toBe(current - 5_000);
    await passing(etcd.clock, Promise.allSettled([ended, other]));
  });

  test("is UPSTREAM_UNAVAILABLE if others take more than 9 s, or etcd does not deliver in 15 s", async () => {
    const etcd = etcdWith([], 0, true);
    const hanging = etcd.search().latest(current, current);
    const waiting = etcd.search().latest(current, current);
    await expect(passing(etcd.clock, waiting)).rejects.toMatchObject({
      reason: "UPSTREAM_UNAVAILABLE",
    });
    expect(etcd.clock.now()).toBeLessThan(10_000);
    await expect(passing(etcd.clock, hanging)).rejects.toMatchObject({
      reason: "UPSTREAM_UNAVAILABLE",
    });
    expect(etcd.starts).toHaveLength(1);
  });
});
