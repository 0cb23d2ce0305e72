import { describe, expect, test } from "vitest";
import { systemClock } from "../../../../src/base/clock.ts";
import { GroupCommit } from "../../../../src/storage/memory/group-commit.ts";
import { MemoryStorage } from "../../../../src/storage/memory/memory-storage.ts";
import {
  MemoryStore,
  type MemoryStoreOptions,
} from "../../../../src/storage/memory/memory-store.ts";
import { FakeClock } from "../../../fake-clock.ts";
import { bytes, expectFailure, linearizable } from "../../conformance/opened.ts";
import { describeStorage } from "../../conformance.ts";
import { TestJournal } from "./test-journal.ts";

describe.each([
  ["all of its history in memory", 100_000],
  ["one revision in memory", 1],
])("with %s", (_, maxLogRevisions) => {
  describeStorage("A MemoryStorage with a journal", async () => {
    const journal = new TestJournal([], true);
    const onFault = (error: Error): void => {
      throw error;
    };
    const store = await MemoryStore.open({ clock: systemClock, journal, onFault, maxLogRevisions });
    const storage = new MemoryStorage({ store, resource: "things", prefix: "" });
    return {
      storage,
      write: (operations) => storage.txn(operations),
      compact: (revision) => storage.compact(revision),
      close: () => store.close(),
    };
  });
});

const value = bytes("1");

async function open(
  journal: TestJournal = new TestJournal(),
  options: Omit<MemoryStoreOptions, "clock"> = {},
  clock: FakeClock = new FakeClock(),
) {
  const faults: Error[] = [];
  const onFault = (error: Error): void => {
    faults.push(error);
  };
  const store = await MemoryStore.open({ clock, journal, onFault, ...options });
  const storage = new MemoryStorage({ store, resource: "things", prefix: "" });
  const get = async (key: string) => (await storage.get({ key, at: linearizable })).object;
  return { clock, journal, faults, store, storage, get };
}

/** Whether a promise has settled, after all that can settle it has run. */
async function isSettled(promise: Promise<unknown>, clock: FakeClock): Promise<boolean> {
  let settled = false;
  promise.then(
    () => {
      settled = true;
    },
    () => {
      settled = true;
    },
  );
  await clock.settle();
  return settled;
}

