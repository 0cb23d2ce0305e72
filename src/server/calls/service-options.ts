import type { Logger } from "pino";
import type { Clock } from "../../base/clock.ts";
import type { Reason } from "../../base/errors.ts";
import type { Projected } from "../../cacher/request/object-attributes.ts";
import type { Projection } from "../../cacher/request/projection.ts";
import type {
  CacheGetRequest,
  CacheListRequest,
  CacheWatchRequest,
  Reached,
} from "../../cacher/request/request.ts";
import type { Selection } from "../../cacher/request/selection.ts";
import type { Authenticators } from "../../identity/authenticators.ts";
import type { StoredObject } from "../../model/object.ts";
import type { Authorizer } from "../../policy/authorizer.ts";
import type {
  GetResult,
  HistoryRequest,
  HistoryResult,
  ListResult,
  Storage,
  WatchStream,
} from "../../storage/storage.ts";
import type { Store, StoreWrite } from "../../storage/store.ts";
import type { CompressionOptions } from "../kernel/compressor.ts";
import type { ServerLimits } from "../limits/server-limits.ts";
import type { MemoryGauge } from "../pressure/memory-gauges.ts";
import type { AuditLog } from "./audit.ts";
import type { CallTracer } from "./call-span.ts";

/**
 * The protocols by which calls arrive. `json-lines`: the responses are lines of JSON. `etcd-json`: etcd's JSON gateway. `other`:
 * requests by HTTP that are answered without a call, such as the questions of browsers whether a page may call.
 */
export const callProtocols = [
  ...(["grpc", "connect", "grpc-web", "json-lines", "etcd-json", "other"] as const),
] as const;

export type CallProtocol = (typeof callProtocols)[number];

/** Observes every call. Method names look like `watchfanout.v1.ListWatchService/Watch`. */
export interface RpcObserver {
  started(method: string, protocol: CallProtocol): void;
  /** `code` is the name of the gRPC status code, such as `OK` or `NOT_FOUND`. */
  ended(method: string, code: string, milliseconds: number): void;
  /** Responses of ListWatchService and WriteService, and their size in bytes without gRPC's framing. */
  sent(method: string, messages: number, bytes: number): void;
  /** The service has refused or ended a watch. `RESET`: without a status, as its client accepted too little. */
  watchEnded?(reason: Reason | "RESET", count?: number): void;
}

/** How labels and fields are read. */
export type CodecKind = "opaque" | "json" | "protobuf";

/** A resource as the server uses it. A Cacher is one. */
export interface ServedResource extends Pick<Storage, "put" | "delete"> {
  /** Shown to operators. */
  readonly name?: string;
  /** The history that revisions belong to; empty if it can't be known. */
  readonly currentHistoryId: string;
  /** Updates `currentHistoryId`, and resolves to it. Absent where it is always current. */
  findHistory?(signal: AbortSignal): Promise<string>;
  /** Parses the selectors; undefined if both are empty. Throws INVALID_REQUEST. */
  select(labelSelector: string, fieldSelector: string): Selection | undefined;
  /** The view of the objects' attributes, or of parts of their values. Throws INVALID_REQUEST. Absent: it has neither. */
  project?(projected: Projected): Projection;
  /** Whether it has these views, since a codec reads its values. */
  readonly hasAttributes?: boolean;
  /**
   * Waits until the resource is as new as a read requires. Pass the result to the read. Absent: a read waits for nothing
   * that the service has to know of.
   */
  reach?(request: CacheGetRequest | CacheListRequest): Promise<Reached>;
  /** The size of a value that `get` would return now, in bytes; undefined or absent: it is not known. */
  valueBytes?(key: string): number | undefined;
  get(request: CacheGetRequest, reached?: Reached): Promise<GetResult>;
  list(request: CacheListRequest, reached?: Reached): Promise<ListResult>;
  /** Absent: it has no histories. */
  history?(request: HistoryRequest): Promise<HistoryResult>;
  watch(request: CacheWatchRequest): WatchStream;
  /**
   * Resolves to the id of the history that a write through the store belongs to, empty if that can't be determined, after
   * the resource has learned from it whether the store has another history now. `written`: an object of the resource that
   * was written. Never rejects. Absent: the resource follows no history.
   */
  historyOfWrite?<T extends StoreWrite>(
    writing: Promise<T>,
    written: (result: T) => StoredObject | undefined,
    signal: AbortSignal,
  ): Promise<string>;
  /**
   * Waits until the resource has the store's current revision, for up to 3 s, and each of its watches that is live can read
   * everything up to it. Resolves to the revision; undefined: it was not reached in time. Absent: it can't be watched.
   */
  reachCurrentRevision?(signal?: AbortSignal): Promise<number | undefined>;
  /**
   * As `reachCurrentRevision`, for a revision that the store is known to have had, which it is not asked for. Waits for up to
   * `timeoutMs`, and resolves to whether it was reached. Never rejects.
   */
  reachKnownRevision?(revision: number, timeoutMs: number): Promise<boolean>;
  /** The revision of the cache; 0 before it is ready. Absent: there is no cache. */
  readonly revision?: number | undefined;
  /** A watch may resume from this revision or a later one; infinite before the cache is ready. Absent: there is no cache. */
  readonly oldestRevision?: number | undefined;
  /** The fields that selectors may name. Absent: it declares no fields. */
  readonly fields?: { readonly declared: readonly string[]; readonly indexed: readonly string[] };
  /** How old the cache may be, in milliseconds, while its source can't be reached; otherwise undefined or absent. */
  readonly staleForMs?: number | undefined;
  readonly ready: boolean;
  onReadyChange(listener: (ready: boolean) => void): void;
  drain(): void;
}

