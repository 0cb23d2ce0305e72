import { isDeepStrictEqual } from "node:util";
import { describe, expect, test } from "vitest";
import { WatchFanoutError } from "../../../../src/base/errors.ts";
import type { WatchEvent } from "../../../../src/model/event.ts";
import type { StoredObject } from "../../../../src/model/object.ts";
import type { JournalEntry } from "../../../../src/storage/journal/journal.ts";
import { MemoryStorage } from "../../../../src/storage/memory/memory-storage.ts";
import { MemoryStore } from "../../../../src/storage/memory/memory-store.ts";
import type { WatchStream } from "../../../../src/storage/storage.ts";
import { FakeClock } from "../../../fake-clock.ts";
import fc, { runs } from "../../../property.ts";
import { plainEvent, plainObject } from "../../conformance/model.ts";
import { bytes, exact, linearizable } from "../../conformance/opened.ts";
import { TestJournal } from "./test-journal.ts";

const key = fc.constantFrom("a", "b", "c");
const expected = fc.option(fc.constantFrom(0, 2, 3, 5), { nil: undefined });
/** An index into the leases that were granted so far. */
const nth = fc.nat({ max: 3 });
const id = fc.constantFrom("caller.1", "caller.2", "other.1");

const maybe = fc.boolean();

const step = fc.oneof(
  { weight: 8, arbitrary: fc.record({ do: fc.constant("put" as const), key, expected }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant("put leased" as const), key, nth }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant("put for 5 s" as const), key }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant("delete" as const), key, expected }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("delete all" as const), id }) },
  {
    weight: 4,
    arbitrary: fc.record({ do: fc.constant("transact" as const), id, key, other: key }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("grant" as const) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("revoke" as const), nth }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("ask" as const), nth }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("renew history" as const) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("compact" as const) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("wait" as const), ms: fc.nat(6_000) }) },
  { weight: 8, arbitrary: fc.record({ do: fc.constant("turn" as const), isSlowRead: maybe }) },
  { weight: 8, arbitrary: fc.record({ do: fc.constant("keep" as const) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("full" as const) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("crash" as const), isKept: fc.boolean() }) },
);

interface Reader {
  stream: WatchStream;
  /** It has read everything up to this one. */
  revision: number;
}

type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

/** A store, its journal, and what may be seen of it: exactly what the journal has kept. */
class World {
  readonly clock = new FakeClock();
  journal = new TestJournal();
  store!: MemoryStore;
  storage!: MemoryStorage;
  /** One that is read after each step, and one that is read seldom. */
  stream!: Reader;
  slow!: Reader;
  readonly leases: bigint[] = [];
  /** Answers that are still to come. */
  readonly calls = new Set<Promise<void>>();
  /** All entries that were ever kept when an answer came. */
  acknowledged: readonly JournalEntry[] = [];
  count = 0;
  answers = 0;
  refusals = 0;
  /** Number of watches whose next change was compacted. */
  tooOld = 0;

  async open(): Promise<void> {
    const { clock, journal } = this;
    const onFault = (error: Error): void => {
      throw error;
    };
    this.store = await MemoryStore.open({ clock, journal, onFault, maxLogRevisions: 5 });
    this.storage = new MemoryStorage({ store: this.store, resource: "things", prefix: "" });
    this.stream = this.#watch();
    this.slow = this.#watch();
  }

