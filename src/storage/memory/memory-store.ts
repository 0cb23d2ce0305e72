import { randomUUID } from "node:crypto";
import type { Clock, Timer } from "../../base/clock.ts";
import {
  historyChanged,
  otherHistory,
  upstreamUnavailable,
  WatchFanoutError,
} from "../../base/errors.ts";
import type { StoredObject } from "../../model/object.ts";
import { checkInteger } from "../checks.ts";
import type { WatchRequest } from "../storage.ts";
import type {
  CompareResult,
  DeletePrefixRequest,
  DeletePrefixResult,
  ObjectName,
  OperationResult,
  Store,
  Operation as StoreOperation,
  TransactRequest,
  TransactResult,
} from "../store.ts";
import {
  changedTwice,
  checkDeletePrefix,
  checkTransaction,
  defaultMaxDeletedObjects,
  FoundObjects,
  holds,
  otherStore,
  resultCompacted,
  tooManyToDelete,
} from "../transaction-checks.ts";
import type { Keyspace } from "./keyspace.ts";
import { MemoryLeases } from "./leases.ts";
import { defaultStateBytes } from "./memory-estimates.ts";
import { MemoryWatch } from "./memory-watch.ts";
import {
  type Bounds,
  checkSize,
  type KeyChanges,
  MvccStore,
  type Operation,
} from "./mvcc-store.ts";
import { type Executed, RememberedRequests } from "./remembered-requests.ts";
import type { KeyEvents, TransactionLog } from "./transaction-log.ts";

/** Default maximum memory of the history, in bytes. */
const defaultLogBytes = 64 * 1024 ** 2;

export interface MemoryStoreOptions {
  readonly clock: Clock;
  /** Maximum number of revisions in the history, at least 1. Default 100,000. */
  readonly maxLogRevisions?: number | undefined;
  /**
   * Maximum memory of the history in bytes; the newest revision is always kept. Default 64 MiB, or a quarter of
   * `maxStateBytes` if that is less.
   */
  readonly maxLogBytes?: number | undefined;
  /**
   * Maximum memory of the current objects in bytes, with their overhead; a write that would exceed it fails with
   * STORAGE_FULL. Default: a quarter of the heap, at most 2 GiB, etcd's default for `--quota-backend-bytes`.
   */
  readonly maxStateBytes?: number | undefined;
  /** Maximum number of objects that one DeletePrefix deletes. Default 10,000. */
  readonly maxDeletedObjects?: number | undefined;
}

/**
 * The embedded store: in memory, lost when the process ends, with etcd's semantics, for any number of resources. A transaction
 * makes one revision, an empty store is at revision 1, and every revision can be read and watched from until it is compacted.
 * The oldest revisions are compacted automatically when the history reaches its bounds. Each instance has a new history id.
 *
 * Writes take effect at once, all or nothing, before the call returns. Values are kept without a copy: the caller must
 * not change them afterwards. Each resource is a `MemoryStorage`.
 */
export class MemoryStore implements Store {
  readonly #clock: Clock;
  readonly #store: MvccStore;
  readonly #keys = new Map<string, Keyspace>();
  /** Each with what is called after its end. */
  readonly #watches = new Map<MemoryWatch, () => void>();
  readonly leases: MemoryLeases;
  readonly #requests: RememberedRequests;
  readonly #maxDeletedObjects: number;
  #historyId: string = randomUUID();
  #notification: Timer | undefined;
  #isClosed = false;

  /** Throws INVALID_REQUEST for a bound that is not a positive integer. */
  constructor(options: MemoryStoreOptions) {
    this.#clock = options.clock;
    const maxStateBytes = options.maxStateBytes ?? defaultStateBytes();
    const mostHistory = Math.max(1, Math.min(defaultLogBytes, Math.floor(maxStateBytes / 4)));
    const bounds: Bounds = {
      maxStateBytes,
      maxLogRevisions: options.maxLogRevisions ?? 100_000,
      maxLogBytes: options.maxLogBytes ?? mostHistory,
    };
    for (const [name, bound] of Object.entries(bounds)) checkInteger(name, bound, 1);
    this.#maxDeletedObjects = options.maxDeletedObjects ?? defaultMaxDeletedObjects;
    this.#store = new MvccStore(bounds);
    this.#requests = new RememberedRequests(options.clock);
    this.leases = new MemoryLeases(options.clock, (attached) => {
      this.commit(
        attached.map(({ keys, names }) => ({
          keys,
          operations: names.map((key) => ({ type: "delete", key })),
        })),
      );
    });
  }

  has(resource: string): boolean {
    return this.#keys.has(resource);
  }