describe("a change of a store with a journal", () => {
  test("is not visible, and not answered, before it is kept; later changes see it", async () => {
    const { clock, journal, store, storage, get } = await open();
    const stream = storage.watch({
      scope: { prefix: "" },
      afterRevision: 1,
      withPrevious: false,
    });
    const first = storage.put({ key: "a", value });
    const conflict = storage.put({ key: "a", value, expectedModRevision: 0 });
    const absent = storage.delete({ key: "b" });
    expect(await isSettled(Promise.race([first, conflict, absent.catch(() => {})]), clock)).toBe(
      false,
    );
    expect(await get("a")).toBeUndefined();
    expect(stream.read()).toBeUndefined();
    expect(store.revision).toBe(1);
    await expectFailure(
      storage.get({ key: "a", at: { match: "EXACT", revision: 2 } }),
      "HISTORY_CHANGED",
    );
    journal.keep();
    expect((await first).revision).toBe(2);
    await expectFailure(conflict, "REVISION_CONFLICT");
    await expectFailure(absent, "OBJECT_NOT_FOUND");
    expect((await get("a"))?.modRevision).toBe(2);
    clock.runImmediates();
    expect(stream.read()?.revision).toBe(2);
  });

  test("goes with all others that came during the commit before", async () => {
    const { clock, journal, storage } = await open();
    const writes = Array.from({ length: 5 }, (_, i) => storage.put({ key: `${i}`, value }));
    await clock.settle();
    writes.push(...Array.from({ length: 50 }, (_, i) => storage.put({ key: `${i}`, value })));
    await clock.settle();
    expect(journal.commits).toBe(1);
    journal.isAutomatic = true;
    journal.keep();
    await clock.settle();
    await Promise.all(writes);
    expect(journal.commits).toBe(2);
  });

  test("is taken back if the disk is full, with all that saw it, which are applied again", async () => {
    const { clock, journal, store, storage, get } = await open();
    const kept = storage.put({ key: "a", value, ttlSeconds: 10 });
    await clock.settle();
    journal.keep();
    const { lease } = (await kept).object;
    const inFlight = [
      storage.put({ key: "a", value }),
      storage.put({ key: "b", value, ttlSeconds: 10 }),
    ];
    await clock.settle();
    const waiting = [
      storage.delete({ key: "b" }),
      storage.put({ key: "a", value, expectedModRevision: 7 }),
      store.leases.revoke(lease),
    ];
    const refused = Promise.allSettled([...inFlight, ...waiting]);
    journal.isFull = true;
    journal.refuse();
    await clock.settle();
    const reasons = (await refused).map((result) => "reason" in result && result.reason.reason);
    // The deletion and the condition are of what the first ones would have written.
    expect(reasons).toEqual([
      ...["STORAGE_FULL", "STORAGE_FULL"],
      ...["OBJECT_NOT_FOUND", "REVISION_CONFLICT", "STORAGE_FULL"],
    ]);
    journal.isFull = false;
    expect(store.revision).toBe(2);
    expect((await store.leases.attached(lease)).keys).toEqual(["a"]);
    expect(await store.leases.ids()).toEqual([lease]);
    journal.isAutomatic = true;
    const next = storage.put({ key: "b", value, expectedModRevision: 0 });
    await clock.settle();
    expect((await next).revision).toBe(3);
    expect((await get("a"))?.version).toBe(1);
    await clock.elapse(10_000);
    expect(await get("a")).toBeUndefined();
  });

  test("has an unknown outcome if the journal fails, and nothing works afterwards", async () => {
    const { clock, journal, faults, store, storage } = await open();
    const stream = storage.watch({ scope: { prefix: "" }, afterRevision: 1, withPrevious: false });
    const writes = [storage.put({ key: "a", value })];
    await clock.settle();
    writes.push(storage.put({ key: "b", value }));
    const ended = Promise.allSettled(writes);
    journal.fail();
    await clock.settle();
    for (const result of await ended) {
      expect(result).toMatchObject({ status: "rejected", reason: { reason: "OUTCOME_UNKNOWN" } });
    }
    expect(faults).toHaveLength(1);
    expect(stream.read()).toBeUndefined();
    expect(stream.ended).toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });
    await expectFailure(storage.put({ key: "c", value }), "UPSTREAM_UNAVAILABLE");
    await expectFailure(storage.get({ key: "a", at: linearizable }), "UPSTREAM_UNAVAILABLE");
    await expectFailure(store.leases.keepAlive([7n]), "UPSTREAM_UNAVAILABLE");
    await store.close();
    expect(clock.pendingTimers).toBe(0);
  });

  test("waits before it is applied while too much waits for the disk, until its signal is aborted", async () => {
    const { clock, journal, store, storage } = await open();
    const large = new Uint8Array(1024 ** 2);
    const writes = Array.from({ length: 60 }, (_, i) => storage.put({ key: `${i}`, value: large }));
    const abort = new AbortController();
    const last = storage.put({ key: "last", value, signal: abort.signal });
    abort.abort(new RangeError("enough"));
    await expect(last).rejects.toThrow(RangeError);
    for (let commits = 0; (await isSettled(Promise.all(writes), clock)) === false; commits++) {
      if (journal.isCommitting) journal.keep();
      expect(commits).toBeLessThan(100);
    }
    expect(journal.commits).toBeGreaterThan(1);
    expect(store.revision).toBe(61);
    const revisions = (await Promise.all(writes)).map(({ revision }) => revision);
    expect(revisions).toEqual(revisions.toSorted((a, b) => a - b));
  });

  test("leaves what is kept readable in memory, however many others are not kept yet", async () => {
    const { clock, journal, storage, get } = await open(new TestJournal(), { maxLogRevisions: 1 });
    const first = storage.put({ key: "a", value });
    await clock.settle();
    const others = Array.from({ length: 10 }, () => storage.put({ key: "a", value }));
    journal.keep();
    await first;
    expect((await get("a"))?.version).toBe(1);
    expect(journal.reads).toEqual([]);
    await clock.settle();
    journal.keep();
    await Promise.all(others);
    expect((await get("a"))?.version).toBe(11);
  });

  test("takes no room when it was taken back", async () => {
    const { clock, journal, storage } = await open(new TestJournal(), { maxStateBytes: 4_000 });
    const large = new Uint8Array(2_000);
    journal.isFull = true;
    for (let i = 0; i < 5; i++) {
      const refused = expectFailure(storage.put({ key: "a", value: large }), "STORAGE_FULL");
      await clock.settle();
      await refused;
    }
    journal.isFull = false;
    journal.isAutomatic = true;
    const write = storage.put({ key: "a", value: large });
    await clock.settle();
    expect((await write).revision).toBe(2);
    const more = expectFailure(storage.put({ key: "b", value: large }), "STORAGE_FULL");
    await clock.settle();
    await more;
  });

  test("may have more entries than a call can have arguments", async () => {
    const clock = new FakeClock();
    const journal = new TestJournal([], true);
    const onFault = (error: Error): void => {
      throw error;
    };
    const commits = new GroupCommit({ journal, clock, onKept: () => {}, onFault });
    const entry = { type: "compacted", revision: 1 } as const;
    const entries = Array.from({ length: 150_000 }, () => entry);
    let isKept = false;
    const kept = (): void => {
      isKept = true;
    };
    commits.add({ entries, bytes: 0, kept, undo: () => {} });
    await clock.settle();
    expect(isKept).toBe(true);
    expect(journal.kept).toHaveLength(150_000);
  });

  test("is kept before the store is closed", async () => {
    const { clock, journal, store, storage } = await open();
    const write = storage.put({ key: "a", value });
    const closing = Promise.all([store.close(), store.close()]);
    expect(await isSettled(Promise.race([store.close(), closing]), clock)).toBe(false);
    journal.keep();
    await clock.settle();
    expect((await write).revision).toBe(2);
    await closing;
    await store.close();
    expect(journal.isClosed).toBe(true);
    expect(clock.pendingTimers).toBe(0);
  });
});