  #watch(): Reader {
    const { revision } = this.store;
    const request = { scope: { prefix: "" }, afterRevision: revision, withPrevious: true };
    const stream = this.storage.watch(request);
    stream.onReadable(() => {});
    return { stream, revision };
  }

  /** All that can be read now is what was kept after what was read before. */
  #read(reader: Reader): void {
    const { journal } = this;
    for (let batch = reader.stream.read(); batch !== undefined; batch = reader.stream.read()) {
      const { revision = 0, events } = batch;
      expect(revision).toBeLessThanOrEqual(journal.revision);
      const kept = journal.eventsAfter(reader.revision).filter((each) => each.revision <= revision);
      const plain = (all: readonly WatchEvent[]) => all.map((event) => plainEvent(event, true));
      expect(plain(events)).toEqual(plain(kept));
      reader.revision = revision;
    }
    const { ended } = reader.stream;
    if (ended === undefined) return;
    expect(ended).toMatchObject({ reason: "REVISION_TOO_OLD" });
    expect(reader.revision).toBeLessThan(journal.oldest);
    reader.revision = this.store.revision;
    Object.assign(reader, this.#watch());
    this.tooOld++;
  }

  /** Checks the answer of a call when it comes: all that it says is kept by then. */
  call<T>(answer: Promise<T>, check: (result: T, since: number) => void): void {
    const { journal } = this;
    const since = journal.kept.length;
    const checked = answer.then(
      (result) => {
        if (journal !== this.journal) throw new Error("An answer after the crash.");
        this.acknowledged = journal.kept.slice();
        this.answers++;
        check(result, since);
      },
      (error: unknown) => {
        if (!(error instanceof WatchFanoutError)) throw error;
        if (journal !== this.journal) return;
        this.refusals++;
        this.#checkRefusal(error, since);
      },
    );
    this.calls.add(checked);
    checked.then(
      () => this.calls.delete(checked),
      () => {},
    );
  }

  /** It was so at some time since the call: in what was kept then. `since` is the number of entries that were kept. */
  wasSo(since: number, isSo: (journal: TestJournal) => boolean): void {
    const { kept } = this.journal;
    const moments = kept.length - since + 1;
    const found = Array.from({ length: moments }, (_, i) => kept.slice(0, since + i));
    expect(found.some((entries) => isSo(new TestJournal(entries)))).toBe(true);
  }

  #checkRefusal({ reason, message, metadata }: WatchFanoutError, since: number): void {
    if (reason === "STORAGE_FULL") return;
    if (reason === "REVISION_CONFLICT" || reason === "OBJECT_NOT_FOUND") {
      // What the refusal says was the current object is, or was, in the kept state.
      const said = Number(metadata["mod_revision"] ?? metadata["revision"]);
      expect(said, message).toBeLessThanOrEqual(this.journal.revision);
    } else if (reason === "LEASE_NOT_FOUND") {
      const lease = BigInt(metadata["lease"] ?? -1);
      this.wasSo(since, (journal) => !journal.leasesNow().has(lease));
    } else if (reason === "REQUEST_ID_REUSED") {
      expect(Number(metadata["revision"])).toBeLessThanOrEqual(this.journal.revision);
    } else if (reason === "REVISION_TOO_OLD") {
      expect(Number(metadata["requested_revision"])).toBeLessThanOrEqual(this.journal.oldest);
    } else {
      throw new Error(`${reason}: ${message}`);
    }
  }

  /** The object is one that was kept at its revision. */
  isKept(object: StoredObject): void {
    const { modRevision } = object;
    expect(modRevision).toBeLessThanOrEqual(this.journal.revision);
    const at = this.journal.stateAt(modRevision).find((each) => each.key === object.key);
    expect(at && plainObject(at)).toEqual(plainObject(object));
  }

  /** All that can be seen now is what is kept. */
  async check(): Promise<void> {
    const { journal, store, storage, stream } = this;
    const { revision } = journal;
    expect(store.revision).toBe(revision);
    expect(store.historyId).toBe(journal.historyId);
    expect(Math.max(1, store.oldest)).toBe(journal.oldest);
    const { items } = await storage.list({ prefix: "", limit: 0, at: linearizable });
    expect(items.map(plainObject)).toEqual(journal.stateAt(revision).map(plainObject));
    for (const each of ["a", "b", "c"]) {
      const { object } = await storage.get({ key: each, at: linearizable });
      expect(object?.modRevision).toBe(items.find((item) => item.key === each)?.modRevision);
    }
    this.#read(stream);
    for (let past = Math.max(1, journal.oldest); past <= revision; past += 3) {
      const at = exact(past);
      const state = journal.stateAt(past).map(plainObject);
      expect((await storage.list({ prefix: "", limit: 0, at })).items.map(plainObject)).toEqual(
        state,
      );
      const { object } = await storage.get({ key: "b", at });
      expect(object && plainObject(object)).toEqual(state.find((each) => each.key === "b"));
    }
    const whole = { key: "a", upTo: undefined, limit: 1_000, maxBytes: 1e6 };
    const all = (await storage.history(whole)).events;
    const pages = await pagesOfHistory(storage, journal.oldest);
    expect(pages).toEqual(all.slice(0, pages.length).map((event) => event.revision));
    expect(all[pages.length]?.revision ?? 0).toBeLessThan(Math.max(2, journal.oldest));
    const { events: ofA } = await journal.history({
      ...{ key: "a", upTo: revision, limit: 1_000, maxBytes: 1e6 },
    });
    expect(all.map(({ type, revision: at }) => [type, at])).toEqual(
      ofA.map(({ type, revision: at }) => [type, at]),
    );
  }

  lease(nthOf: number): bigint {
    return this.leases.at(-1 - nthOf) ?? 99n;
  }

  async run(each: Step): Promise<void> {
    const { store, storage, journal } = this;
    const value = bytes(`${this.count++}`);
    switch (each.do) {
      case "put":
        return this.call(
          storage.put({ key: each.key, value, expectedModRevision: each.expected }),
          ({ object, revision, historyId }, since) => {
            expect(object.modRevision).toBe(revision);
            this.wasSo(since, (then) => then.historyId === historyId);
            this.isKept(object);
          },
        );
      case "put leased":
        return this.call(
          storage.put({ key: each.key, value, lease: this.lease(each.nth) }),
          ({ object }) => this.isKept(object),
        );
      case "put for 5 s":
        return this.call(storage.put({ key: each.key, value, ttlSeconds: 5 }), ({ object }) => {
          this.isKept(object);
          this.leases.push(object.lease);
        });
      case "delete": {
        const expectedModRevision = each.expected === 0 ? undefined : each.expected;
        return this.call(
          storage.delete({ key: each.key, expectedModRevision }),
          ({ object, revision }) => {
            this.isKept(object);
            expect(revision).toBeLessThanOrEqual(journal.revision);
            const keys = journal.stateAt(revision).map((left) => left.key);
            expect(keys).not.toContain(each.key);
          },
        );
      }
      case "delete all":
        return this.call(
          store.deletePrefix({ resource: "things", prefix: "", requestId: each.id }),
          ({ revision }) => expect(revision).toBeLessThanOrEqual(journal.revision),
        );
      case "transact":
        return this.call(
          store.transact({
            ...{ requestId: each.id, returnCurrent: true },
            compares: [{ resource: "things", key: each.other, exists: true }],
            // The value is the same each time, so that the request is.
            operations: [{ type: "put", resource: "things", key: each.key, value: bytes("t") }],
          }),
          ({ results, compares, revision }) => {
            expect(revision).toBeLessThanOrEqual(journal.revision);
            for (const { object } of [...results, ...compares]) {
              if (object !== undefined) this.isKept(object);
            }
          },
        );
      case "grant":
        return this.call(store.leases.grant(10), ({ lease }) => {
          expect(journal.leasesNow().has(lease)).toBe(true);
          this.leases.push(lease);
        });
      case "revoke": {
        const lease = this.lease(each.nth);
        return this.call(store.leases.revoke(lease), () =>
          expect(journal.leasesNow().has(lease)).toBe(false),
        );
      }
      case "ask": {
        const lease = this.lease(each.nth);
        this.call(store.leases.attached(lease), ({ keys }, since) =>
          this.wasSo(since, (then) => {
            const attached = then.stateAt(then.revision).filter((one) => one.lease === lease);
            const names = attached.map((one) => one.key);
            return then.leasesNow().has(lease) && isDeepStrictEqual(keys, names);
          }),
        );
        this.call(store.leases.ids(), (ids, since) =>
          this.wasSo(since, (then) =>
            isDeepStrictEqual(new Set(ids), new Set(then.leasesNow().keys())),
          ),
        );
        return this.call(store.leases.keepAlive([lease]), ([outcome], since) =>
          this.wasSo(
            since,
            (then) => then.leasesNow().has(lease) === (typeof outcome === "number"),
          ),
        );
      }
      case "renew history":
        return this.call(storage.renewHistory(store.historyId), (renewed) =>
          expect(renewed).toBe(journal.historyId),
        );
      case "compact":
        return this.call(storage.compact(store.revision), () => {});
      case "wait":
        return this.clock.elapse(each.ms);
      case "turn":
        await this.clock.settle();
        return each.isSlowRead ? this.#read(this.slow) : undefined;
      case "keep":
        if (journal.isCommitting) journal.keep();
        return this.clock.settle();
      case "full":
        if (journal.isCommitting) journal.refuse();
        return this.clock.settle();
      case "crash": {
        const found = journal.crashed(each.isKept);
        // Nothing that was acknowledged is lost.
        expect(found.kept.slice(0, this.acknowledged.length)).toEqual(this.acknowledged);
        this.journal = found;
        this.stream.stream.close();
        this.slow.stream.close();
        return this.open();
      }
    }
  }
}

