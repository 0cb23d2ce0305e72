import sortedBTree from "sorted-btree";
import {
  historyChanged,
  invalidRequest,
  revisionTooOld,
  WatchFanoutError,
} from "../../base/errors.ts";
import { Fifo } from "../../base/fifo.ts";
import { WatchEvent } from "../../model/event.ts";
import { compareKeys } from "../../model/key-order.ts";
import { estimatedBytes, StoredObject } from "../../model/object.ts";
import { Slabs, smallestSlab } from "../../model/slabs.ts";
import { checkKey } from "../checks.ts";
import { HistoryPage } from "../history-page.ts";
import { scopeOfList } from "../key-scopes.ts";
import {
  type HistoryRequest,
  type HistoryResult,
  includesKey,
  type ListRequest,
  type ListResult,
  type RevisionRequirement,
} from "../storage.ts";
import { stateBytes } from "./memory-estimates.ts";
import { type KeyEvents, Transaction, TransactionLog } from "./transaction-log.ts";

// The package is CommonJS, whose default export is nested one level deeper in Node.js.
const BTree = sortedBTree.default;

/** Bounds of the state and its history. */
export interface Bounds {
  readonly maxLogRevisions: number;
  /** Maximum memory of its events (see `logBytes`). The newest revision is always kept. */
  readonly maxLogBytes: number;
  /** Maximum memory of the current objects (see `stateBytes`). */
  readonly maxStateBytes: number;
}

/** The changes of one revision to a resource's keys. */
export interface KeyChanges {
  readonly keys: Keyspace;
  readonly operations: readonly Operation[];
}

/** The embedded store's data: the versions of each key of each resource, and the changes of each revision. */
export class MvccStore {
  readonly log = new TransactionLog();
  readonly #bounds: Bounds;
  readonly #slabs = new Slabs(smallestSlab);
  readonly #keyspaces: Keyspace[] = [];
  /** Memory of all current objects, in bytes. */
  #stateBytes = 0;

  constructor(bounds: Bounds) {
    this.#bounds = bounds;
  }

  /** Adds the keys of a resource. */
  addKeys(): Keyspace {
    const keys = new Keyspace(this.log);
    this.#keyspaces.push(keys);
    return keys;
  }