/** What a relay knows of the server that it follows. */
export interface RelayedUpstream {
  /**
   * Asks the server that the relay follows whether the relays that a request has passed, and this one, may follow it.
   * Rejects with INVALID_REQUEST if they form a loop or are too many, and with other errors if that can't be found out.
   */
  checkPath(via: string, signal: AbortSignal): Promise<void>;
}

/** The keys of a resource in etcd. */
export interface EtcdKeys {
  /** Empty: every key. */
  readonly prefix: string;
  /** The key of the history's id, which no resource has. */
  readonly historyKey: string;
}

/** What a service is, whatever accepts its calls. */
export interface ServiceOptions {
  /** The resources by name. The server drains them, but neither starts nor closes them. */
  readonly resources: ReadonlyMap<string, ServedResource>;
  /**
   * What the resources share, for transactions over them. The server does not close it. Without it requests that need it are
   * refused.
   */
  readonly store?: Store | undefined;
  /** What recognises the callers. Without it all are anonymous. */
  readonly authenticators?: Authenticators | undefined;
  readonly clock: Clock;
  /** The time of day, in milliseconds since the epoch, for the expiry of credentials. Default: Date.now. */
  readonly now?: (() => number) | undefined;
  readonly logger: Logger;
  readonly observer?: RpcObserver | undefined;
  /** Traces the calls. Default: they are not traced. */
  readonly tracer?: CallTracer | undefined;
  /** Decides what callers may do. Default: without a policy, everything. */
  readonly authorizer?: Authorizer | undefined;
  /** Takes the audited calls. Default: none are audited. */
  readonly audit?: AuditLog | undefined;
  /** Default: `defaultServerLimits`. */
  readonly limits?: Partial<ServerLimits> | undefined;
  /**
   * Compresses Lists and the messages of watches for clients that accept it (`grpc-accept-encoding`). Not on a grpc-js server.
   * Default: nothing is compressed.
   */
  readonly compression?: CompressionOptions | undefined;
  /** What measures memory, to shed load before it is used up. Default: nothing is shed. */
  readonly memoryGauges?: readonly MemoryGauge[] | undefined;
  /**
   * Identifies this process in the path of requests that relays pass on: a request that has passed it already is refused.
   * Only for relays.
   *
   * @internal
   */
  readonly instanceId?: string | undefined;
  /**
   * The server that this one follows. Default: this server is not a relay.
   *
   * @internal
   */
  readonly upstream?: RelayedUpstream | undefined;
  /**
   * How labels and fields are read, by resource, which the Resources RPC reports. Default: opaque.
   *
   * @internal
   */
  readonly codecs?: ReadonlyMap<string, CodecKind> | undefined;
  /**
   * The keys in etcd of resources that etcd's own API serves as well, which the Resources RPC reports. Default: none.
   *
   * @internal
   */
  readonly etcdKeys?: ReadonlyMap<string, EtcdKeys> | undefined;
  /** Whether ListWatchService and WriteService are served. Default: true. */
  readonly hasOwnServices?: boolean | undefined;
  /** Random numbers in [0, 1), for jitter. Default: Math.random. */
  readonly random?: (() => number) | undefined;
}
