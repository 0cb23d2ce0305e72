import type { Clock } from "../../base/clock.ts";
import { historyChanged, upstreamUnavailable, type WatchFanoutError } from "../../base/errors.ts";
import type { StoredObject } from "../../model/object.ts";
import { checkInteger, checkText } from "../checks.ts";
import type { Journal } from "../journal/journal.ts";
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
import { Changes } from "./changes.ts";
import type { Changed, Draft } from "./draft.ts";
import { JournalReads } from "./journal-reads.ts";
import { MemoryLeases } from "./leases.ts";
import { defaultStateBytes } from "./memory-estimates.ts";
import { MemoryWatch } from "./memory-watch.ts";
import { type Bounds, MvccStore } from "./mvcc-store.ts";
import { type RangeRequest, Reads } from "./reads.ts";
import { allKeys, type ResourceKeys, Resources } from "./resource-keys.ts";
import type { StoreDraft } from "./store-draft.ts";
import { checkDistinct, deletePrefixIn, resultsOf, transactIn } from "./transactions.ts";
import { Watches } from "./watches.ts";
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

/** What a store continues from. */
export interface JournalOptions extends MemoryStoreOptions {
  /** What it has is the store's from now on. The store closes it. */
  readonly journal: Journal;
  /**
   * It is not known what the journal has kept. Called once. Every write that waits has been rejected with OUTCOME_UNKNOWN, and
   * every later call is with UPSTREAM_UNAVAILABLE: the process has to end.
   */
  readonly onFault: (error: Error) => void;
}

/**
 * The embedded store, with etcd's semantics. It has one keyspace, whose keys are any bytes (model/key-bytes.ts); resources are
 * the keys with a prefix. A change makes one revision, an empty store is at revision 1, and every revision can be read and
 * watched from until it is compacted. The oldest revisions leave memory when the history reaches its bounds.
 *
 * Without a journal it is lost when the process ends, and each instance has a new history id. With one (`open`), no reader sees
 * what the journal has not kept: a change is applied at once, so that later changes see it, but reads and watches have the
 * newest kept revision, and each answer to a change, also a refusal, waits until all that it saw is kept.
 *
 * Each resource is a `MemoryStorage`.
 */
