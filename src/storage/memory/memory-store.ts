import { randomUUID } from "node:crypto";
import type { Clock, Timer } from "../../base/clock.ts";
import {
  historyChanged,
  otherHistory,
  upstreamUnavailable,
  type WatchFanoutError,
} from "../../base/errors.ts";
import type { StoredObject } from "../../model/object.ts";
import { checkInteger, checkText } from "../checks.ts";
import { HistoryPage } from "../history-page.ts";
import type {
  HistoryRequest,
  HistoryResult,
  KeyInterval,
  ListResult,
  RevisionRequirement,
  WatchRequest,
} from "../storage.ts";
import type {
  DeletePrefixRequest,
  DeletePrefixResult,
  ObjectName,
  Store,
  TransactRequest,
  TransactResult,
} from "../store.ts";
import {
  checkDeletePrefix,
  checkTransaction,
  defaultMaxDeletedObjects,
  resultCompacted,
} from "../transaction-checks.ts";
import type { Changed, Draft } from "./draft.ts";
import { ObjectMaker } from "./kept-object.ts";
import { MemoryLeases } from "./leases.ts";
import { defaultStateBytes } from "./memory-estimates.ts";
import { MemoryWatch } from "./memory-watch.ts";
import { type Bounds, MvccStore } from "./mvcc-store.ts";
import { ObjectPage, type PageBounds } from "./object-page.ts";
import { RememberedRequests } from "./remembered-requests.ts";
import { allKeys, type ResourceKeys, Resources } from "./resource-keys.ts";
import { StoreDraft } from "./store-draft.ts";
import { checkDistinct, deletePrefixIn, resultsOf, transactIn } from "./transactions.ts";
import { checkSize } from "./write-checks.ts";

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
  /** Maximum number of leases that were granted by themselves. Default 100,000. */
  readonly maxGrantedLeases?: number | undefined;
}

/** A page of whole keys. */
export interface RangeRequest extends PageBounds {
  readonly interval: KeyInterval;
  /** Only keys after this one, which is in the interval. */
  readonly startAfter?: string | undefined;
  readonly at: RevisionRequirement;
  readonly signal?: AbortSignal | undefined;
}

/**
 * The embedded store: in memory, lost when the process ends, with etcd's semantics. It has one keyspace, whose keys are any
 * bytes (model/key-bytes.ts); resources are the keys with a prefix. A change makes one revision, an empty store is at
 * revision 1, and every revision can be read and watched from until it is compacted. The oldest revisions are compacted
 * automatically when the history reaches its bounds. Each instance has a new history id.
 *
 * Writes take effect at once, all or nothing, before the call returns. Each resource is a `MemoryStorage`.
 */
export class MemoryStore implements Store {
  readonly clock: Clock;
  readonly leases: MemoryLeases;
  /** What the store has of each name. */
  readonly resources = new Resources();
  readonly #data: MvccStore;
  readonly #objects: ObjectMaker;
  /** Each with what is called after its end. */
  readonly #watches = new Map<MemoryWatch, () => void>();
  readonly #requests: RememberedRequests;
  readonly #maxDeletedObjects: number;
  #historyId: string = randomUUID();
  #notification: Timer | undefined;
  #isClosed = false;

  /** Throws INVALID_REQUEST for a bound that is not a positive integer. */
  constructor(options: MemoryStoreOptions) {
    this.clock = options.clock;
    const maxStateBytes = options.maxStateBytes ?? defaultStateBytes();
    const mostHistory = Math.max(1, Math.min(defaultLogBytes, Math.floor(maxStateBytes / 4)));
    const bounds: Bounds = {
      maxStateBytes,
      maxLogRevisions: options.maxLogRevisions ?? 100_000,
      maxLogBytes: options.maxLogBytes ?? mostHistory,
    };
    for (const [name, bound] of Object.entries(bounds)) checkInteger(name, bound, 1);
    this.#maxDeletedObjects = options.maxDeletedObjects ?? defaultMaxDeletedObjects;
    this.#data = new MvccStore(bounds);
    this.#objects = new ObjectMaker((key) => this.resources.prefixLengthOf(key));
    this.#requests = new RememberedRequests(options.clock);
    this.leases = new MemoryLeases(this, options.maxGrantedLeases);
  }

  /** The current revision. */
  get revision(): number {
    return this.#data.log.kept;
  }

  /** The oldest revision that can be read at and watched from; 0 before the first compaction. */
  get oldest(): number {
    return this.#data.log.oldest;
  }

  get historyId(): string {
    return this.#historyId;
  }

