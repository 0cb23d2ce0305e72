import type { Reachability } from "../../base/stream-backoff.ts";
import type { OwnCredentials } from "../../cache-files/user-of.ts";
import type { WatchEvent } from "../../model/event.ts";
import type { StoredObject } from "../../model/object.ts";
import type {
  DeleteOptions,
  DeletePrefixOptions,
  GetOptions,
  HistoryOptions,
  HistoryPageOptions,
  ListOptions,
  PageOptions,
  PutOptions,
  ReadOptions,
  TransactionOptions,
  WatchOptions,
} from "../calls/options.ts";
import type {
  BatchGetResult,
  DeletePrefixResult,
  ObjectName,
  TransactionRequest,
  TransactionResult,
} from "../calls/transaction.ts";

/** The result of a call on one object. */
export interface ObjectResult {
  /** Of a get: the revision at which the result is valid. Of a put or delete: the revision of the write. */
  readonly revision: number;
  /** Of a get or put: the current object. Of a delete: the object before it was deleted. */
  readonly object: StoredObject;
  /** The history that the revisions belong to; empty if the server does not know it. */
  readonly historyId: string;
  /**
   * Of a get with ANY or NOT_OLDER_THAN: how old the result may be, in milliseconds, while the server can't reach its own
   * source. Absent or undefined: the server follows its source.
   */
  readonly staleForMs?: number | undefined;
}

/** The number of objects. */
export interface CountResult extends Pick<Page, "historyId" | "revision" | "staleForMs"> {
  readonly count: number;
}

/** One page of a list. */
export interface Page {
  /** The same on every page of one list. A watch with it as `afterRevision` continues the list without a gap. */
  readonly revision: number;
  /** In the order of the list. */
  readonly items: readonly StoredObject[];
  /** Number of objects after this page; undefined if the server does not know it. */
  readonly remainingItemCount: number | undefined;
  /** Empty on the last page. */
  readonly nextPageToken: string;
  /** The history that the revisions belong to; empty if the server does not know it. */
  readonly historyId: string;
  /** How old the page may be, in milliseconds, as in ObjectResult. */
  readonly staleForMs?: number | undefined;
}

/** One page of the history of an object. */
export interface HistoryPage {
  /**
   * The history has no later changes; the same on every page. A watch of the key with it as `afterRevision` continues the
   * history without a gap.
   */
  readonly revision: number;
  /** The newest first. A deletion has the object's last content, with the revision of the deletion. */
  readonly events: readonly WatchEvent[];
  /** Empty on the last page. */
  readonly nextPageToken: string;
  /** The history of the store that the revisions belong to; empty if the server does not know it. */
  readonly historyId: string;
  /**
   * Why no older changes follow; undefined if some do. CREATION: before the oldest change the object did not exist, at
   * least from `oldestRevision` on. COMPACTION: the store no longer has the changes before. LIMIT: to find an earlier object
   * with this key would cost the store too much.
   */
  readonly end: "CREATION" | "COMPACTION" | "LIMIT" | undefined;
  /** Of the last page: all changes after this revision are known. Otherwise undefined. */
  readonly oldestRevision: number | undefined;
}

/** Events that belong together, complete, and the resume point after them. */
export interface AtomicBatch {
  /** Everything that the watch asks for has been delivered, up to and including this revision: the resume point. */
  readonly revision: number;
  /** In revision order; an initial state is in key order. Empty in a bookmark. */
  readonly events: readonly WatchEvent[];
  /** Whether the events are the initial state. */
  readonly initial: boolean;
  /** The history that the revisions belong to; empty if the server does not know it. */
  readonly historyId: string;
}

/** The calls of a Client. A test or a wrapper can implement it in place of one. */
export interface ClientCalls {
  /**
   * What is known of the connections to the servers: informers and caches end their pauses by it. Default: nothing, and
   * pauses do not end early.
   */
  readonly reachability?: Reachability | undefined;
  /**
   * Resolves to what the server recognises the user by, for an informer that keeps its state. Default: not known.
   *
   * @internal
   */
  credentials?(signal: AbortSignal): Promise<OwnCredentials>;
  /** See `Client.get`. */
  get(resource: string, key: string, options?: GetOptions): Promise<ObjectResult>;
  /** See `Client.batchGet`. */
  batchGet(names: readonly ObjectName[], options?: ReadOptions): Promise<BatchGetResult>;
  /** See `Client.list`. */
  list(resource: string, options?: ListOptions): AsyncGenerator<Page, void, void>;
  /** See `Client.page`. */
  page(resource: string, options?: PageOptions): Promise<Page>;
  /** See `Client.history`. */
  history(
    resource: string,
    key: string,
    options?: HistoryOptions,
  ): AsyncGenerator<HistoryPage, void, void>;
  /** See `Client.historyPage`. */
  historyPage(resource: string, key: string, options?: HistoryPageOptions): Promise<HistoryPage>;
  /** See `Client.watch`. */
  watch(resource: string, options?: WatchOptions): AsyncGenerator<AtomicBatch, void, void>;
  /** See `Client.subscribe`. An ObjectCache uses it. Default: each of its watches has a stream of its own. */
  subscribe?(): Pick<ClientCalls, "watch" | "reachability">;
  /** See `Client.put`. */
  put(
    resource: string,
    key: string,
    value: Uint8Array,
    options?: PutOptions,
  ): Promise<ObjectResult>;
  /** See `Client.delete`. */
  delete(resource: string, key: string, options?: DeleteOptions): Promise<ObjectResult>;
  /** See `Client.deletePrefix`. */
  deletePrefix(
    resource: string,
    prefix: string,
    options?: DeletePrefixOptions,
  ): Promise<DeletePrefixResult>;
  /** See `Client.transaction`. */
  transaction(
    request: TransactionRequest,
    options?: TransactionOptions,
  ): Promise<TransactionResult>;
}
