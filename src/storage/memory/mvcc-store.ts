import { invalidRequest, WatchFanoutError } from "../../base/errors.ts";
import { WatchEvent } from "../../model/event.ts";
import type { StoredObject } from "../../model/object.ts";
import { Slabs, smallestSlab } from "../../model/slabs.ts";
import { checkKey } from "../checks.ts";
import { Keyspace } from "./keyspace.ts";
import { stateBytes } from "./memory-estimates.ts";
import { type KeyEvents, Transaction, TransactionLog } from "./transaction-log.ts";

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
  addKeys(resource: string): Keyspace {
    const keys = new Keyspace(resource);
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
