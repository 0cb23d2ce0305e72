import { expect, test } from "vitest";
import { hasReason } from "../../../src/base/errors.ts";
import type { WatchEvent } from "../../../src/model/event.ts";
import type { Operation } from "../../../src/storage/memory/mvcc-store.ts";
import type { HistoryRequest, HistoryResult, Storage } from "../../../src/storage/storage.ts";
import fc, { costlyRuns, runs } from "../../property.ts";
import { type PlainEvent, plainEvent } from "./model.ts";
import {
  bytes,
  expectFailure,
  type Opened,
  put,
  remove,
  storageTest,
  type Traits,
} from "./opened.ts";
import { StreamReader } from "./stream-reader.ts";

/** What a change is compared by. */
type Change = Omit<PlainEvent, "previous">;

/** The history of one key: a page, or all of it. */
export function describeKeyHistory(open: () => Promise<Opened>, traits: Traits): void {
  storageTest(open, "returns the changes of a key, the newest first", async (opened) => {
    const { storage } = opened;
    const first = await opened.write([put("a", "1"), put("ab", "another key")]);
    const second = await opened.write([put("a", "2")]);
    const third = await opened.write([remove("a")]);
    await opened.write([put("b", "another key")]);
    const fourth = await opened.write([put("a", "3")]);
    const page = await read(storage, { key: "a" });
    expect(page.events.map(changeOf)).toMatchObject([
      { type: "ADDED", revision: fourth, object: { value: "3", version: 1 } },
      { type: "DELETED", revision: third, object: { value: "2", modRevision: third, version: 2 } },
      { type: "MODIFIED", revision: second, object: { value: "2", createRevision: first } },
      { type: "ADDED", revision: first, object: { value: "1", version: 1 } },
    ]);
    expect(page).toMatchObject({ revision: fourth, next: undefined, isLimited: false });
    expect(page.oldestRevision).toBeLessThan(first);
  });

  storageTest(open, "returns the history up to a revision", async (opened) => {
    const { storage } = opened;
    const created = await opened.write([put("a", "1")]);
    const between = await opened.write([put("b")]);
    const deleted = await opened.write([remove("a")]);
    await opened.write([put("a", "2")]);
    const revisions = async (upTo: number): Promise<number[]> => {
      const { events, revision } = await read(storage, { key: "a", upTo });
      expect(revision).toBe(upTo);
      return events.map((event) => event.revision);
    };
    expect(await revisions(created)).toEqual([created]);
    expect(await revisions(between)).toEqual([created]);
    expect(await revisions(deleted)).toEqual([deleted, created]);
  });

  storageTest(open, "has no changes of a key that never existed", async (opened) => {
    await opened.write([put("a")]);
    const page = await read(opened.storage, { key: "b" });
    expect(page).toMatchObject({ events: [], next: undefined, isLimited: false });
  });

  storageTest(open, "splits a history by the size of its objects", async (opened) => {
    const { storage } = opened;
    for (const size of [100, 300, 500]) await opened.write([put("a", bytes("x".repeat(size)))]);
    const sizes = async (upTo: number | undefined, maxBytes: number) => {
      const { events, next } = await read(storage, { key: "a", upTo, maxBytes });
      return { sizes: events.map(({ object }) => object.valueBytes), next };
    };
    const first = await sizes(undefined, 700);
    expect(first.sizes).toEqual([500]);
    expect((await sizes(first.next, 700)).sizes).toEqual([300, 100]);
    expect((await sizes(undefined, 1)).sizes).toEqual([500]);
  });

  storageTest(open, "begins the history at the last change before a compaction", async (opened) => {
    const { storage } = opened;
    await opened.write([put("a", "1")]);
    const last = await opened.write([put("a", "2")]);
    const compacted = await opened.write([put("b")]);
    const kept = await opened.write([put("a", "3")]);
    await opened.compact(compacted);
    const page = await read(storage, { key: "a" });
    expect(page.events.map(({ revision }) => revision)).toEqual([kept, last]);
    expect(page).toMatchObject({ next: undefined, oldestRevision: compacted });
    await expectFailure(read(storage, { key: "a", upTo: last }), "REVISION_TOO_OLD", {
      requested_revision: String(last),
      oldest_revision: String(compacted),
    });
  });

  storageTest(open, "refuses a revision that the store has not reached", async (opened) => {
    const newest = await opened.write([put("a")]);
    const future = read(opened.storage, { key: "a", upTo: newest + 1_000 });
    await expectFailure(future, "HISTORY_CHANGED");
  });

  storageTest(open, "refuses an empty key and a page without changes", async (opened) => {
    await expectFailure(read(opened.storage, { key: "" }), "INVALID_REQUEST");
    await expectFailure(read(opened.storage, { key: "a", limit: 0 }), "INVALID_REQUEST");
  });

  test("equals what a watch saw, with writes and compactions at random while it is read", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 30 }), async (steps) => {
        const opened = await open();
        try {
          await compare(opened, steps);
        } finally {
          await opened.close();
        }
      }),
      { numRuns: traits.isFast ? runs(32) : costlyRuns(32) },
    );
  }, 240_000);
}