describe("after a restart", () => {
  test("there are the objects, leases with their full length, requests and the history", async () => {
    const before = await open(new TestJournal([], true));
    const { storage, store } = before;
    const requestId = "caller.1";
    const transaction = {
      ...{ compares: [], requestId },
      operations: [{ type: "put", resource: "things", key: "a", value, ttlSeconds: 60 }],
    } as const;
    const writes = [storage.put({ key: "b", value }), store.transact(transaction)];
    await before.clock.settle();
    await Promise.all(writes);
    const renewed = storage.renewHistory(store.historyId);
    const granted = store.leases.grant(30);
    await before.clock.settle();
    await before.clock.elapse(20_000);
    const found = before.journal.crashed(false);
    found.isAutomatic = true;
    const after = await open(found);
    expect(after.store.historyId).toBe(await renewed);
    expect(after.store.revision).toBe(3);
    const { items } = await after.storage.list({ prefix: "", limit: 0, at: linearizable });
    expect(items.map(({ key, modRevision }) => [key, modRevision])).toEqual([
      ["a", 3],
      ["b", 2],
    ]);
    const [a] = items;
    expect((await after.store.leases.attached(a?.lease ?? 0n)).ttlMs).toBe(60_000);
    expect((await after.store.leases.attached((await granted).lease)).ttlMs).toBe(30_000);
    expect(await after.store.transact(transaction)).toMatchObject({ succeeded: true, revision: 3 });
    await after.clock.elapse(30_000);
    await expectFailure(after.store.leases.attached((await granted).lease), "LEASE_NOT_FOUND");
  });

  test("the time of a lease begins when the state is there, however long it takes to read", async () => {
    const before = await open(new TestJournal([], true));
    const write = before.storage.put({ key: "a", value, ttlSeconds: 2 });
    await before.clock.settle();
    const { lease } = (await write).object;
    const found = before.journal.crashed(false);
    found.isAutomatic = true;
    const clock = new FakeClock();
    const objects = found.objects.bind(found);
    found.objects = async function* () {
      yield* objects();
      await clock.elapse(5_000);
    };
    const after = await open(found, {}, clock);
    expect(found.commits).toBe(0);
    expect((await after.store.leases.attached(lease)).ttlMs).toBe(2_000);
    expect(await after.get("a")).toBeDefined();
    await clock.elapse(2_000);
    expect(await after.get("a")).toBeUndefined();
  });

  test("a lease without keys that does not last without them ends", async () => {
    const lease = { id: 7n, ttlSeconds: 60, isGranted: false };
    const { clock, journal, store } = await open(new TestJournal([{ type: "lease", lease }], true));
    await clock.settle();
    expect(store.leases.size).toBe(0);
    expect(journal.leasesNow().size).toBe(0);
  });
});