export class MemoryStore implements Store {
  readonly clock: Clock;
  readonly leases: MemoryLeases;
  readonly #resources = new Resources();
  readonly #data: MvccStore;
  readonly #changes: Changes;
  readonly #reads: Reads;
  readonly #watches: Watches;
  readonly #maxDeletedObjects: number;
  #journal: Journal | undefined;
  #isClosed = false;
  #closing = Promise.resolve();

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
    this.#watches = new Watches(options.clock);
    this.leases = new MemoryLeases(this, options.maxGrantedLeases);
    this.#changes = new Changes({
      ...{ clock: options.clock, data: this.#data, leases: this.leases },
      resources: this.#resources,
      onKept: () => this.#watches.notifySoon(),
    });
    this.#reads = new Reads(this.#data);
  }

  /** Continues from what a journal has. Rejects as the journal does. */
  static async open(options: JournalOptions, signal?: AbortSignal): Promise<MemoryStore> {
    const { journal, onFault } = options;
    const store = new MemoryStore(options);
    const failed = (error: Error): void => {
      store.#endAll(upstreamUnavailable("The embedded store has failed.", error));
      onFault(error);
    };
    await store.#changes.load(journal, failed, signal);
    store.#journal = journal;
    store.#reads.past = new JournalReads(journal);
    return store;
  }

  /** The current revision. */
  get revision(): number {
    return this.#data.log.kept;
  }

  /** The oldest revision that can be read at and watched from; 0 before the first compaction. */
  get oldest(): number {
    return this.#reads.oldest;
  }

  get historyId(): string {
    return this.#changes.historyId;
  }

  /** Memory of the current objects, in bytes. */
  get bytes(): number {
    return this.#data.stateBytes;
  }

  has(resource: string): boolean {
    return this.#resources.has(resource);
  }

  /** The object that has a whole key; undefined: it is of no resource. */
  nameOf(key: string): ObjectName | undefined {
    return this.#resources.nameOf(key);
  }

  /** Makes the keys with a prefix a resource of the store. Throws INVALID_REQUEST for a prefix that UTF-8 can't encode. */
  addResource(name: string, keys: ResourceKeys): void {
    checkText("prefix", keys.prefix);
    this.#resources.add(name, keys);
  }

  async transact(request: TransactRequest): Promise<TransactResult> {
    const { compares, operations, validateOnly = false } = request;
    this.enter(request.signal);
    checkTransaction(request);
    for (const { resource } of [...compares, ...operations]) this.#resources.of(resource);
    checkDistinct(operations, this.#resources);
    checkSize(operations);
    const { result, revision } = await this.#execute((draft) => {
      draft.checkHistory(request.historyId);
      const isRemembered = !validateOnly && operations.length > 0;
      const executed = isRemembered ? this.#changes.requests.find(request) : undefined;
      const all = { historyId: draft.historyId, revisionBefore: draft.before };
      const transacted = executed ? undefined : transactIn(draft, request, this.#resources);
      return { all, executed, transacted };
    }, request.signal);
    const { all, executed, transacted } = result;
    if (executed === undefined || transacted !== undefined)
      return { ...all, revision, ...(transacted as NonNullable<typeof transacted>) };
    const oldest = request.returnPrevious === true ? executed.before : executed.revision;
    if (oldest < this.oldest) throw resultCompacted(executed.revision);
    const results = await resultsOf(request, executed, this.#resources, (key, at) =>
      this.#reads.objectAt(key, at, request.signal),
    );
    return { ...all, succeeded: true, revision: executed.revision, results, compares: [] };
  }

  async deletePrefix(request: DeletePrefixRequest): Promise<DeletePrefixResult> {
    this.enter(request.signal);
    checkDeletePrefix(request);
    const keys = this.#resources.of(request.resource);
    const { result, revision } = await this.#execute((draft) => {
      draft.checkHistory(request.historyId);
      const executed =
        request.validateOnly === true ? undefined : this.#changes.requests.find(request);
      const all = { historyId: draft.historyId, revisionBefore: draft.before };
      const { deleted } = executed
        ? { deleted: 0 }
        : deletePrefixIn(draft, request, this.#resources, this.#maxDeletedObjects);
      return { all, executed, deleted };
    }, request.signal);
    const { all, executed, deleted } = result;
    if (executed === undefined) return { ...all, revision, deleted };
    const { before } = executed;
    if (before === executed.revision) return { ...all, revision: before, deleted: 0 };
    if (before < this.oldest) throw resultCompacted(executed.revision);
    const interval = keys.wholeInterval(request);
    const counted = await this.#reads.count(interval, before, keys, request.signal);
    return { ...all, revision: executed.revision, deleted: counted };
  }

  /**
   * Executes a change as one revision, or as none if it writes nothing or throws. It is applied before this returns, unless
   * too much waits for the disk. Rejects with what it throws, VALUE_TOO_LARGE, LEASE_NOT_FOUND, STORAGE_FULL,
   * UPSTREAM_UNAVAILABLE, or OUTCOME_UNKNOWN.
   */
  update<T>(
    change: (draft: Draft) => T,
    options: { readonly signal?: AbortSignal | undefined } = {},
  ): Promise<Changed<T>> {
    return this.#execute(change, options.signal);
  }

  /** As `update`, with a draft that can grant and end leases. Resolves to what `change` returns. */
  async execute<T>(change: (draft: StoreDraft) => T, signal?: AbortSignal): Promise<T> {
    return (await this.#execute(change, signal)).result;
  }

  /** Settles as `read` does with the state after all changes, once these are kept. */
  async settled<T>(read: () => T, signal?: AbortSignal): Promise<T> {
    for (;;) {
      this.enter(signal);
      const found = await Promise.allSettled([
        (async () => read())(),
        this.#changes.allKept(signal),
      ]);
      const [result, kept] = found;
      // Otherwise the changes were taken back, or the store has failed, or the signal is aborted.
      if (kept.status === "rejected") continue;
      if (result.status === "rejected") throw result.reason;
      return result.value;
    }
  }

  /** The revision to read at. Throws HISTORY_CHANGED for a future one, and REVISION_TOO_OLD for a compacted one. */
  resolve(at: RevisionRequirement): number {
    return this.#reads.resolve(at);
  }

  /** The object of a whole key, as readers of `keys` get it. */
  async get(
    key: string,
    at: RevisionRequirement,
    keys: ResourceKeys = allKeys,
    signal?: AbortSignal,
  ): Promise<{ readonly revision: number; readonly object: StoredObject | undefined }> {
    this.enter(signal);
    const revision = this.resolve(at);
    const object = await this.#reads.objectAt(key, revision, signal);
    return { revision, object: object && keys.shown(object) };
  }

  /** One page of the objects of an interval of whole keys, as readers of `keys` get them. */
  async range(request: RangeRequest, keys: ResourceKeys = allKeys): Promise<ListResult> {
    this.enter(request.signal);
    return this.#reads.range(request, keys);
  }

  /** Number of objects of an interval of whole keys that `keys` has, at a revision that can be read. */
  async count(
    interval: KeyInterval,
    revision: number,
    keys: ResourceKeys = allKeys,
    signal?: AbortSignal,
  ): Promise<number> {
    this.enter(signal);
    return this.#reads.count(interval, this.resolve({ match: "EXACT", revision }), keys, signal);
  }

  /** One page of the history of a key, which is relative to `keys`. */
  async history(request: HistoryRequest, keys: ResourceKeys = allKeys): Promise<HistoryResult> {
    this.enter(request.signal);
    return this.#reads.history(request, keys);
  }

  /** Watches keys, as readers of `keys` name them. `onEnd` is called after its end. */
  watch(
    request: WatchRequest,
    keys: ResourceKeys = allKeys,
    onEnd: () => void = () => {},
  ): MemoryWatch {
    const wake = (): void => this.#watches.notifySoon();
    const watch = new MemoryWatch(request, this.#data.log, keys, this.#reads.past, wake);
    this.#watches.add(watch, onEnd);
    return watch;
  }

  /** Gives the history a new id if it still has the id `known`. Resolves to the id that it has then. */
  async renewHistory(known: string, signal?: AbortSignal): Promise<string> {
    this.enter(signal);
    const historyId = this.#changes.renewHistory(known);
    await this.#changes.allKept(signal);
    return historyId;
  }

  /** Compacts the history before `revision`. Rejects with HISTORY_CHANGED for a future revision. */
  async compact(revision: number, signal?: AbortSignal): Promise<void> {
    this.enter(signal);
    if (revision > this.revision) throw historyChanged(revision, this.revision);
    if (revision <= this.oldest) return;
    const kept = (): void => this.#reads.compact(revision);
    await this.#changes.compact(revision, kept, () => this.enter(signal), signal);
  }

  /** Throws if the signal is aborted, or the store is closed or has failed. */
  enter(signal: AbortSignal | undefined): void {
    signal?.throwIfAborted();
    if (this.#isClosed) throw closed();
    this.#changes.check();
  }

  /**
   * Every stream ends, and every later call rejects, with UPSTREAM_UNAVAILABLE. Resolves when the journal has kept what was
   * applied, and is closed. Idempotent.
   */
  close(): Promise<void> {
    if (!this.#isClosed) {
      this.#isClosed = true;
      this.#closing = this.#close();
    }
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#endAll(closed());
    await this.#changes.close();
    // Those whose end was taken back meanwhile.
    this.leases.close();
    await this.#journal?.close();
    this.#data.clear();
  }

  #execute<T>(change: (draft: StoreDraft) => T, signal?: AbortSignal): Promise<Changed<T>> {
    return this.#changes.execute(change, () => this.enter(signal), signal);
  }

  #endAll(error: Error): void {
    this.#watches.end(error);
    this.leases.close();
  }
}

/** The error of a store that is closed. */
export function closed(): WatchFanoutError {
  return upstreamUnavailable("The embedded store is closed.");
}