  /** Executes the operations as one revision and returns its changes. Throws STORAGE_FULL. */
  commit(changes: readonly KeyChanges[]): readonly KeyEvents[] {
    const revision = this.log.newest + 1;
    const parts: KeyEvents[] = [];
    let taken = this.#stateBytes;
    for (const { keys, operations } of changes) {
      const events: WatchEvent[] = [];
      for (const operation of operations) {
        const event = apply(operation, keys.get(operation.key), revision, this.#slabs);
        if (event === undefined) continue;
        events.push(event);
        if (event.previous !== undefined) taken -= stateBytes(event.previous);
        if (event.type !== "DELETED") taken += stateBytes(event.object);
      }
      if (events.length > 0) parts.push({ keys, events });
    }
    if (taken > this.#bounds.maxStateBytes) throw storageFull(this.#bounds.maxStateBytes);
    if (parts.length === 0) return parts;
    this.#stateBytes = taken;
    for (const { keys, events } of parts) keys.add(events);
    this.log.append(new Transaction(revision, parts));
    this.#keepWithinBounds();
    return parts;
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
    // Only versions of the keys that it changed become unreachable.
    for (const { keys, events } of transaction.parts) keys.compact(events, transaction.revision);
  }

  /** Compacts the history before `revision`, which is at most the newest one. */
  compact(revision: number): void {
    while (this.log.first <= revision) this.#compactOldest();
    this.log.forgetBefore(revision);
  }

  /** Frees all memory. The store can't be used afterwards. */
  clear(): void {
    for (const keys of this.#keyspaces) keys.clear();
    while (this.log.shift() !== undefined);
  }
}

/** The keys of one resource, each with its versions. */
export class Keyspace {
  readonly #log: TransactionLog;
  readonly #keys: KeyIndex = new BTree<string, KeyVersions>(undefined, compareKeys);

  constructor(log: TransactionLog) {
    this.#log = log;
  }

  /** The current object. */
  get(key: string): StoredObject | undefined {
    return this.#keys.get(key)?.current;
  }

  /** The object at a kept revision. */
  getAt(key: string, revision: number): StoredObject | undefined {
    return this.#keys.get(key)?.at(revision);
  }

  /** The keys that exist at a kept revision and begin with a prefix. */
  namesAt(prefix: string, revision: number): string[] {
    const at = { match: "EXACT", revision } as const;
    return [...range(this.#keys, { prefix, limit: 0, at }, revision)].map(({ key }) => key);
  }

  /** One page of the objects at a kept revision. */
  page(request: ListRequest, revision: number): ListResult {
    return page(this.#keys, request, revision);
  }

  /** One page of the history of a key, up to a kept revision. */
  history(request: HistoryRequest, revision: number): HistoryResult {
    const page = new HistoryPage(request);
    const next = this.#keys.get(request.key)?.addTo(page, revision);
    return next === undefined
      ? page.finished(revision, Math.max(1, this.#log.oldest))
      : page.continued(revision, next);
  }

  /** Returns the revision to read at; throws if it can't be read. */
  resolve(at: RevisionRequirement): number {
    const { newest, oldest } = this.#log;
    if (at.match === "LINEARIZABLE" || at.match === "ANY") return newest;
    if (at.revision > newest) throw historyChanged(at.revision, newest);
    if (at.match === "NOT_OLDER_THAN") return newest;
    if (at.revision < oldest) throw revisionTooOld(at.revision, oldest);
    return at.revision;
  }

  /** Adds the versions of one revision. */
  add(events: readonly WatchEvent[]): void {
    for (const event of events) {
      let versions = this.#keys.get(event.object.key);
      if (versions === undefined) {
        versions = new KeyVersions();
        this.#keys.set(event.object.key, versions);
      }
      versions.add(event.type === "DELETED" ? new Tombstone(event.revision) : event.object);
    }
  }

  /** Drops the versions that became unreachable when the changes of this revision were dropped. */
  compact(events: readonly WatchEvent[], revision: number): void {
    for (const { object } of events) {
      if (this.#keys.get(object.key)?.compact(revision)) this.#keys.delete(object.key);
    }
  }

  clear(): void {
    this.#keys.clear();
  }
}

/** The change that the operation makes at `revision` to the object `previous`; undefined if it makes none. */
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
    `The embedded store is at its limit of ${maxStateBytes} bytes. Delete objects, then try again.`,
  );
}

/** All keys that exist or existed in the kept history, in key order. */
type KeyIndex = sortedBTree.default<string, KeyVersions>;

/** Maximum number of objects after a page that are counted one by one; above it their number is unknown. */
const maxCounted = 10_000;

/**
 * Returns one page of a list at `revision`. The number of remaining objects is unknown if counting them for
 * each page would block the event loop.
 */
function page(keys: KeyIndex, request: ListRequest, revision: number): ListResult {
  const { limit, maxBytes = 0 } = request;
  const items: StoredObject[] = [];
  let bytes = 0;
  let isFull = false;
  let remaining = 0;
  for (const kept of range(keys, request, revision)) {
    if (isFull) {
      remaining++;
      if (remaining > maxCounted) break;
      continue;
    }
    const object = kept.withoutAttributes();
    const size = estimatedBytes(object);
    if (items.length > 0 && maxBytes > 0 && bytes + size > maxBytes) {
      isFull = true;
      remaining++;
      continue;
    }
    items.push(object);
    bytes += size;
    isFull = items.length === limit;
  }
  return {
    revision,
    items,
    next: remaining === 0 ? undefined : items.at(-1)?.key,
    remaining: remaining > maxCounted ? undefined : remaining,
  };
}

/** The objects at `revision` whose keys the request selects, in key order. */
function* range(
  keys: KeyIndex,
  request: ListRequest,
  revision: number,
): Generator<StoredObject, void, void> {
  const { startAfter } = request;
  const scope = scopeOfList(request);
  const first = "prefix" in scope ? scope.prefix : scope.from;
  const continues = startAfter !== undefined && compareKeys(startAfter, first) >= 0;
  for (const [key, versions] of keys.entries(continues ? startAfter : first)) {
    if (continues && key === startAfter) continue;
    if (!includesKey(scope, key)) return;
    const object = versions.at(revision);
    if (object !== undefined) yield object;
  }
}

/** Marks the deletion of a key at this revision. */
export class Tombstone {
  readonly modRevision: number;

  constructor(modRevision: number) {
    this.modRevision = modRevision;
  }
}

/** The versions of one key, from the oldest kept revision on. */
export class KeyVersions {
  readonly #versions = new Fifo<StoredObject | Tombstone>();

  /** `version` must be newer than all others. */
  add(version: StoredObject | Tombstone): void {
    this.#versions.push(version);
  }

  /** The current object; undefined if the key does not exist. */
  get current(): StoredObject | undefined {
    return objectOf(this.#versions.at(this.#versions.length - 1));
  }

  /** The object at `revision`; undefined if the key did not exist. */
  at(revision: number): StoredObject | undefined {
    return objectOf(this.#versions.at(this.#countUpTo(revision) - 1));
  }

  /** Adds the changes up to `revision` to the page. Returns the revision of the first that does not fit; undefined: all do. */
  addTo(page: HistoryPage, revision: number): number | undefined {
    for (let i = this.#countUpTo(revision) - 1; i >= 0; i--) {
      const version = this.#versions.at(i);
      const object = objectOf(version);
      const deleted = objectOf(this.#versions.at(i - 1));
      if (version === undefined || (object ?? deleted) === undefined) return undefined;
      const fits =
        object === undefined
          ? page.addDeletion((deleted as StoredObject).withoutAttributes(), version.modRevision)
          : page.addPut(object.withoutAttributes());
      if (!fits) return version.modRevision;
    }
    return undefined;
  }

  /** Number of versions up to `revision`. */
  #countUpTo(revision: number): number {
    let low = 0;
    let high = this.#versions.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#versions.at(middle)?.modRevision ?? 0) <= revision) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Drops the versions that no read at `revision` or later can see. Returns whether no version is left. */
  compact(revision: number): boolean {
    while ((this.#versions.at(1)?.modRevision ?? Infinity) <= revision) this.#versions.shift();
    const oldest = this.#versions.at(0);
    if (oldest instanceof Tombstone && oldest.modRevision <= revision) this.#versions.shift();
    return this.#versions.length === 0;
  }
}

function objectOf(version: StoredObject | Tombstone | undefined): StoredObject | undefined {
  return version instanceof StoredObject ? version : undefined;
}

/** One step of a transaction. */
export type Operation =
  | {
      readonly type: "put";
      readonly key: string;
      /** Owned by the store from now on: it must not be changed. */
      readonly value: Uint8Array;
      /** A lease that the store has granted; undefined or 0n: no lease. */
      readonly lease?: bigint | undefined;
    }
  /** Has no effect on an absent key. */
  | { readonly type: "delete"; readonly key: string };

/** Maximum size of one request, in bytes: etcd's default for `--max-request-bytes`, 1.5 MiB. */
const maxRequestBytes = 1.5 * 1024 * 1024;

/** Throws INVALID_REQUEST or VALUE_TOO_LARGE if the operations of one transaction of a resource are invalid. */
export function checkOperations(operations: readonly Operation[]): void {
  const keys = new Set<string>();
  for (const { key } of operations) {
    checkKey(key);
    if (keys.has(key)) {
      const name = JSON.stringify(key);
      throw invalidRequest("key", `${name} comes twice in one transaction: change it once.`);
    }
    keys.add(key);
  }
  checkSize(operations);
}

/** Throws VALUE_TOO_LARGE if the operations of one transaction are too large together. */
export function checkSize(operations: readonly Operation[]): void {
  let bytes = 0;
  for (const operation of operations) {
    bytes += operation.key.length;
    if (operation.type === "put") bytes += operation.value.byteLength;
  }
  if (bytes <= maxRequestBytes) return;
  throw new WatchFanoutError(
    "VALUE_TOO_LARGE",
    `A write of ${bytes} bytes is above the limit of ${maxRequestBytes}: store less under one key.`,
    { field: "value" },
  );
}
