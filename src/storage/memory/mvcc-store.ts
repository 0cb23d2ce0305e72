import sortedBTree from "sorted-btree";
import { historyChanged, revisionTooOld, WatchFanoutError } from "../../base/errors.ts";
import { WatchEvent } from "../../model/event.ts";
import { compareKeys } from "../../model/key-order.ts";
import type { StoredObject } from "../../model/object.ts";
import { Slabs, smallestSlab } from "../../model/slabs.ts";
import type { ListRequest, ListResult, RevisionRequirement } from "../storage.ts";
import { KeyVersions, Tombstone } from "./key-versions.ts";
import { type KeyIndex, page } from "./list-page.ts";
import { stateBytes } from "./memory-estimates.ts";
import type { Operation } from "./operation.ts";
import { Transaction, TransactionLog } from "./transaction-log.ts";

// The package is CommonJS, whose default export Node finds one level further down.
const BTree = sortedBTree.default;

/** What the state and its history may hold at the most. */
export interface Bounds {
  readonly maxLogRevisions: number;
  /** What its events take (see `logBytes`). The newest revision is kept in any case. */
  readonly maxLogBytes: number;
  /** What the objects take that stand (see `stateBytes`). */
  readonly maxStateBytes: number;
}

/** The embedded store's content: what each key is and was, and what each revision changed. */
export class MvccStore {
  readonly log = new TransactionLog();
  readonly #bounds: Bounds;
  readonly #slabs = new Slabs(smallestSlab);
  readonly #keys: KeyIndex = new BTree<string, KeyVersions>(undefined, compareKeys);
  /** What all objects take as they stand now. */
  #stateBytes = 0;

  constructor(bounds: Bounds) {
    this.#bounds = bounds;
  }

  /** The object as it stands now. */
  get(key: string): StoredObject | undefined {
    return this.#keys.get(key)?.current;
  }

  /** The object as it stood at a revision that is kept. */
  getAt(key: string, revision: number): StoredObject | undefined {
    return this.#keys.get(key)?.at(revision);
  }

  /** One page of the objects as they stood at a revision that is kept. */
  page(request: ListRequest, revision: number): ListResult {
    return page(this.#keys, request, revision);
  }

  /** The revision to read at, or why there is none. */
  resolve(at: RevisionRequirement): number {
    const { newest, oldest } = this.log;
    if (at.match === "LINEARIZABLE" || at.match === "ANY") return newest;
    if (at.revision > newest) throw historyChanged(at.revision, newest);
    if (at.match === "NOT_OLDER_THAN") return newest;
    if (at.revision < oldest) throw revisionTooOld(at.revision, oldest);
    return at.revision;
  }

  /** Makes one revision of the operations and returns what they changed. Throws STORAGE_FULL. */
  commit(operations: readonly Operation[]): readonly WatchEvent[] {
    const revision = this.log.newest + 1;
    const events: WatchEvent[] = [];
    let taken = this.#stateBytes;
    for (const operation of operations) {
      const event = apply(operation, this.#keys.get(operation.key)?.current, revision, this.#slabs);
      if (event === undefined) continue;
      events.push(event);
      if (event.previous !== undefined) taken -= stateBytes(event.previous);
      if (event.type !== "DELETED") taken += stateBytes(event.object);
    }
    if (taken > this.#bounds.maxStateBytes) throw storageFull(this.#bounds.maxStateBytes);
    if (events.length === 0) return events;
    this.#stateBytes = taken;
    for (const event of events) this.#add(event);
    this.log.append(new Transaction(revision, events));
    this.#keepWithinBounds();
    return events;
  }

  #add(event: WatchEvent): void {
    let versions = this.#keys.get(event.object.key);
    if (versions === undefined) {
      versions = new KeyVersions();
      this.#keys.set(event.object.key, versions);
    }
    versions.add(event.type === "DELETED" ? new Tombstone(event.revision) : event.object);
  }

  #keepWithinBounds(): void {
    const log = this.log;
    while (
      log.length > this.#bounds.maxLogRevisions ||
      (log.bytes > this.#bounds.maxLogBytes && log.length > 1)
    ) {
      this.#compactOldest();
    }
  }

  #compactOldest(): void {
    const transaction = this.log.shift();
    if (transaction === undefined) return;
    // Only the keys that it changed have a version that this makes unreachable.
    for (const { object } of transaction.events) {
      if (this.#keys.get(object.key)?.compact(transaction.revision)) this.#keys.delete(object.key);
    }
  }

  /** Forgets what was before `revision`, which is not above the newest. */
  compact(revision: number): void {
    while (this.log.first <= revision) this.#compactOldest();
    this.log.forgetBefore(revision);
  }

  /** Frees what is held. Of no use afterwards. */
  clear(): void {
    this.#keys.clear();
    while (this.log.shift() !== undefined);
  }
}

/** What the operation changes at `revision` where the object stands as `previous`, if anything. */
function apply(
  operation: Operation,
  previous: StoredObject | undefined,
  revision: number,
  slabs: Slabs,
): WatchEvent | undefined {
  if (operation.type === "delete") {
    if (previous === undefined) return undefined;
    return new WatchEvent("DELETED", previous.deletedAt(revision), previous);
  }
  const { key, value } = operation;
  const object = slabs.store(
    key,
    Buffer.byteLength(key),
    value,
    0,
    value.byteLength,
    previous?.createRevision ?? revision,
    revision,
    (previous?.version ?? 0) + 1,
    operation.lease ?? 0n,
  );
  return new WatchEvent(previous === undefined ? "ADDED" : "MODIFIED", object, previous);
}

function storageFull(maxStateBytes: number): WatchFanoutError {
  return new WatchFanoutError(
    "STORAGE_FULL",
    `The embedded store holds all the ${maxStateBytes} bytes it may. Delete objects, then try again.`,
  );
}
