import { randomUUID } from "node:crypto";
import type { Logger } from "pino";
import type { Clock } from "../../base/clock.ts";
import { type Reason, WatchFanoutError } from "../../base/errors.ts";
import type { Turns } from "../../base/turns.ts";
import type {
  CacheGetRequest,
  CacheListRequest,
  CacheWatchRequest,
  Reached,
} from "../../cacher/request/request.ts";
import type { Selection } from "../../cacher/request/selection.ts";
import type { Authorizer } from "../../policy/authorizer.ts";
import type { GetResult, ListResult, Storage, WatchStream } from "../../storage/storage.ts";
import type { Ledger } from "../kernel/ledger.ts";
import type { OpenStreams } from "../kernel/open-streams.ts";
import type { StallDetector } from "../kernel/stall-detector.ts";
import type { CallerLimits } from "../limits/caller-limits.ts";
import type { Caller } from "../limits/callers.ts";
import type { Credentials } from "../limits/credentials.ts";
import type { Http2Defences } from "../limits/http2-defences.ts";
import type { SendBudget } from "../limits/send-budget.ts";
import type { SlowClients } from "../limits/slow-clients.ts";
import type { MemoryPressure } from "../pressure/memory-pressure.ts";
import type { AuditLog } from "./audit.ts";
import type { CallClosings } from "./call-closings.ts";
import { type CallTracer, type TracedCall, traceFields } from "./call-span.ts";
import type { FullStore } from "./full-store.ts";
import type { RequestsInFlight } from "./requests-in-flight.ts";
import type { StreamOpenings } from "./stream-openings.ts";

/** Observes every call. Method names look like `watchfanout.v1.ListWatchService/Watch`. */
export interface RpcObserver {
  started(method: string): void;
  /** `code` is the name of the gRPC status code, such as `OK` or `NOT_FOUND`. */
  ended(method: string, code: string, milliseconds: number): void;
  /** Responses of ListWatchService and WriteService, and their size in bytes without gRPC's framing. */
  sent(method: string, messages: number, bytes: number): void;
  /** The service has refused or ended a watch. `RESET`: without a status, as its client accepted too little. */
  watchEnded?(reason: Reason | "RESET"): void;
}

/** How labels and fields are read. */
export type CodecKind = "opaque" | "json" | "protobuf";