  async transact(request: TransactRequest): Promise<TransactResult> {
    const { compares, operations, validateOnly = false, returnCurrent = false } = request;
    this.enter(request.signal);
    checkTransaction(request);
    checkDistinct(operations);
    checkSize(operations);
    for (const { resource } of [...compares, ...operations]) this.#known(resource);
    this.checkHistory(request.historyId);
    const now = this.log.newest;
    const none = { historyId: this.#historyId, results: [], compares: [], revisionBefore: now };
    const isRemembered = !validateOnly && operations.length > 0;
    const executed = isRemembered ? this.#requests.find(request) : undefined;
    if (executed !== undefined) {
      const { revision } = executed;
      return { ...none, succeeded: true, revision, results: this.#resultsOf(request, executed) };
    }
    const found = compares.map((compare): CompareResult => {
      const object = this.#current(compare);
      return { held: holds(compare, object), object };
    });
    if (!found.every(({ held }) => held)) {
      const shown = returnCurrent ? found : [];
      const sizes = new FoundObjects();
      for (const { object } of shown) sizes.add(object);
      return { ...none, succeeded: false, revision: now, compares: shown };
    }
    if (validateOnly) return { ...none, succeeded: true, revision: now };
    // The history may be so short that this is compacted afterwards.
    const before = operations.map((operation) => this.#current(operation));
    this.#execute(operations);
    const revision = this.log.newest;
    if (isRemembered) this.#requests.add(request, { revision, before: now });
    const sizes = new FoundObjects();
    const results = operations.map((operation, i) => ({
      object: operation.type === "put" ? this.#current(operation) : undefined,
      ...(request.returnPrevious === true ? shownPrevious(before[i], sizes) : noPrevious),
    }));
    return { ...none, succeeded: true, revision, results };
  }

  async deletePrefix(request: DeletePrefixRequest): Promise<DeletePrefixResult> {
    this.enter(request.signal);
    checkDeletePrefix(request);
    const keys = this.#known(request.resource);
    this.checkHistory(request.historyId);
    const now = this.log.newest;
    const done = { historyId: this.#historyId, revisionBefore: now };
    const executed = request.validateOnly === true ? undefined : this.#requests.find(request);
    if (executed !== undefined) {
      const { revision, before } = executed;
      if (before < this.log.oldest) throw resultCompacted(revision);
      const deleted = revision === before ? 0 : keys.namesAt(request.prefix, before).length;
      return { ...done, revision, deleted };
    }
    const names = keys.namesAt(request.prefix, now);
    const deleted = names.length;
    if (request.validateOnly === true) return { ...done, revision: now, deleted };
    if (deleted > this.#maxDeletedObjects)
      throw tooManyToDelete(request, deleted, this.#maxDeletedObjects);
    this.commit([{ keys, operations: names.map((key) => ({ type: "delete", key })) }]);
    const revision = this.log.newest;
    this.#requests.add(request, { revision, before: now });
    return { ...done, revision, deleted };
  }

  /** The keys of a resource, which becomes one of the store. */
  keysOf(resource: string): Keyspace {
    let keys = this.#keys.get(resource);
    if (keys === undefined) {
      keys = this.#store.addKeys(resource);
      this.#keys.set(resource, keys);
    }
    return keys;
  }

  /** The changes of all resources. */
  get log(): TransactionLog {
    return this.#store.log;
  }

  get historyId(): string {
    return this.#historyId;
  }

  /** Gives the history a new id if it still has the id `known`. Returns the id that it has then. */
  renewHistory(known: string): string {
    if (this.#historyId === known) this.#historyId = randomUUID();
    return this.#historyId;
  }

  /** Throws HISTORY_CHANGED if `known` is not empty and is not the history. */
  checkHistory(known: string | undefined): void {
    if (known === undefined || known === "" || known === this.#historyId) return;
    throw otherHistory(known, this.#historyId);
  }

  /** Throws if the signal is aborted or the store is closed. */
  enter(signal: AbortSignal | undefined): void {
    signal?.throwIfAborted();
    if (this.#isClosed) throw closed();
  }

  /**
   * Watches keys of a resource. Watches are notified of writes from an immediate, not from within the write. So an exception of
   * a listener can't fail a write that has been applied, a listener may write, and a burst of writes is read as one batch.
   */
  watch(request: WatchRequest, keys: Keyspace, onEnd: () => void): MemoryWatch {
    const watch = new MemoryWatch(request, this.log, keys, () => this.#notifySoon());
    this.#watches.set(watch, onEnd);
    // Notify the reader, as the history may have events for it already.
    this.#notifySoon();
    return watch;
  }

  /** Performs `write` with new leases of these lengths, which end if it throws. */
  underNewLeases<T>(lengths: readonly number[], write: (leases: readonly bigint[]) => T): T {
    const leases = lengths.map((ttlSeconds) => this.leases.add(ttlSeconds, false));
    try {
      return write(leases);
    } catch (error) {
      for (const lease of leases) this.leases.drop(lease);
      throw error;
    }
  }

  /** Executes the operations as one revision, and updates leases and watches. Returns what has changed. */
  commit(changes: readonly KeyChanges[]): readonly KeyEvents[] {
    for (const { operations } of changes) {
      for (const operation of operations) {
        const lease = operation.type === "put" ? (operation.lease ?? 0n) : 0n;
        if (lease !== 0n && !this.leases.has(lease)) throw leaseNotFound(lease);
      }
    }
    const parts = this.#store.commit(changes);
    this.leases.follow(parts);
    if (parts.length > 0 && this.#watches.size > 0) this.#notifySoon();
    return parts;
  }

  /** Compacts the history before `revision`. Throws HISTORY_CHANGED for a future revision. */
  compact(revision: number): void {
    if (revision > this.log.newest) throw historyChanged(revision, this.log.newest);
    this.#store.compact(revision);
  }

  /** Every stream ends, and every later call rejects, with UPSTREAM_UNAVAILABLE. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    for (const watch of this.#watches.keys()) watch.end(closed());
    this.leases.close();
    this.#requests.clear();
    this.#store.clear();
  }

  #current({ resource, key }: ObjectName): StoredObject | undefined {
    return this.#known(resource).get(key)?.withoutAttributes();
  }

  #execute(operations: readonly StoreOperation[]): void {
    const lengths = operations.flatMap((each) =>
      each.type === "put" && each.ttlSeconds !== undefined ? [each.ttlSeconds] : [],
    );
    const distinct = [...new Set(lengths)];
    this.underNewLeases(distinct, (granted) => {
      const byKeys = new Map<Keyspace, Operation[]>();
      for (const operation of operations) {
        const keys = this.#known(operation.resource);
        const changes = byKeys.get(keys) ?? [];
        byKeys.set(keys, changes);
        if (operation.type === "delete") {
          changes.push(operation);
          continue;
        }
        const { key, value, lease, ttlSeconds } = operation;
        const attached = ttlSeconds === undefined ? lease : granted[distinct.indexOf(ttlSeconds)];
        changes.push({ type: "put", key, value, lease: attached });
      }
      this.commit([...byKeys].map(([keys, changes]) => ({ keys, operations: changes })));
    });
  }

  /** The results of a transaction that was executed before. */
  #resultsOf(
    { operations, returnPrevious = false }: TransactRequest,
    { revision, before }: Executed,
  ): readonly OperationResult[] {
    if ((returnPrevious ? before : revision) < this.log.oldest) throw resultCompacted(revision);
    const sizes = new FoundObjects();
    return operations.map(({ type, resource, key }) => {
      const keys = this.#known(resource);
      const at = (kept: number) => keys.getAt(key, kept)?.withoutAttributes();
      return {
        object: type === "put" ? at(revision) : undefined,
        ...(returnPrevious ? shownPrevious(at(before), sizes) : noPrevious),
      };
    });
  }

  /** Throws INVALID_REQUEST for a resource that is not of this store. */
  #known(resource: string): Keyspace {
    const keys = this.#keys.get(resource);
    if (keys === undefined) throw otherStore(resource, this.#keys.keys());
    return keys;
  }

  #notifySoon(): void {
    this.#notification ??= this.#clock.setImmediate(() => {
      this.#notification = undefined;
      this.#notify();
    });
  }

  /** Notifies every watch that has something new, even if the listener of another one throws. */
  #notify(): void {
    const failures: unknown[] = [];
    for (const [watch, onEnd] of this.#watches) {
      try {
        watch.notify();
      } catch (error) {
        failures.push(error);
      }
      if (watch.ended === undefined) continue;
      this.#watches.delete(watch);
      onEnd();
    }
    if (failures.length > 0) throw new AggregateError(failures, "A watch's listener threw.");
  }
}

const noPrevious = { previous: undefined };

/** The object before a transaction, unless all of them are too large for one result. */
function shownPrevious(
  previous: StoredObject | undefined,
  sizes: FoundObjects,
): Pick<OperationResult, "previous" | "previousLeftOut"> {
  return sizes.fit(previous) ? { previous } : { previous: undefined, previousLeftOut: true };
}

/** Throws INVALID_REQUEST if two operations change the same key. */
function checkDistinct(operations: readonly StoreOperation[]): void {
  const changed = new Map<string, StoreOperation>();
  for (const operation of operations) {
    const name = JSON.stringify([operation.resource, operation.key]);
    const other = changed.get(name);
    if (other !== undefined) throw changedTwice(operation, other);
    changed.set(name, operation);
  }
}

/** The error of a store that is closed. */
export function closed(): WatchFanoutError {
  return upstreamUnavailable("The embedded store is closed.");
}

function leaseNotFound(lease: bigint): WatchFanoutError {
  return new WatchFanoutError(
    "LEASE_NOT_FOUND",
    `Nothing was written: there is no lease ${lease}. It may have expired: put with a time to live, ` +
      "which grants another.",
    { metadata: { lease: String(lease) } },
  );
}