/** The revisions of the history of `a` in pages, as far as each page can be read. */
async function pagesOfHistory(storage: MemoryStorage, oldest: number): Promise<number[]> {
  const revisions: number[] = [];
  let upTo: number | undefined;
  while (upTo === undefined || upTo >= oldest) {
    const page = await storage.history({ key: "a", upTo, limit: 2, maxBytes: 1e6 });
    revisions.push(...page.events.map((event) => event.revision));
    if (page.next === undefined) break;
    upTo = page.next;
  }
  return revisions;
}

describe("a store with a journal, with random changes, full disks and crashes", () => {
  test("shows exactly what is kept, and answers nothing else", async () => {
    let answered = 0;
    let refused = 0;
    const read = new Set<string>();
    await fc.assert(
      fc.asyncProperty(
        fc.array(step, { minLength: 1, maxLength: 100, size: "max" }),
        async (steps) => {
          const world = new World();
          await world.open();
          for (const each of steps) {
            await world.run(each);
            await world.check();
          }
          for (let i = 0; world.calls.size > 0 && i < 10; i++) {
            if (world.journal.isCommitting) world.journal.keep();
            await world.clock.settle();
          }
          answered += world.answers;
          refused += world.refusals;
          for (const name of world.journal.reads) read.add(name);
          await world.check();
          for (const call of world.calls) await Promise.race([call, world.clock.settle()]);
        },
      ),
      { numRuns: runs(400) },
    );
    expect(answered).toBeGreaterThan(1_000);
    expect(refused).toBeGreaterThan(1_000);
    for (const name of ["page", "history", "changesAfter"]) expect(read.has(name)).toBe(true);
  }, 240_000);
});
