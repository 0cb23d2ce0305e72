import {
  historyChanged,
  objectNotFound,
  revisionConflict,
  revisionTooOld,
} from "../../base/errors.ts";
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
import type { Keyspace } from "./keyspace.ts";
import { closed, MemoryStore, type MemoryStoreOptions } from "./memory-store.ts";
import type { MemoryWatch } from "./memory-watch.ts";
import { checkOperations, type Operation } from "./mvcc-store.ts";
import type { KeyEvents } from "./transaction-log.ts";

const linearizable = { match: "LINEARIZABLE" } as const;

/** A store of its own, or a resource of a store that others share. */
export type MemoryStorageOptions =
  | MemoryStoreOptions
  | {
      readonly store: MemoryStore;
      /** The name of the resource. It has keys of its own. */
      readonly resource: string;
    };

/**
 * A resource of the embedded store (`MemoryStore`).
 *
 * Objects are handed out as `StoredObject.withoutAttributes`: those that readers cache with an object are theirs, and would
 * count in no bound here.
 */
export class MemoryStorage implements Storage {
  readonly #store: MemoryStore;
  readonly #keys: Keyspace;
  /** Whether the store is closed with this. */
  readonly #isOnly: boolean;
  readonly #watches = new Set<MemoryWatch>();
  #isClosed = false;

  /** Throws INVALID_REQUEST for a bound that is not a positive integer. */
  constructor(options: MemoryStorageOptions) {
    this.#isOnly = !("store" in options);
    this.#store = "store" in options ? options.store : new MemoryStore(options);
    this.#keys = this.#store.keysOf("store" in options ? options.resource : "");
  }

  async get(request: GetRequest): Promise<GetResult> {
    this.#enter(request.signal);
    checkGet(request);
    const revision = this.#store.log.resolve(request.at);
    return { revision, object: this.#keys.getAt(request.key, revision)?.withoutAttributes() };
  }

  /** Returns values also with `keysOnly`, as they are not copied. */
  async list(request: ListRequest): Promise<ListResult> {
    this.#enter(request.signal);
    checkList(request);
    return this.#keys.page(request, this.#store.log.resolve(request.at));
  }

  /** Returns values also with `keysOnly`, as they are not copied. */
  async history(request: HistoryRequest): Promise<HistoryResult> {
    this.#enter(request.signal);
    checkHistoryRequest(request);
    const { upTo } = request;
    const at = upTo === undefined ? linearizable : ({ match: "EXACT", revision: upTo } as const);
    const { log } = this.#store;
    return this.#keys.history(request, log.resolve(at), log.oldest);
  }

  watch(request: WatchRequest): WatchStream {
    const watch = this.#store.watch(request, this.#keys, () => this.#watches.delete(watch));
    this.#watches.add(watch);
    endIfRefused(watch, () => {
      this.#enter(undefined);
      this.#checkWatch(request);
    });
    return watch;
  }

  async put(request: PutRequest): Promise<WriteResult> {
    this.#enter(request.signal);
    checkPut(request);
    const { key, value, expectedModRevision: expected, ttlSeconds } = request;
    checkOperations([{ type: "put", key, value }]);
    this.#store.checkHistory(request.historyId);
    const modRevision = this.#keys.get(key)?.modRevision ?? 0;
    if (expected !== undefined && expected !== modRevision) {
      throw revisionConflict(key, expected, modRevision);
    }
    const lengths = ttlSeconds === undefined ? [] : [ttlSeconds];
    const written = this.#store.underNewLeases(lengths, ([lease = request.lease]) =>
      this.#commit([{ type: "put", key, value, lease }]),
    );
    const [event] = written[0]?.events ?? [];
    if (event === undefined) throw new Error("A put changed nothing.");
    const { revision, object } = event;
    return { revision, object: object.withoutAttributes(), historyId: this.#store.historyId };
  }

  async delete(request: DeleteRequest): Promise<WriteResult> {
    this.#enter(request.signal);
    checkDelete(request);
    const { key, expectedModRevision: expected } = request;
    this.#store.checkHistory(request.historyId);
    const object = this.#keys.get(key);
    if (object === undefined) throw objectNotFound(key, this.#store.log.newest);
    if (expected !== undefined && expected !== object.modRevision) {
      throw revisionConflict(key, expected, object.modRevision);
    }
    this.#commit([{ type: "delete", key }]);
    return {
      revision: this.#store.log.newest,
      object: object.withoutAttributes(),
      historyId: this.#store.historyId,
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
    return this.#store.historyId;
  }

  async renewHistory(known: string, signal?: AbortSignal): Promise<string> {
    this.#enter(signal);
    return this.#store.renewHistory(known);
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
    this.#store.compact(revision);
  }

  /** Every stream ends, and every later call rejects, with UPSTREAM_UNAVAILABLE. A store of its own is closed as well. */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const watch of this.#watches) watch.end(closed());
    if (this.#isOnly) await this.#store.close();
  }

  /** Throws if the signal is aborted or the store is closed. */
  #enter(signal: AbortSignal | undefined): void {
    this.#store.enter(signal);
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

  #commit(operations: readonly Operation[]): readonly KeyEvents[] {
    return this.#store.commit([{ keys: this.#keys, operations }]);
  }
}
