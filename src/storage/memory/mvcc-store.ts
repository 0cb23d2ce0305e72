import { WatchFanoutError } from "../../base/errors.ts";
import type { WatchEvent } from "../../model/event.ts";
import type { StoredObject } from "../../model/object.ts";
import { Keyspace } from "./keyspace.ts";
import { stateBytes } from "./memory-estimates.ts";
import { Transaction, TransactionLog } from "./transaction-log.ts";

/** Bounds of the state and its history. */
export interface Bounds {
  readonly maxLogRevisions: number;
  /** Maximum memory of its events (see `logBytes`). The newest revision is always in memory. */
  readonly maxLogBytes: number;
  /** Maximum memory of the current objects (see `stateBytes`). */
  readonly maxStateBytes: number;
}

/** One step of a transaction of one resource. */
export type Operation =
  | {
      readonly type: "put";
      readonly key: string;
      readonly value: Uint8Array;
      /** A lease that the store has granted; undefined or 0n: no lease. */
      readonly lease?: bigint | undefined;
    }
  /** Has no effect on an absent key. */
  | { readonly type: "delete"; readonly key: string };

/** The embedded store's data in memory: the versions of each key, and the changes of each revision. */
export class MvccStore {
  readonly log = new TransactionLog();
  readonly keys = new Keyspace();
  readonly #bounds: Bounds;
  /** Memory of all current objects, in bytes. */
  #stateBytes = 0;

  constructor(bounds: Bounds) {
    this.#bounds = bounds;
  }

  /** Memory of the current objects, in bytes. */
  get stateBytes(): number {
    return this.#stateBytes;
  }

  /** Begins with these current objects, in key order, which are kept already. */
  load(objects: readonly StoredObject[]): void {
    this.keys.load(objects);
    for (const object of objects) this.#stateBytes += stateBytes(object);
  }

  /** Applies the changes of the revision after the newest. Throws STORAGE_FULL. */
  apply(events: readonly WatchEvent[]): Transaction {
    const added = addedBytes(events);
    const { maxStateBytes } = this.#bounds;
    if (added > 0 && this.#stateBytes + added > maxStateBytes) throw storageFull(maxStateBytes);
    this.#stateBytes += added;
    this.keys.add(events);
    const transaction = new Transaction(this.log.newest + 1, events);
    this.log.append(transaction);
    return transaction;
  }

  /** Takes back the changes of the newest revision, which must not be kept. Returns them. */
  undo(): readonly WatchEvent[] {
    const { events = [] } = this.log.pop() ?? {};
    this.keys.undo(events);
    this.#stateBytes -= addedBytes(events);
    return events;
  }

  /** Everything up to this revision is kept. Drops what is above the bounds. */
  keep(revision: number): void {
    const { log } = this;
    log.keep(revision);
    const { maxLogRevisions, maxLogBytes } = this.#bounds;
    while (log.length > maxLogRevisions || (log.bytes > maxLogBytes && log.length > 1)) {
      if (log.first > log.kept) return;
      this.#compactOldest();
    }
  }

  #compactOldest(): void {
    const transaction = this.log.shift();
    // Only versions of the keys that it changed become unreachable.
    if (transaction !== undefined) this.keys.compact(transaction.events, transaction.revision);
  }

  /** Drops the history before `revision`, which is at most the newest one that is kept. */
  compact(revision: number): void {
    while (this.log.first <= revision) this.#compactOldest();
    this.log.forgetBefore(revision);
  }

  /** Frees all memory. The store can't be used afterwards. */
  clear(): void {
    this.keys.clear();
    while (this.log.shift() !== undefined);
  }
}

/** By how much the changes increase the memory of all current objects, in bytes. */
function addedBytes(events: readonly WatchEvent[]): number {
  let bytes = 0;
  for (const { type, object, previous } of events) {
    if (previous !== undefined) bytes -= stateBytes(previous);
    if (type !== "DELETED") bytes += stateBytes(object);
  }
  return bytes;
}

function storageFull(maxStateBytes: number): WatchFanoutError {
  return new WatchFanoutError(
    "STORAGE_FULL",
    `The embedded store is at its limit of ${maxStateBytes} bytes. Delete objects, then try again.`,
  );
}
