import { WatchFanoutError } from "../../base/errors.ts";
import type { WatchBatch } from "../../model/event.ts";
import type { StoredObject } from "../../model/object.ts";
import type { Scope, Storage, WrittenObjects } from "../../storage/storage.ts";

/** How many of the newest changes are remembered at the most. */
const capacity = 64;

/**
 * The newest changes of a history, and how many objects there are, by which a state is told from one of another
 * history.
 *
 * A store that was put back and has grown past where it was may have the same last change: where a resource was idle
 * since the backup, that stands in both histories. But then whatever else is different was written after it, or is
 * gone. So the store is asked, at the revision that has been reached, what was written after the oldest change that is
 * remembered: that has to be what is remembered, and as many objects have to be there.
 */
export class RecentChanges {
  readonly #scope: Scope;
  /** A ring of changes in the order in which they came, without their values. */
  readonly #keys: string[] = [];
  readonly #revisions: number[] = [];
  readonly #areDeletions: boolean[] = [];
  /** Where in the ring the next change goes. */
  #next = 0;
  /** Every change after this revision is remembered. */
  #after = 0;
  /** The state is that of this revision. */
  #revision = 0;
  #count = 0;

  constructor(scope: Scope) {
    this.#scope = scope;
  }

  /** Begins with a listed state. */
  reset(objects: readonly StoredObject[], revision: number): void {
    this.#keys.length = 0;
    this.#revisions.length = 0;
    this.#areDeletions.length = 0;
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
   * Rejects with HISTORY_CHANGED if the store's state at the revision that has been reached is not the one that is
   * known, REVISION_TOO_OLD if it can't be read any more. Resolves for a storage of which that need not be asked.
   */
  async check(storage: Storage, signal: AbortSignal): Promise<void> {
    if (storage.writtenAfter === undefined) return;
    // All of the same moment: others may come while the store is asked.
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

  /** What is remembered and was not deleted later, by key. */
  #current(): Map<string, number> {
    const current = new Map<string, number>();
    const length = this.#keys.length;
    for (let i = 0; i < length; i++) {
      const at = (this.#next + i) % length;
      const key = this.#keys[at] ?? "";
      const revision = this.#revisions[at] ?? 0;
      // Of a revision that others have left the ring of, it is not known what else it wrote.
      if (revision <= this.#after || this.#areDeletions[at] === true) current.delete(key);
      else current.set(key, revision);
    }
    return current;
  }

  #remember(key: string, revision: number, isDeletion: boolean): void {
    const at = this.#next;
    this.#after = Math.max(this.#after, this.#revisions[at] ?? 0);
    this.#keys[at] = key;
    this.#revisions[at] = revision;
    this.#areDeletions[at] = isDeletion;
    this.#next = (at + 1) % capacity;
  }
}

/** Those that were written last, in the order in which they were: one more than are remembered. */
function newest(objects: readonly StoredObject[]): readonly StoredObject[] {
  const most = capacity + 1;
  const byRevision = (one: StoredObject, other: StoredObject): number =>
    one.modRevision - other.modRevision;
  let chosen: StoredObject[] = [];
  let oldest = 0;
  for (const object of objects) {
    if (object.modRevision < oldest) continue;
    chosen.push(object);
    // Sorted only now and then, so that it costs little also where each is newer than all before.
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
    `What the store had at revision ${revision}, ${found.total} objects${such}, is not the state of ${count} ` +
      "objects that is known: its history has become another one. List anew and go on from there.",
    { metadata: { history_id: "" } },
  );
}
