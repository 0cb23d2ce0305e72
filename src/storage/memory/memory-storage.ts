import { randomUUID } from "node:crypto";
import type { Clock, Timer } from "../../base/clock.ts";
import {
  historyChanged,
  objectNotFound,
  otherHistory,
  revisionConflict,
  revisionTooOld,
  upstreamUnavailable,
  WatchFanoutError,
} from "../../base/errors.ts";
import type { WatchEvent } from "../../model/event.ts";
import { checkDelete, checkGet, checkInteger, checkList, checkPut, checkWatch } from "../checks.ts";
import type {
  DeleteRequest,
  GetRequest,
  GetResult,
  ListRequest,
  ListResult,
  PutRequest,
  Storage,
  WatchRequest,
  WatchStream,
  WriteResult,
} from "../storage.ts";
import { Leases } from "./leases.ts";
import { defaultStateBytes } from "./memory-estimates.ts";
import { MemoryWatch } from "./memory-watch.ts";
import { type Bounds, MvccStore } from "./mvcc-store.ts";
import { checkOperations, type Operation } from "./operation.ts";

/** The most that history takes by default, in bytes. */
const defaultLogBytes = 64 * 1024 ** 2;

export interface MemoryStorageOptions {
  readonly clock: Clock;
  /** How many revisions of history are kept at the most; at least 1. Default 100,000. */
  readonly maxLogRevisions?: number | undefined;
  /**
   * How many bytes the history may take, though the newest revision is always kept. Default 64 MiB, or a quarter of
   * `maxStateBytes` if that is less.
   */
  readonly maxLogBytes?: number | undefined;
  /**
   * How many bytes the objects that stand may take, with all that is around them; writes that would go further are
   * STORAGE_FULL. Default: a quarter of the heap, and at the most 2 GiB, etcd's default for `--quota-backend-bytes`.
   */
  readonly maxStateBytes?: number | undefined;
}

/**
 * The embedded store: in memory, gone when the process ends, with etcd's semantics. A transaction makes
 * one revision, an empty store is at revision 1, and every revision can be read at and watched from
 * until it is compacted, which happens by itself to the oldest once the history reaches its bounds.
 * Its history has a new id each time that the store is made.
 *
 * Writes apply at once, all or nothing, before the call returns. Values are kept, not copied: whoever
 * writes one must not change it afterwards.
 *
 * Watches are told of writes from an immediate, not from within the write: what a listener throws can
 * then not fail a write that has been applied, a listener may write itself, and a burst of writes is
 * read as one batch.
 */
export class MemoryStorage implements Storage {
  readonly #clock: Clock;
  readonly #store: MvccStore;
  readonly #watches = new Set<MemoryWatch>();
  readonly #leases: Leases;
  #historyId: string = randomUUID();
  #notification: Timer | undefined;
  #closed = false;