/** One step of a random history. */
type Step =
  | { readonly kind: "write"; readonly operation: Operation }
  /** Compacts at this part of the revisions. */
  | { readonly kind: "compact"; readonly part: number }
  /** Begins to read a history in pages of this size, of which one is read with each step that follows. */
  | { readonly kind: "read"; readonly key: string; readonly limit: number };

const keys = ["a", "b"];
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 8,
    arbitrary: fc
      .tuple(fc.constantFrom(...keys), fc.nat(20))
      .map(([key, value]) => (value < 14 ? put(key, `${value}`) : remove(key)))
      .map((operation): Step => ({ kind: "write", operation })),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant("compact"),
      part: fc.double({ min: 0, max: 1, noNaN: true }),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant("read"),
      key: fc.constantFrom(...keys),
      limit: fc.integer({ min: 1, max: 4 }),
    }),
  },
);

/** A history that is being read. */
class Reading {
  readonly key: string;
  readonly #limit: number;
  readonly changes: Change[] = [];
  /** The first page's. */
  revision: number | undefined;
  oldestRevision: number | undefined;
  isDone = false;
  #next: number | undefined;

  constructor(key: string, limit: number) {
    this.key = key;
    this.#limit = limit;
  }

  async page(storage: Storage): Promise<void> {
    if (this.isDone) return;
    const upTo = this.#next;
    try {
      const page = await read(storage, { key: this.key, limit: this.#limit, upTo });
      this.revision ??= page.revision;
      expect(page.events.length).toBeLessThanOrEqual(this.#limit);
      expect(page.isLimited).toBe(false);
      this.changes.push(...page.events.map(changeOf));
      this.#next = page.next;
      this.oldestRevision = page.oldestRevision;
    } catch (error) {
      // What follows was compacted since the page before.
      if (upTo === undefined || !hasReason(error, "REVISION_TOO_OLD")) throw error;
      this.#next = undefined;
      this.oldestRevision = Number(error.metadata["oldest_revision"]);
    }
    this.isDone = this.#next === undefined;
  }
}

async function compare(opened: Opened, steps: readonly Step[]): Promise<void> {
  const { storage } = opened;
  const start = await storage.currentRevision();
  const scope = { prefix: "" };
  const watch = new StreamReader(storage, { scope, withPrevious: true, afterRevision: start });
  let newest = start;
  let compacted = 0;
  const readings: Reading[] = [];
  const readPages = () => Promise.all(readings.map((reading) => reading.page(storage)));
  for (const step of steps) {
    if (step.kind === "write") newest = await opened.write([step.operation]);
    else if (step.kind === "read") readings.push(new Reading(step.key, step.limit));
    else {
      const at = Math.max(
        compacted + 1,
        start + 1,
        Math.round(start + (newest - start) * step.part),
      );
      if (at > newest) continue;
      // The watch has to be ahead of what is compacted.
      await watch.through(newest);
      await opened.compact(at);
      compacted = at;
    }
    await readPages();
  }
  while (readings.some(({ isDone }) => !isDone)) await readPages();
  const last = keys.map((key) => new Reading(key, 100));
  for (const reading of last) await reading.page(storage);
  const seen = await watch.through(newest);
  watch.stream.close();
  for (const reading of [...readings, ...last]) {
    const { key, revision = 0, changes, oldestRevision = Infinity } = reading;
    const all = seen
      .filter((event) => event.key === key && event.revision <= revision)
      .map(withoutPrevious)
      .reverse();
    expect(changes, `the history of ${key}`).toEqual(all.slice(0, changes.length));
    // What is missing was compacted, as far as the page goes back.
    const missing = all.slice(changes.length);
    for (const change of missing) expect(change.revision).toBeLessThanOrEqual(oldestRevision);
    if (missing.length > 0) expect(oldestRevision).toBeLessThanOrEqual(compacted);
  }
  // What was read at the end has all that is not compacted: the changes since, and the one that made the state then.
  for (const { key, changes } of last) {
    const events = seen.filter((event) => event.key === key);
    const state = events.findLastIndex((event) => event.revision <= compacted);
    const isThere = state >= 0 && events[state]?.type !== "DELETED";
    const kept = events.length - (isThere ? state : state + 1);
    expect(changes.length, `the changes of ${key} that are not compacted`).toBe(kept);
  }
}

function read(
  storage: Storage,
  request: Partial<HistoryRequest> & Pick<HistoryRequest, "key">,
): Promise<HistoryResult> {
  if (storage.history === undefined) throw new Error("This storage has no histories.");
  return storage.history({ upTo: undefined, limit: 1_000, maxBytes: 2 ** 30, ...request });
}

function changeOf(event: WatchEvent): Change {
  expect(event.previous).toBeUndefined();
  return withoutPrevious(plainEvent(event, true));
}

function withoutPrevious({ previous: _, ...change }: PlainEvent): Change {
  return change;
}
