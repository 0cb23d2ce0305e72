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
import {
  checkDelete,
  checkGet,
  checkHistoryRequest,
  checkInteger,
  checkList,
  checkPut,
  checkWatch,
  endIfRefused,
} from "../checks.ts";
import type {
  DeleteRequest,
  GetRequest,
  GetResult,
  HistoryRequest,
  HistoryResult,
  ListRequest,
  ListResult,
  PutRequest,
  Storage,
  WatchRequest,
  WatchStream,
  WriteResult,
} from "../storage.ts";
import { MemoryLeases, type StoreLeases } from "./leases.ts";
import { defaultStateBytes } from "./memory-estimates.ts";
import { MemoryWatch } from "./memory-watch.ts";
import { type Bounds, checkOperations, MvccStore, type Operation } from "./mvcc-store.ts";

const linearizable = { match: "LINEARIZABLE" } as const;

/** Default maximum memory of the history, in bytes. */
const defaultLogBytes = 64 * 1024 ** 2;

export interface MemoryStorageOptions {
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
  /** The leases that it shares with the stores of other resources. Default: its own. */
  readonly leases?: MemoryLeases | undefined;
  /** The name of its resource, for what is attached to a lease. Default: none. */
  readonly resource?: string | undefined;
}

/**
 * The embedded store: in memory, lost when the process ends, with etcd's semantics. A transaction makes one revision,
 * an empty store is at revision 1, and every revision can be read and watched from until it is compacted. The oldest
 * revisions are compacted automatically when the history reaches its bounds. Each instance has a new history id.
 *
 * Writes take effect at once, all or nothing, before the call returns. Values are kept without a copy: the caller must
 * not change them afterwards. Objects are handed out as `StoredObject.withoutAttributes`: those that readers cache with an
 * object are theirs, and would count in no bound here.
 *
 * Watches are notified of writes from an immediate, not from within the write. So an exception of a listener can't fail
 * a write that has been applied, a listener may write, and a burst of writes is read as one batch.
 */
export class MemoryStorage implements Storage {
  readonly #clock: Clock;
  readonly #store: MvccStore;
  readonly #watches = new Set<MemoryWatch>();
  readonly #leases: StoreLeases;
  /** Its own leases, to be closed with it. */
  readonly #ownLeases: MemoryLeases | undefined;
  #historyId: string = randomUUID();
  #notification: Timer | undefined;
  #isClosed = false;

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
    const leases = options.leases ?? new MemoryLeases(options.clock);
    this.#ownLeases = options.leases === undefined ? leases : undefined;
    this.#leases = leases.ofStore(options.resource ?? "", (keys) => {
      if (!this.#isClosed) this.#commit(keys.map((key) => ({ type: "delete", key })));
    });
  }

  async get(request: GetRequest): Promise<GetResult> {
    this.#enter(request.signal);
    checkGet(request);
    const revision = this.#store.resolve(request.at);
    return { revision, object: this.#store.getAt(request.key, revision)?.withoutAttributes() };
  }

  /** Returns values also with `keysOnly`, as they are not copied. */
  async list(request: ListRequest): Promise<ListResult> {
    this.#enter(request.signal);
    checkList(request);
    return this.#store.page(request, this.#store.resolve(request.at));
  }

  /** Returns values also with `keysOnly`, as they are not copied. */
  async history(request: HistoryRequest): Promise<HistoryResult> {
    this.#enter(request.signal);
    checkHistoryRequest(request);
    const { upTo } = request;
    const at = upTo === undefined ? linearizable : ({ match: "EXACT", revision: upTo } as const);
    return this.#store.history(request, this.#store.resolve(at));
  }

  watch(request: WatchRequest): WatchStream {
    const watch = new MemoryWatch(request, this.#store.log, () => this.#notifySoon());
    this.#watches.add(watch);
    endIfRefused(watch, () => {
      this.#enter(undefined);
      this.#checkWatch(request);
    });
    // Notify the reader, as the history may have events for it already.
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
      return { revision, object: object.withoutAttributes(), historyId: this.#historyId };
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
    return {
      revision: this.#store.log.newest,
      object: object.withoutAttributes(),
      historyId: this.#historyId,
    };
  }

  /**
   * Executes all operations at one revision, in order, or none. Resolves to the store's revision afterwards, which does
   * not increase if nothing changed. Rejects with INVALID_REQUEST (a key twice), VALUE_TOO_LARGE (together above the
   * limit of one request), LEASE_NOT_FOUND or STORAGE_FULL.
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
   * Compacts the history before `revision`: the state at it stays, and watches can continue from it. Has no effect on
   * an older revision. Rejects with HISTORY_CHANGED for a future revision.
   */
  async compact(revision: number): Promise<void> {
    this.#enter(undefined);
    checkInteger("revision", revision, 1);
    if (revision > this.#store.log.newest) throw historyChanged(revision, this.#store.log.newest);
    this.#store.compact(revision);
  }

  /** Every stream ends, and every later call rejects, with UPSTREAM_UNAVAILABLE. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    for (const watch of this.#watches) watch.end(closed());
    this.#ownLeases?.close();
    this.#store.clear();
  }

  /** Throws if the signal is aborted or the store is closed. */
  #enter(signal: AbortSignal | undefined): void {
    signal?.throwIfAborted();
    if (this.#isClosed) throw closed();
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

  /** Executes the operations, and updates leases and watches. */
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

  /** Notifies every watch that has something new, even if the listener of another one throws. */
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