describe("a lease of a store with a journal", () => {
  test("is renewed without the disk, unless it has just come or gone", async () => {
    const { clock, journal, store } = await open();
    const granting = store.leases.grant(60, undefined, 7n);
    const early = store.leases.keepAlive([7n]);
    expect(await isSettled(early, clock)).toBe(false);
    journal.keep();
    expect(await early).toEqual([60_000]);
    await granting;
    const other = store.leases.grant(60, undefined, 8n);
    await clock.settle();
    expect(journal.isCommitting).toBe(true);
    expect(await store.leases.keepAlive([7n])).toEqual([60_000]);
    journal.keep();
    await other;
    const revoking = expectFailure(store.leases.revoke(7n), "STORAGE_FULL");
    const late = store.leases.keepAlive([7n]);
    expect(await isSettled(late, clock)).toBe(false);
    journal.isFull = true;
    journal.refuse();
    await clock.settle();
    await revoking;
    expect(await late).toEqual([60_000]);
  });

  test("whose end can't be kept is tried again", async () => {
    const { clock, journal, store, storage, get } = await open();
    const writing = storage.put({ key: "a", value, ttlSeconds: 10 });
    await clock.settle();
    journal.keep();
    await writing;
    await clock.elapse(10_000);
    expect(journal.isCommitting).toBe(true);
    expect((await get("a"))?.modRevision).toBe(2);
    journal.isFull = true;
    journal.refuse();
    await clock.elapse(500);
    journal.isFull = false;
    expect(journal.isCommitting).toBe(false);
    await clock.elapse(500);
    expect((await get("a"))?.modRevision).toBe(2);
    journal.keep();
    await clock.settle();
    expect(await get("a")).toBeUndefined();
    expect(store.leases.size).toBe(0);
    expect(clock.pendingTimers).toBe(0);
  });

  test("does not end if it was renewed while its end waited for the disk", async () => {
    const { clock, journal, store, storage, get } = await open();
    const writing = storage.put({ key: "a", value, ttlSeconds: 10 });
    await clock.settle();
    journal.keep();
    const { lease } = (await writing).object;
    const large = new Uint8Array(1024 ** 2);
    const writes = Array.from({ length: 40 }, (_, i) => storage.put({ key: `${i}`, value: large }));
    await clock.elapse(10_000);
    expect(await store.leases.keepAlive([lease])).toEqual([10_000]);
    journal.isAutomatic = true;
    journal.keep();
    await clock.settle();
    await Promise.all(writes);
    expect(await get("a")).toBeDefined();
    await clock.elapse(10_000);
    expect(await get("a")).toBeUndefined();
  });

  test("leaves no timer behind if its end is taken back while the store is closed", async () => {
    const { clock, journal, store } = await open();
    const granting = store.leases.grant(10, undefined, 7n);
    await clock.settle();
    journal.keep();
    await granting;
    const revoking = expectFailure(store.leases.revoke(7n), "UPSTREAM_UNAVAILABLE");
    await clock.settle();
    const closing = store.close();
    journal.refuse();
    await clock.settle();
    await revoking;
    await closing;
    expect(clock.pendingTimers).toBe(0);
  });
});
