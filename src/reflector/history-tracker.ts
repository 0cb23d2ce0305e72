import { type Clock, pause } from "../base/clock.ts";
import { hasReason, otherHistory, WatchFanoutError } from "../base/errors.ts";
import type { KeptState } from "../cache-files/kept-state.ts";
import type { WatchBatch, WatchEvent } from "../model/event.ts";
import { isSameObject, type StoredObject } from "../model/object.ts";
import type { Scope, Storage, WrittenObjects } from "../storage/storage.ts";
import { readPast } from "./backfill/past-events.ts";

/** Interval between reads of the history's id, in milliseconds. */
const askAgainMs = 2_000;

/** Number of these intervals after which a state that is kept gets progress. */
const readsPerProgress = 30;

/** The history that a Reflector follows, and the checks that detect another one. */
export class HistoryTracker {
  readonly #storage: Storage;
  readonly #onIdentified: (id: string) => void;
  readonly #fingerprint = new StoreFingerprint();
  /** Only for a storage with `writtenAfter`. */
  readonly #recent: RecentChanges | undefined;
  #id = "";

  /** `onIdentified` is called when an id becomes known that could not be read before. */
  constructor(
    storage: Storage,
    scope: Scope,
    onIdentified: (id: string) => void,
    known?: KnownKeys,
  ) {
    this.#storage = storage;
    this.#recent = storage.writtenAfter === undefined ? undefined : new RecentChanges(scope, known);
    this.#onIdentified = onIdentified;
  }

  /** Empty until it is known. */
  get id(): string {
    return this.#id;
  }

  /** Whether `checkState` checks anything. */
  get canCheckState(): boolean {
    return this.#recent !== undefined;
  }

  /** Follows the history with this id, from a listed state on. */
  reset(id: string, objects: readonly StoredObject[], revision: number): void {
    this.#id = id;
    this.#fingerprint.ofState(objects);
    this.#recent?.reset(objects, revision);
  }

  /** Follows the history of a state that was kept, whose last events were these. */
  restore(kept: KeptState): void {
    this.#id = kept.historyId;
    this.#fingerprint.ofState(kept.objects);
    this.#fingerprint.of(kept.events.at(-1));
    this.#recent?.restore(kept);
  }