/** A resource as the server uses it. A Cacher is one. */
export interface ServedResource extends Pick<Storage, "put" | "delete"> {
  /** Shown to operators. */
  readonly name?: string;
  /** The history that revisions belong to; empty if it can't be known. */
  readonly currentHistoryId: string;
  /** Updates `currentHistoryId`. Absent where it is always current. */
  findHistory?(signal: AbortSignal): Promise<void>;
  /** Parses the selectors; undefined if both are empty. Throws INVALID_REQUEST. */
  select(labelSelector: string, fieldSelector: string): Selection | undefined;
  /**
   * Waits until the resource is as new as a read requires. Pass the result to the read. Absent: a read waits for nothing
   * that the service has to know of.
   */
  reach?(request: CacheGetRequest | CacheListRequest): Promise<Reached>;
  /** The size of a value that `get` would return now, in bytes; undefined or absent: it is not known. */
  valueBytes?(key: string): number | undefined;
  get(request: CacheGetRequest, reached?: Reached): Promise<GetResult>;
  list(request: CacheListRequest, reached?: Reached): Promise<ListResult>;
  watch(request: CacheWatchRequest): WatchStream;
  /** The revision of the cache; 0 before it is ready. Absent: there is no cache. */
  readonly revision?: number | undefined;
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

/** What the methods of a service may know of the server: what is served, and what callers may know of it. */
export interface ServiceContext {
  /** Undefined: this server is not a relay. */
  readonly upstream?: RelayedUpstream | undefined;
  /** How labels and fields of the resources are read, by resource. Absent: not at all. */
  readonly codecs?: ReadonlyMap<string, CodecKind> | undefined;
  readonly resources: ReadonlyMap<string, ServedResource>;
  /** Decides what callers may do. */
  readonly authorizer: Authorizer;
}

/** What all calls of a server share, for the server itself: its pools, budgets and times. */
export interface CallContext extends ServiceContext {
  /** Identifies this process in the path of requests that relays pass on. Undefined: it is not a relay. */
  readonly instanceId?: string | undefined;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly observer: RpcObserver | undefined;
  /** Absent: calls are not traced. */
  readonly tracer?: CallTracer | undefined;
  /** Knows which credentials are no longer valid. */
  readonly credentials: Pick<Credentials, "lapsed">;
  /** Undefined: calls are not audited. */
  readonly audit: AuditLog | undefined;
  /** How long a client may take to accept the end of a stream before it is reset, in milliseconds. */
  readonly endFlushMs: number;
  /** How long a client may take to accept one response before the call is reset, in milliseconds. */
  readonly responseFlushMs: number;
  /** How long a client may take to send its request before the call is ended, in milliseconds. */
  readonly requestMs: number;
  /** The largest request, in bytes. */
  readonly maxRequestBytes: number;
  /** Requests that are not complete, not inflated or not handled yet, by connection. */
  readonly requestPool: Ledger;
  /** Calls whose request has not arrived completely, by caller. */
  readonly incompleteCalls: Ledger<Caller>;
  /** The pool's bound per connection, in bytes, for error texts. */
  readonly maxUnreadBytesPerConnection: number;
  /** Responses that clients have not accepted, by connection. */
  readonly sendBudget: SendBudget;
  /** Ends the streams whose client does not accept the message that is outstanding. */
  readonly stallDetector: StallDetector;
  /** Refuses calls while memory is short. Absent: none is refused for that. */
  readonly memoryPressure?: Pick<MemoryPressure, "refusal"> | undefined;
  /** Counts clients that are stopped. Absent: they are not counted. */
  readonly defences?: Pick<Http2Defences, "count"> | undefined;
  /** Counts calls that end since their client accepts too little. Absent: they are not counted. */
  readonly slowClients?: Pick<SlowClients, "ended"> | undefined;
  /** Counts writes that the store refuses because it is full. Absent: they are not counted. */
  readonly fullStore?: Pick<FullStore, "report"> | undefined;
  /** Knows the caller of each call, and limits what each caller may have. */
  readonly callerLimits: CallerLimits;
  /** Bounds the requests that are handled at once. */
  readonly inFlight: Readonly<Record<"reads" | "writes", RequestsInFlight>>;
  /** Counts the open streams. */
  readonly streams: OpenStreams;
  /** Releases what ended calls hold, in time slices. */
  readonly callClosings: CallClosings;
  /** Opens watches in time slices, by caller. */
  readonly streamOpenings: StreamOpenings;
  /** Does the work of unary calls that takes long, in time slices, by caller. */
  readonly parsingSelectors: Turns;
  /** Parts of requests that calls retain while they wait for a time slice and while their streams are open. */
  readonly retainedRequests: Ledger;
  /** Makes the error of a call whose charge in `retainedRequests` was evicted. */
  readonly tooMuchRetained: () => WatchFanoutError;
  /** Maximum age of a watch in milliseconds, after which it ends with DRAINING; 0: unlimited. */
  readonly maxStreamAgeMs: number;
  /** Random numbers in [0, 1). */
  readonly random: () => number;
}

/**
 * Turns anything thrown into the error that the client gets. An internal error is logged with an id, and the client gets
 * only the id. `call` is the call that it ends.
 */
export function toClientError(
  error: unknown,
  method: string,
  logger: Logger,
  call?: TracedCall,
): WatchFanoutError {
  if (error instanceof WatchFanoutError) {
    if (error.reason !== "INTERNAL" || error.metadata["id"] !== undefined) return error;
  }
  const id = randomUUID();
  const fields = { err: error, id, method, ...traceFields(call) };
  logger.error(fields, "a call failed because of an internal error");
  return new WatchFanoutError(
    "INTERNAL",
    `The service failed because of an internal error. Report it with the id ${id}, which is in its log.`,
    { metadata: { id }, cause: error },
  );
}