  /** Throws INVALID_REQUEST for a bound that is not a positive integer. */
  constructor(options: MemoryStorageOptions) {
    this.#clock = options.clock;
    const maxStateBytes = options.maxStateBytes ?? defaultStateBytes(1);
    const mostHistory = Math.max(1, Math.min(defaultLogBytes, Math.floor(maxStateBytes / 4)));
    const bounds: Bounds = {
      maxStateBytes,
      maxLogRevisions: options.maxLogRevisions ?? 100_000,
      maxLogBytes: options.maxLogBytes ?? mostHistory,
    };
    for (const [name, bound] of Object.entries(bounds)) checkInteger(name, bound, 1);
    this.#store = new MvccStore(bounds);
    this.#leases = new Leases(options.clock, (keys) => {
      this.#commit(keys.map((key) => ({ type: "delete", key })));
    });
  }

  async get(request: GetRequest): Promise<GetResult> {
    this.#enter(request.signal);
    checkGet(request);
    const revision = this.#store.resolve(request.at);
    return { revision, object: this.#store.getAt(request.key, revision) };
  }

  /** Values come whole, also where `keysOnly` asks for less: they are not copied anyway. */
  async list(request: ListRequest): Promise<ListResult> {
    this.#enter(request.signal);
    checkList(request);
    return this.#store.page(request, this.#store.resolve(request.at));
  }

  watch(request: WatchRequest): WatchStream {
    const watch = new MemoryWatch(request, this.#store.log, () => this.#notifySoon());
    this.#watches.add(watch);
    try {
      this.#enter(undefined);
      this.#checkWatch(request);
    } catch (error) {
      watch.end(error instanceof Error ? error : new Error(String(error)));
    }
    // A reader may as well begin by waiting, also for what is in history already.
    this.#notifySoon();
    return watch;
  }

  async put(request: PutRequest): Promise<WriteResult> {
    this.#enter(request.signal);
    checkPut(request);
    const { key, value, expectedModRevision: expected, ttlSeconds } = request;
    checkOperations([{ type: "put", key, value }]);
    this.#checkHistory(request.historyId);
    const modRevision = this.#store.get(key)?.modRevision ?? 0;
    if (expected !== undefined && expected !== modRevision) {
      throw revisionConflict(key, expected, modRevision);
    }
    const lease = ttlSeconds === undefined ? request.lease : this.#leases.grant(ttlSeconds);
    try {
      const [written] = this.#commit([{ type: "put", key, value, lease }]);
      if (written === undefined) throw new Error("A put changed nothing.");
      const { revision, object } = written;
      return { revision, object, historyId: this.#historyId };
    } catch (error) {
      if (lease !== undefined && ttlSeconds !== undefined) this.#leases.revoke(lease);
      throw error;
    }
  }

  async delete(request: DeleteRequest): Promise<WriteResult> {
    this.#enter(request.signal);
    checkDelete(request);
    const { key, expectedModRevision: expected } = request;
    this.#checkHistory(request.historyId);
    const object = this.#store.get(key);
    if (object === undefined) throw objectNotFound(key, this.#store.log.newest);
    if (expected !== undefined && expected !== object.modRevision) {
      throw revisionConflict(key, expected, object.modRevision);
    }
    this.#commit([{ type: "delete", key }]);
    return { revision: this.#store.log.newest, object, historyId: this.#historyId };
  }

  /**
   * Applies all operations at one revision, in their order, or none. Resolves to the store's revision
   * afterwards, which is the same as before if nothing changed. Rejects with INVALID_REQUEST (a key
   * twice), VALUE_TOO_LARGE (together above the limit of one request), LEASE_NOT_FOUND or STORAGE_FULL.
   */
  async txn(operations: readonly Operation[]): Promise<number> {
    this.#enter(undefined);
    checkOperations(operations);
    this.#commit(operations);
    return this.#store.log.newest;
  }

  async currentRevision(signal?: AbortSignal): Promise<number> {
    this.#enter(signal);
    return this.#store.log.newest;
  }

  async historyId(signal?: AbortSignal): Promise<string> {
    this.#enter(signal);
    return this.#historyId;
  }

  async renewHistory(known: string, signal?: AbortSignal): Promise<string> {
    this.#enter(signal);
    if (this.#historyId === known) this.#historyId = randomUUID();
    return this.#historyId;
  }

  requestProgress(): void {
    for (const watch of this.#watches) watch.requestProgress();
  }

  /**
   * Forgets what was before `revision`: the state at it remains, and watches can go on from it.
   * Harmless if that is forgotten already. Rejects with HISTORY_CHANGED for a revision to come.
   */
  async compact(revision: number): Promise<void> {
    this.#enter(undefined);
    checkInteger("revision", revision, 1);
    if (revision > this.#store.log.newest) throw historyChanged(revision, this.#store.log.newest);
    this.#store.compact(revision);
  }

  /** Every stream ends, and every later call rejects, with UPSTREAM_UNAVAILABLE. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    for (const watch of this.#watches) watch.end(closed());
    this.#leases.clear();
    this.#store.clear();
  }

  /** Throws unless calls are taken. */
  #enter(signal: AbortSignal | undefined): void {
    signal?.throwIfAborted();
    if (this.#closed) throw closed();
  }

  #checkWatch(request: WatchRequest): void {
    checkWatch(request);
    const { afterRevision } = request;
    if (afterRevision === undefined) return;
    const { newest, oldest } = this.#store.log;
    if (afterRevision > newest) throw historyChanged(afterRevision, newest);
    if (afterRevision < oldest) throw revisionTooOld(afterRevision, oldest);
  }

  #checkHistory(known: string | undefined): void {
    if (known === undefined || known === "" || known === this.#historyId) return;
    throw otherHistory(known, this.#historyId);
  }

  /** Applies the operations and lets the leases and the watches know. */
  #commit(operations: readonly Operation[]): readonly WatchEvent[] {
    for (const operation of operations) {
      const lease = operation.type === "put" ? (operation.lease ?? 0n) : 0n;
      if (lease !== 0n && !this.#leases.has(lease)) throw leaseNotFound(lease);
    }
    const events = this.#store.commit(operations);
    this.#leases.follow(events);
    if (events.length > 0 && this.#watches.size > 0) this.#notifySoon();
    return events;
  }

  #notifySoon(): void {
    this.#notification ??= this.#clock.setImmediate(() => {
      this.#notification = undefined;
      this.#notify();
    });
  }

  /** Tells every watch that has something new, also where another's listener throws. */
  #notify(): void {
    const failures: unknown[] = [];
    for (const watch of this.#watches) {
      try {
        watch.notify();
      } catch (error) {
        failures.push(error);
      }
      if (watch.ended !== undefined) this.#watches.delete(watch);
    }
    if (failures.length > 0) throw new AggregateError(failures, "A watch's listener threw.");
  }
}

function closed(): WatchFanoutError {
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