  /** Memory of the current objects, in bytes. */
  get bytes(): number {
    return this.#data.stateBytes;
  }

  has(resource: string): boolean {
    return this.resources.has(resource);
  }

  nameOf(key: string): ObjectName | undefined {
    return this.resources.nameOf(key);
  }

  /** Makes the keys with a prefix a resource of the store. Throws INVALID_REQUEST for a prefix that UTF-8 can't encode. */
  addResource(name: string, keys: ResourceKeys): void {
    checkText("prefix", keys.prefix);
    this.resources.add(name, keys);
  }

  async transact(request: TransactRequest): Promise<TransactResult> {
    const { compares, operations, validateOnly = false } = request;
    this.enter(request.signal);
    checkTransaction(request);
    for (const { resource } of [...compares, ...operations]) this.resources.of(resource);
    checkDistinct(operations, this.resources);
    checkSize(operations);
    const { result, revision } = await this.#change((draft) => {
      this.checkHistory(request.historyId);
      const isRemembered = !validateOnly && operations.length > 0;
      const executed = isRemembered ? this.#requests.find(request) : undefined;
      const { historyId } = this;
      const all = { historyId, revisionBefore: draft.before };
      const transacted = executed ? undefined : transactIn(draft, request, this.resources);
      return { all, executed, transacted };
    }, request.signal);
    const { all, executed, transacted } = result;
    if (executed === undefined || transacted !== undefined)
      return { ...all, revision, ...(transacted as NonNullable<typeof transacted>) };
    const oldest = request.returnPrevious === true ? executed.before : executed.revision;
    if (oldest < this.oldest) throw resultCompacted(executed.revision);
    const results = await resultsOf(request, executed, this.resources, (key, at) =>
      this.#objectAt(key, at, request.signal),
    );
    return { ...all, succeeded: true, revision: executed.revision, results, compares: [] };
  }

  async deletePrefix(request: DeletePrefixRequest): Promise<DeletePrefixResult> {
    this.enter(request.signal);
    checkDeletePrefix(request);
    const keys = this.resources.of(request.resource);
    const { result, revision } = await this.#change((draft) => {
      this.checkHistory(request.historyId);
      const executed = request.validateOnly === true ? undefined : this.#requests.find(request);
      const all = { historyId: this.historyId, revisionBefore: draft.before };
      const { deleted } = executed
        ? { deleted: 0 }
        : deletePrefixIn(draft, request, this.resources, this.#maxDeletedObjects);
      return { all, executed, deleted };
    }, request.signal);
    const { all, executed, deleted } = result;
    if (executed === undefined) return { ...all, revision, deleted };
    const { before } = executed;
    if (before < this.oldest) throw resultCompacted(executed.revision);
    if (before === executed.revision) return { ...all, revision: before, deleted: 0 };
    const interval = keys.wholeInterval(request);
    const counted = await this.count(interval, before, keys);
    return { ...all, revision: executed.revision, deleted: counted };
  }

  /**
   * Executes a change as one revision, or as none if it writes nothing or throws. It is applied before this returns.
   * Rejects with what it throws, VALUE_TOO_LARGE, LEASE_NOT_FOUND, or STORAGE_FULL.
   */
  async update<T>(
    change: (draft: Draft) => T,
    options: { readonly signal?: AbortSignal | undefined } = {},
  ): Promise<Changed<T>> {
    return this.#change(change, options.signal);
  }

  /** As `update`, with a draft that can grant and end leases. Resolves to what `change` returns. */
  async execute<T>(change: (draft: StoreDraft) => T, signal?: AbortSignal): Promise<T> {
    return (await this.#change(change, signal)).result;
  }

  /** Resolves to what `read` returns of the current state. */
  async settled<T>(read: () => T, signal?: AbortSignal): Promise<T> {
    this.enter(signal);
    return read();
  }

  /** The revision to read at. Throws HISTORY_CHANGED for a future one, and REVISION_TOO_OLD for a compacted one. */
  resolve(at: RevisionRequirement): number {
    return this.#data.log.resolve(at, this.oldest);
  }

  /** The object of a whole key, as the keys' readers get it. */
  async get(
    key: string,
    at: RevisionRequirement,
    keys: ResourceKeys = allKeys,
    signal?: AbortSignal,
  ): Promise<{ readonly revision: number; readonly object: StoredObject | undefined }> {
    this.enter(signal);
    const revision = this.resolve(at);
    const object = await this.#objectAt(key, revision, signal);
    return { revision, object: object && keys.shown(object) };
  }

  /** One page of the objects of an interval of whole keys, as the keys' readers get them. */
  async range(request: RangeRequest, keys: ResourceKeys = allKeys): Promise<ListResult> {
    this.enter(request.signal);
    const { interval, startAfter } = request;
    const revision = this.resolve(request.at);
    const page = new ObjectPage(request);
    const from = startAfter ?? interval.from;
    const isAfter = startAfter !== undefined;
    for (const object of this.#data.keys.range(from, interval.to, revision, isAfter)) {
      if (!keys.has(object.key)) continue;
      if (!page.isFull) page.add(keys.shown(object));
      else if (!page.countOne()) break;
    }
    return page.result(revision);
  }

  /** Number of objects of an interval of whole keys, at a revision that can be read. */
  async count(
    { from, to }: KeyInterval,
    revision: number,
    keys: ResourceKeys = allKeys,
  ): Promise<number> {
    let count = 0;
    for (const { key } of this.#data.keys.range(from, to, revision)) if (keys.has(key)) count++;
    return count;
  }

  /** One page of the history of a key, which is relative to `keys`. */
  async history(request: HistoryRequest, keys: ResourceKeys = allKeys): Promise<HistoryResult> {
    this.enter(request.signal);
    const { upTo } = request;
    const revision = this.resolve(
      upTo === undefined ? { match: "LINEARIZABLE" } : { match: "EXACT", revision: upTo },
    );
    const page = new HistoryPage(request);
    const next = this.#data.keys.addHistory(keys.whole(request.key), page, keys, revision);
    return next === undefined
      ? page.finished(revision, Math.max(1, this.oldest))
      : page.continued(revision, next);
  }

  /**
   * Watches keys. Watches are notified of writes from an immediate, not from within the write. So an exception of a listener
   * can't fail a write that has been applied, a listener may write, and a burst of writes is read as one batch.
   */
  watch(
    request: WatchRequest,
    keys: ResourceKeys = allKeys,
    onEnd: () => void = () => {},
  ): MemoryWatch {
    const watch = new MemoryWatch(request, this.#data.log, keys, () => this.#notifySoon());
    this.#watches.set(watch, onEnd);
    // Notify the reader, as the history may have events for it already.
    this.#notifySoon();
    return watch;
  }

  /** Gives the history a new id if it still has the id `known`. Returns the id that it has then. */
  async renewHistory(known: string): Promise<string> {
    if (this.#historyId === known) this.#historyId = randomUUID();
    return this.#historyId;
  }

  /** Throws HISTORY_CHANGED if `known` is not empty and is not the history. */
  checkHistory(known: string | undefined): void {
    if (known === undefined || known === "" || known === this.#historyId) return;
    throw otherHistory(known, this.#historyId);
  }

  /** Compacts the history before `revision`. Rejects with HISTORY_CHANGED for a future revision. */
  async compact(revision: number): Promise<void> {
    this.enter(undefined);
    if (revision > this.revision) throw historyChanged(revision, this.revision);
    this.#data.compact(revision);
  }

  /** Throws if the signal is aborted or the store is closed. */
  enter(signal: AbortSignal | undefined): void {
    signal?.throwIfAborted();
    if (this.#isClosed) throw closed();
  }

  /** Every stream ends, and every later call rejects, with UPSTREAM_UNAVAILABLE. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    for (const watch of this.#watches.keys()) watch.end(closed());
    this.leases.close();
    this.#requests.clear();
    this.#data.clear();
  }

  async #change<T>(change: (draft: StoreDraft) => T, signal?: AbortSignal): Promise<Changed<T>> {
    this.enter(signal);
    const draft = new StoreDraft({
      data: this.#data,
      leases: this.leases,
      objects: this.#objects,
    });
    const result = change(draft);
    this.#apply(draft);
    return { result, revision: draft.after };
  }

  #apply(draft: StoreDraft): void {
    const { events } = draft;
    if (events.length > 0) this.#data.apply(events);
    this.leases.apply(draft, events);
    if (draft.request !== undefined) this.#requests.add(draft.request);
    if (events.length === 0) return;
    this.#data.keep(draft.revision);
    if (this.#watches.size > 0) this.#notifySoon();
  }

  async #objectAt(
    key: string,
    revision: number,
    _signal: AbortSignal | undefined,
  ): Promise<StoredObject | undefined> {
    return this.#data.keys.getAt(key, revision);
  }

  #notifySoon(): void {
    this.#notification ??= this.clock.setImmediate(() => {
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

/** The error of a store that is closed. */
export function closed(): WatchFanoutError {
  return upstreamUnavailable("The embedded store is closed.");
}
