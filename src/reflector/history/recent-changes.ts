import { WatchFanoutError } from "../../base/errors.ts";
import type { WatchBatch } from "../../model/event.ts";
import type { StoredObject } from "../../model/object.ts";
import type { Scope, Storage, WrittenObjects } from "../../storage/storage.ts";

/** Maximum number of recorded changes. */
const capacity = 64;

/**
 * The newest changes of a history and its number of objects, which identify a state.
 *
 * A restored store that has grown past its old revision may have the same last change: if a resource was not written
 * since the backup, both histories have that. But then every difference was written after it, or was deleted. So the
 * store is asked, at the last delivered revision, what was written after the oldest recorded change. It must be
 * exactly the recorded changes, and the number of objects must be the same.
 */
export class RecentChanges {
  readonly #scope: Scope;
  /** A ring buffer of changes in the order of delivery, without values. */
  readonly #keys: string[] = [];
  readonly #revisions: number[] = [];
  readonly #isDeletionAt: boolean[] = [];
  /** The index of the next change in the ring buffer. */
  #next = 0;
  /** Every change after this revision is recorded. */
  #after = 0;
  /** The revision of the known state. */
  #revision = 0;
  #count = 0;

  constructor(scope: Scope) {
    this.#scope = scope;
  }

  /** Starts with a listed state. */
  reset(objects: readonly StoredObject[], revision: number): void {
    this.#keys.length = 0;
    this.#revisions.length = 0;
    this.#isDeletionAt.length = 0;
    this.#next = 0;
    this.#after = 0;
    this.#count = objects.length;
    this.#revision = revision;
    for (const { key, modRevision } of newest(objects)) this.#remember(key, modRevision, false);
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
