import type { Clock } from "../base/clock.ts";
import { WatchFanoutError } from "../base/errors.ts";
import type { KeptState } from "../cache-files/kept-state.ts";
import type { EventType, WatchBatch, WatchEvent } from "../model/event.ts";
import type { StoredObject } from "../model/object.ts";
import type { Scope, Storage, WrittenObjects } from "../storage/storage.ts";
import { readPast } from "./backfill/past-events.ts";

/** Maximum number of recorded changes. */
const capacity = 64;

/** Number of revisions that are read before the last change, and at least after it; maximum size of their events in bytes. */
const fewRevisions = 1_000;
const maxReadBytes = 4 * 1024 ** 2;

/** The keys of the known state, as it is now. */
export interface KnownKeys {
  readonly has: (key: string) => boolean;
  readonly clock: Clock;
}

/** A recorded change, without values. */
interface Change {
  readonly key: string;
  readonly revision: number;
  readonly type: EventType;
}

/** What is known at one moment: more changes may be delivered while the store is asked about it. */
interface KnownState {
  readonly revision: number;
  /** Number of objects. */
  readonly count: number;
  /** All changes after `after`, and all deletions after `deletionsAfter`, in the order of delivery. */
  readonly changes: readonly Change[];
  readonly after: number;
  readonly deletionsAfter: number;
}

/**
 * The newest changes of a history and its number of objects, which identify a state.
 *
 * A restored store that has grown past its old revision may have the same last change: if a resource was not written
 * since the backup, both histories have that. But then every difference was written after it, or was deleted. So the
 * store is asked, at the last delivered revision, what was written after the oldest recorded change. It must be
 * exactly the recorded changes, and the number of objects must be the same.
 *
 * To find that, a store reads all keys. If the last change was few revisions ago, they are read instead, with some before it,
 * as a watch has them: they must be the recorded changes, and nothing that leads to another state. That proves nothing
 * of deletions that are not recorded, so it needs a change after the list.
 */
export class RecentChanges {
  readonly #scope: Scope;
  /** A ring buffer of changes in the order of delivery, without values. */
  readonly #keys: string[] = [];
  readonly #revisions: number[] = [];
  readonly #types: EventType[] = [];
  /** The index of the next change in the ring buffer. */
  #next = 0;
  /** Every change after this revision is recorded, except deletions. */
  #after = 0;
  /** Every deletion after this revision is recorded as well. */
  #deletionsAfter = 0;
  /** The revision of the known state. */
  #revision = 0;
  #count = 0;
  readonly #known: KnownKeys | undefined;

  /** Without `known` the state is always compared. */
  constructor(scope: Scope, known?: KnownKeys) {
    this.#scope = scope;
    this.#known = known;
  }

  /** Starts with a listed state. */
  reset(objects: readonly StoredObject[], revision: number): void {
    this.#keys.length = 0;
    this.#revisions.length = 0;
    this.#types.length = 0;
    this.#next = 0;
    this.#after = 0;
    this.#deletionsAfter = revision;
    this.#count = objects.length;
    this.#revision = revision;
    for (const { key, modRevision } of newest(objects)) this.#remember(key, modRevision, "ADDED");
  }

  /** Starts with a state that was kept. */
  restore({
    objects,
    revision,
    events,
    eventsAfter,
  }: Omit<KeptState, "historyId" | "syncedAt">): void {
    this.reset(
      objects.filter(({ modRevision }) => modRevision <= eventsAfter),
      revision,
    );
    this.#deletionsAfter = eventsAfter;
    this.#count = objects.length;
    for (const { type, object } of events.slice(-capacity - 1))
      this.#remember(object.key, object.modRevision, type);
  }

  /** Throws an Error for a part of an atomic batch: between two parts, no state of the store is the known one. */
  advance({ events, revision }: WatchBatch): void {
    if (revision === undefined) throw new Error("a storage with writtenAfter split a batch");
    for (const { type, object } of events) {
      if (type === "ADDED") this.#count++;
      else if (type === "DELETED") this.#count--;
      this.#remember(object.key, object.modRevision, type);
    }
    this.#revision = revision;
  }

