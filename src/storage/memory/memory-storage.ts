import {
  historyChanged,
  objectNotFound,
  revisionConflict,
  revisionTooOld,
} from "../../base/errors.ts";
import { compareKeys } from "../../model/key-order.ts";
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
import { scopeOfList } from "../key-scopes.ts";
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
import { closed, MemoryStore, type MemoryStoreOptions } from "./memory-store.ts";
import type { MemoryWatch } from "./memory-watch.ts";
import type { Operation } from "./mvcc-store.ts";
import { ResourceKeys } from "./resource-keys.ts";
import { checkOperations } from "./write-checks.ts";

/** A store of its own, or a resource of a store that others share. */
export type MemoryStorageOptions = MemoryStoreOptions | SharedStore;

interface SharedStore {
  readonly store: MemoryStore;
  /** The name of the resource. */
  readonly resource: string;
  /** The prefix of its keys in the store. Default: the name and a slash. */
  readonly prefix?: string | undefined;
  /**
   * Whether raw keys are keys of the resource (model/key-bytes.ts). Default false: they are left out.
   *
   * @internal
   */
  readonly rawKeys?: boolean | undefined;
}

/** A resource of the embedded store (`MemoryStore`). */
export class MemoryStorage implements Storage {
  readonly #store: MemoryStore;
  readonly #keys: ResourceKeys;
  readonly #options: SharedStore;
  /** Whether the store is closed with this. */
  readonly #isOnly: boolean;
  readonly #watches = new Set<MemoryWatch>();
  #isClosed = false;

  /** Throws INVALID_REQUEST for a bound that is not a positive integer, and for a prefix that UTF-8 can't encode. */
  constructor(options: MemoryStorageOptions) {
    this.#isOnly = !("store" in options);
    this.#options =
      "store" in options ? options : { store: new MemoryStore(options), resource: "", prefix: "" };
    const { store, resource, prefix = `${resource}/`, rawKeys = false } = this.#options;
    this.#store = store;
    this.#keys = new ResourceKeys(prefix, rawKeys);
    if (!rawKeys) store.addResource(resource, this.#keys);
  }

  /**
   * The same keys, with raw keys.
   *
   * @internal
   */
  withRawKeys(): MemoryStorage {
    return new MemoryStorage({ ...this.#options, rawKeys: true });
  }

  async get(request: GetRequest): Promise<GetResult> {
    this.#enter(request.signal);
    checkGet(request, this.#options.rawKeys);
    const keys = this.#keys;
    return this.#store.get(keys.whole(request.key), request.at, keys, request.signal);
  }

  /** Returns values also with `keysOnly`, as they are not copied. */
  async list(request: ListRequest): Promise<ListResult> {
    this.#enter(request.signal);
    checkList(request, this.#options.rawKeys);
    const { startAfter, limit, maxBytes, at, signal } = request;
    const interval = this.#keys.wholeInterval(scopeOfList(request));
    const after = startAfter === undefined ? undefined : this.#keys.whole(startAfter);
    const isWithin = after !== undefined && compareKeys(after, interval.from) >= 0;
    return this.#store.range(
      { interval, startAfter: isWithin ? after : undefined, limit, maxBytes, at, signal },
      this.#keys,
    );
  }

  /** Returns values also with `keysOnly`, as they are not copied. */
  async history(request: HistoryRequest): Promise<HistoryResult> {
    this.#enter(request.signal);
    checkHistoryRequest(request);
    return this.#store.history(request, this.#keys);
  }

  watch(request: WatchRequest): WatchStream {
    const watch = this.#store.watch(request, this.#keys, () => this.#watches.delete(watch));
    this.#watches.add(watch);
    endIfRefused(watch, () => {
      this.#enter(undefined);
      checkWatch(request, this.#options.rawKeys);
      this.#checkStart(request);
    });
    return watch;
  }

  async put(request: PutRequest): Promise<WriteResult> {
    this.#enter(request.signal);
    checkPut(request);
    const { key, value, expectedModRevision: expected, ttlSeconds } = request;
    checkOperations([{ type: "put", key, value }]);
    const whole = this.#keys.whole(key);
    return await this.#store.execute((draft) => {
      draft.checkHistory(request.historyId);
      const modRevision = draft.get(whole)?.modRevision ?? 0;
      if (expected !== undefined && expected !== modRevision) {
        throw revisionConflict(key, expected, modRevision);
      }
      const lease =
        ttlSeconds === undefined ? (request.lease ?? 0n) : draft.grant(ttlSeconds, false);
      const object = this.#keys.shown(draft.put(whole, value, lease));
      return { revision: draft.revision, object, historyId: draft.historyId };
    }, request.signal);
  }

  async delete(request: DeleteRequest): Promise<WriteResult> {
    this.#enter(request.signal);
    checkDelete(request);
    const { key, expectedModRevision: expected } = request;
    return await this.#store.execute((draft) => {
      draft.checkHistory(request.historyId);
      const deleted = draft.delete(this.#keys.whole(key));
      if (deleted === undefined) throw objectNotFound(key, draft.before);
      if (expected !== undefined && expected !== deleted.modRevision) {
        throw revisionConflict(key, expected, deleted.modRevision);
      }
      const object = this.#keys.shown(deleted);
      return { revision: draft.revision, object, historyId: draft.historyId };
    }, request.signal);
  }

  /**
   * Executes all operations at one revision, in order, or none. Resolves to the store's revision afterwards, which does
   * not increase if nothing changed. Rejects with INVALID_REQUEST (a key twice), VALUE_TOO_LARGE (together above the
   * limit of one request), LEASE_NOT_FOUND or STORAGE_FULL.
   */
  async txn(operations: readonly Operation[]): Promise<number> {
    this.#enter(undefined);
    checkOperations(operations);
    return await this.#store.execute((draft) => {
      for (const operation of operations) {
        const key = this.#keys.whole(operation.key);
        if (operation.type === "delete") draft.delete(key);
        else draft.put(key, operation.value, operation.lease ?? 0n);
      }
      return draft.after;
    });
  }

  async currentRevision(signal?: AbortSignal): Promise<number> {
    this.#enter(signal);
    return this.#store.revision;
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
    await this.#store.compact(revision);
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

  #checkStart({ afterRevision }: WatchRequest): void {
    if (afterRevision === undefined) return;
    const { revision, oldest } = this.#store;
    if (afterRevision > revision) throw historyChanged(afterRevision, revision);
    if (afterRevision < oldest) throw revisionTooOld(afterRevision, oldest);
  }
}