  /**
   * Records a delivered batch. An atomic batch may have a DELETED event at the revision at which the absence was
   * detected instead of the revision of the deletion, so such events do not identify a history.
   */
  advance(batch: WatchBatch): void {
    const { events, isAtomic } = batch;
    this.#recent?.advance(batch);
    this.#fingerprint.of(
      isAtomic ? events.findLast(({ type }) => type !== "DELETED") : events.at(-1),
    );
  }

  /**
   * Rejects with HISTORY_CHANGED if the history is known to have changed: the store does not have the last known
   * change, or another replica has written a new history id. An id that can't be read proves nothing. If nothing has
   * changed for long, that this resolves proves little: see `checkState`.
   */
  async check(signal: AbortSignal): Promise<void> {
    await this.#fingerprint.check(this.#storage, signal);
    await this.checkId(signal);
  }

  /** Rejects with HISTORY_CHANGED if the store's history has another id. */
  async checkId(signal: AbortSignal): Promise<void> {
    const id = await this.#storage.historyId(signal);
    if (id === "" || id === this.#id) return;
    if (this.#id !== "") throw otherHistory(this.#id, id);
    this.#id = id;
    this.#onIdentified(id);
  }

  /**
   * Rejects with HISTORY_CHANGED if the store's state at the last known revision is not the known state;
   * REVISION_TOO_OLD if that can't be read any more. Costs the store as much as a list, unless the changes since the last
   * known one are few.
   */
  async checkState(signal: AbortSignal): Promise<void> {
    await this.#recent?.check(this.#storage, signal);
  }

  /** Does both checks. */
  async confirm(signal: AbortSignal): Promise<void> {
    await this.check(signal);
    await this.checkState(signal);
  }

  /**
   * Reads the history's id periodically, and rejects with HISTORY_CHANGED if another replica has written a new one: if
   * the store was restored to a state that is newer than this replica's, a watch continues as if nothing had happened.
   * A storage that announces its history is asked only until the id is known. Resolves when the signal is aborted.
   *
   * `needsProgress`: the state is kept on disk, and must not fall behind what the store compacts while nothing is written.
   */
  async poll(clock: Clock, signal: AbortSignal, needsProgress: boolean = false): Promise<void> {
    for (let round = 1; !signal.aborted; round++) {
      await pause(clock, askAgainMs, signal);
      if (signal.aborted) return;
      if (needsProgress && round % readsPerProgress === 0) this.#storage.requestProgress();
      if (this.#storage.announcesHistory === true && this.#id !== "") continue;
      try {
        await this.checkId(signal);
      } catch (error) {
        if (signal.aborted) return;
        // The watch itself reports other errors.
        const isUndetermined =
          error instanceof WatchFanoutError && !hasReason(error, "HISTORY_CHANGED");
        if (!isUndetermined) throw error;
      }
    }
  }
}

/**
 * The last known change of a history, which identifies it. A store that was restored to an older state and has grown
 * since may have any revision, but hardly the same change at the same revision.
 */
export class StoreFingerprint {
  #object: StoredObject | undefined;
  #isDeletion = false;

  /** Takes the newest change of a listed state. */
  ofState(objects: readonly StoredObject[]): void {
    this.#object = undefined;
    this.#isDeletion = false;
    for (const object of objects) {
      if (object.modRevision > (this.#object?.modRevision ?? 0)) this.#object = object;
    }
  }

  of(event: WatchEvent | undefined): void {
    if (event === undefined) return;
    this.#object = event.object;
    this.#isDeletion = event.type === "DELETED";
  }

  /**
   * Rejects with HISTORY_CHANGED if the store does not have this change, or has not reached its revision. Resolves if
   * it has, and if the revision is compacted.
   */
  async check(storage: Storage, signal: AbortSignal): Promise<void> {
    // Copied at one moment, as changes may come during the request.
    const object = this.#object;
    const isDeletion = this.#isDeletion;
    if (object === undefined) return;
    const { key, modRevision } = object;
    const at = async (revision: number): Promise<StoredObject | undefined> => {
      const result = await storage.get({ key, at: { match: "EXACT", revision }, signal });
      return result.object;
    };
    try {
      const now = await at(modRevision);
      const isSame = isDeletion
        ? now === undefined && (await at(modRevision - 1)) !== undefined
        : now !== undefined && isSameObject(now, object);
      if (!isSame) throw notThisHistory(object);
    } catch (error) {
      if (!hasReason(error, "REVISION_TOO_OLD")) throw error;
    }
  }
}

function notThisHistory({ key, modRevision }: StoredObject): WatchFanoutError {
  return new WatchFanoutError(
    "HISTORY_CHANGED",
    `The store no longer has the change of ${JSON.stringify(key)} at revision ${modRevision}: its history ` +
      "has changed. Relist and watch from the list's revision.",
    { metadata: { history_id: "" } },
  );
}

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
  readonly #isDeletionAt: boolean[] = [];
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
    this.#isDeletionAt.length = 0;
    this.#next = 0;
    this.#after = 0;
    this.#deletionsAfter = revision;
    this.#count = objects.length;
    this.#revision = revision;
    for (const { key, modRevision } of newest(objects)) this.#remember(key, modRevision, false);
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
      this.#remember(object.key, object.modRevision, type === "DELETED");
  }

  advance({ events, revision }: WatchBatch): void {
    for (const { type, object } of events) {
      if (type === "ADDED") this.#count++;
      else if (type === "DELETED") this.#count--;
      this.#remember(object.key, object.modRevision, type === "DELETED");
    }
    if (revision !== undefined) this.#revision = revision;
  }

  /**
   * Rejects with HISTORY_CHANGED if the store's state at the last delivered revision is not the known state,
   * REVISION_TOO_OLD if it can't be read any more. Resolves for a storage without `writtenAfter`.
   */
  async check(storage: Storage, signal: AbortSignal): Promise<void> {
    if (storage.writtenAfter === undefined) return;
    // Copied at one moment, as changes may come during the request.
    const revision = this.#revision;
    const count = this.#count;
    const expected = this.#current();
    if (await this.#hasNothingElse(storage, signal)) return;
    const found = await storage.writtenAfter({
      scope: this.#scope,
      revision,
      after: this.#after,
      limit: expected.size + 1,
      signal,
    });
    const isSame = found.total === count && isExactly(found.written, expected);
    if (!isSame) throw notThisState(revision, found, count);
  }

  /**
   * Whether the store's events around and after the last known change lead to the known state. False as well if that can't be
   * found out, or a comparison of the state costs less. Rejects as the storage fails.
   */
  async #hasNothingElse(storage: Storage, signal: AbortSignal): Promise<boolean> {
    const revision = this.#revision;
    const last = this.#revisions.at(this.#next - 1) ?? 0;
    // A listed state does not show what was deleted after its newest object.
    const isKnown = last > Math.max(1, this.#after) && last >= this.#deletionsAfter;
    const isCostly = revision - last > Math.max(fewRevisions, this.#count);
    if (this.#known === undefined || isCostly || !isKnown) return false;
    const { has, clock } = this.#known;
    // A watch would wait for what a restored store does not have yet.
    if ((await storage.currentRevision(signal)) < revision) return false;
    const source = { storage, scope: this.#scope, clock };
    // If the store has compacted what was before, the last change must do.
    for (const before of [fewRevisions, 0]) {
      const after = Math.max(1, this.#after, last - 1 - before);
      const expected = this.#since(after);
      const { past, failure } = await readPast(source, [after], revision, maxReadBytes, signal);
      if (past !== undefined) {
        const isAbsent = (key: string): boolean => revision === this.#revision && !has(key);
        return leadsTo(past.events, expected, isAbsent);
      }
      if (!hasReason(failure, "REVISION_TOO_OLD") || last !== this.#revisions.at(this.#next - 1))
        return false;
    }
    return false;
  }

  /** The recorded changes after a revision, by key: the last revision of each, 0 if it was deleted. */
  #since(after: number): Map<string, number> {
    const since = new Map<string, number>();
    const length = this.#keys.length;
    for (let i = 0; i < length; i++) {
      const at = (this.#next + i) % length;
      const revision = this.#revisions[at] ?? 0;
      if (revision > after)
        since.set(this.#keys[at] ?? "", this.#isDeletionAt[at] === true ? 0 : revision);
    }
    return since;
  }

  /** The recorded changes that were not deleted later, by key. */
  #current(): Map<string, number> {
    const current = new Map<string, number>();
    const length = this.#keys.length;
    for (let i = 0; i < length; i++) {
      const at = (this.#next + i) % length;
      const key = this.#keys[at] ?? "";
      const revision = this.#revisions[at] ?? 0;
      // Of a revision that is partly overwritten in the ring buffer, the other changes are unknown.
      if (revision <= this.#after || this.#isDeletionAt[at] === true) current.delete(key);
      else current.set(key, revision);
    }
    return current;
  }

  #remember(key: string, revision: number, isDeletion: boolean): void {
    const at = this.#next;
    this.#after = Math.max(this.#after, this.#revisions[at] ?? 0);
    this.#keys[at] = key;
    this.#revisions[at] = revision;
    this.#isDeletionAt[at] = isDeletion;
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

/** Whether all events lead to what is expected of each key. Other keys may have come and gone: `isAbsent` now. */
function leadsTo(
  events: readonly WatchEvent[],
  expected: ReadonlyMap<string, number>,
  isAbsent: (key: string) => boolean,
): boolean {
  const found = new Map<string, number>();
  for (const { type, object } of events) {
    found.set(object.key, type === "DELETED" ? 0 : object.modRevision);
  }
  for (const [key, at] of expected) if (found.get(key) !== at) return false;
  for (const [key, at] of found) {
    if (!expected.has(key) && (at !== 0 || !isAbsent(key))) return false;
  }
  return true;
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