  /**
   * Rejects with HISTORY_CHANGED if the store's state at the last delivered revision is not the known state,
   * REVISION_TOO_OLD if it can't be read any more. Resolves for a storage without `writtenAfter`. `mayReadEvents`: whether
   * the events of the store may prove the state.
   */
  async check(storage: Storage, signal: AbortSignal, mayReadEvents: boolean = true): Promise<void> {
    if (storage.writtenAfter === undefined) return;
    let known = this.#knownState();
    let isProven = mayReadEvents && (await this.#isProven(storage, known, signal));
    if (isProven === undefined) {
      known = this.#knownState();
      isProven = await this.#isProven(storage, known, signal);
    }
    if (isProven === true) return;
    const { revision, count, after } = known;
    const expected = currentChanges(known);
    const limit = expected.size + 1;
    const found = await storage.writtenAfter({
      scope: this.#scope,
      revision,
      after,
      limit,
      signal,
    });
    const isSame = found.total === count && isExactly(found.written, expected);
    if (!isSame) throw notThisState(revision, found, count);
  }

  /**
   * Whether the store's events around and after the last known change lead to the known state. False as well if that can't be
   * found out, or a comparison of the state costs less. Undefined if too many changes came meanwhile: those of the state that
   * is known then are all recorded. Rejects as the storage fails.
   */
  async #isProven(
    storage: Storage,
    known: KnownState,
    signal: AbortSignal,
  ): Promise<boolean | undefined> {
    const { revision, count, changes } = known;
    const last = changes.at(-1)?.revision ?? 0;
    // A listed state does not show what was deleted after its newest object.
    const isKnown = last > Math.max(1, known.after) && last >= known.deletionsAfter;
    const isCostly = revision - last > Math.max(fewRevisions, count);
    if (this.#known === undefined || isCostly || !isKnown) return false;
    // A watch would wait for what a restored store does not have yet.
    if ((await storage.currentRevision(signal)) < revision) return false;
    const { has, clock } = this.#known;
    const source = { storage, scope: this.#scope, clock, withPrevious: false };
    const after = Math.max(1, known.after, last - 1 - fewRevisions);
    const { past } = await readPast(source, [after], revision, maxReadBytes, signal);
    // Compacted, too large, or too slow. The last change alone is not enough: another history may have the same one.
    if (past === undefined) return false;
    const now = this.#knownState();
    const wasAbsent = (key: string): boolean | undefined => lacked(now, has, key, revision);
    return leadsTo(past.events, lastChanges(known, after), wasAbsent);
  }

  #knownState(): KnownState {
    const { length } = this.#keys;
    const changes = Array.from({ length }, (_, i) => {
      const at = (this.#next + i) % length;
      const [key = "", revision = 0] = [this.#keys[at], this.#revisions[at]];
      return { key, revision, type: this.#types[at] ?? "ADDED" };
    });
    const [revision, count] = [this.#revision, this.#count];
    return { revision, count, changes, after: this.#after, deletionsAfter: this.#deletionsAfter };
  }

  #remember(key: string, revision: number, type: EventType): void {
    const at = this.#next;
    this.#after = Math.max(this.#after, this.#revisions[at] ?? 0);
    this.#keys[at] = key;
    this.#revisions[at] = revision;
    this.#types[at] = type;
    this.#next = (at + 1) % capacity;
  }
}

/** The newest objects in the order of their revisions: one more than is recorded. */
function newest(objects: readonly StoredObject[]): readonly StoredObject[] {
  const most = capacity + 1;
  const byRevision = (one: StoredObject, other: StoredObject): number =>
    one.modRevision - other.modRevision;
  let chosen: StoredObject[] = [];
  let oldest = 0;
  for (const object of objects) {
    if (object.modRevision < oldest) continue;
    chosen.push(object);
    // Sorted rarely, so that the cost stays low even if each object is newer than all before.
    if (chosen.length < 16 * most) continue;
    chosen = chosen.sort(byRevision).slice(-most);
    oldest = chosen[0]?.modRevision ?? 0;
  }
  return chosen.sort(byRevision).slice(-most);
}

/** The changes after a revision, by key: the last revision of each, 0 if it was deleted. */
function lastChanges({ changes }: KnownState, after: number): Map<string, number> {
  const last = new Map<string, number>();
  for (const { key, revision, type } of changes) {
    if (revision > after) last.set(key, type === "DELETED" ? 0 : revision);
  }
  return last;
}

/** The changes that were not deleted later, by key. */
function currentChanges({ changes, after }: KnownState): Map<string, number> {
  const current = new Map<string, number>();
  for (const { key, revision, type } of changes) {
    // Of a revision that is partly overwritten in the ring buffer, the other changes are unknown.
    if (revision <= after || type === "DELETED") current.delete(key);
    else current.set(key, revision);
  }
  return current;
}

/**
 * Whether the state at a revision lacked a key, as is known now, with the keys of now. Undefined if not all changes since are
 * recorded.
 */
function lacked(
  { changes, after, deletionsAfter }: KnownState,
  has: (key: string) => boolean,
  key: string,
  revision: number,
): boolean | undefined {
  if (Math.max(after, deletionsAfter) > revision) return undefined;
  const next = changes.find((change) => change.key === key && change.revision > revision);
  return next === undefined ? !has(key) : next.type === "ADDED";
}

/**
 * Whether all events lead to what is expected of each key. Other keys may have come and gone, if they were absent after all
 * events. Undefined if that is not known of one.
 */
function leadsTo(
  events: readonly WatchEvent[],
  expected: ReadonlyMap<string, number>,
  wasAbsent: (key: string) => boolean | undefined,
): boolean | undefined {
  const found = new Map<string, number>();
  for (const { type, object } of events) {
    found.set(object.key, type === "DELETED" ? 0 : object.modRevision);
  }
  for (const [key, at] of expected) if (found.get(key) !== at) return false;
  let isKnown = true;
  for (const [key, at] of found) {
    if (expected.has(key)) continue;
    const isAbsent = at === 0 && wasAbsent(key);
    if (isAbsent === false) return false;
    isKnown &&= isAbsent === true;
  }
  return isKnown || undefined;
}

function isExactly(written: readonly StoredObject[], expected: Map<string, number>): boolean {
  if (written.length !== expected.size) return false;
  return written.every(({ key, modRevision }) => expected.get(key) === modRevision);
}

function notThisState(revision: number, found: WrittenObjects, count: number): WatchFanoutError {
  const [first] = found.written;
  const such =
    first === undefined ? "" : `, among them ${JSON.stringify(first.key)} of ${first.modRevision}`;
  return new WatchFanoutError(
    "HISTORY_CHANGED",
    `The store's state at revision ${revision}, ${found.total} objects${such}, is not the known state of ${count} ` +
      "objects: its history has changed. Relist and watch from the list's revision.",
    { metadata: { history_id: "" } },
  );
}
