import { randomUUID } from "node:crypto";
import type { Logger } from "pino";
import type { Clock } from "../../base/clock.ts";
import { WatchFanoutError } from "../../base/errors.ts";
import type { TimeSliceScheduler } from "../../base/time-slices.ts";
import type {
  CacheGetRequest,
  CacheListRequest,
  CacheWatchRequest,
} from "../../cacher/request/request.ts";
import type { Selection } from "../../cacher/request/selection.ts";
import type { GetResult, ListResult, Storage, WatchStream } from "../../storage/storage.ts";
import type { BytePool } from "../limits/byte-pool.ts";
import type { OpenStreams } from "../limits/open-streams.ts";
import type { SendBudget } from "../limits/send-budget.ts";
import type { StallDetector } from "../limits/stall-detector.ts";
import type { StreamOpenings } from "./stream-openings.ts";

/** Is told of every call. Methods are named like `watchfanout.v1.ListWatchService/Watch`. */
export interface RpcObserver {
  started(method: string): void;
  /** `code` is the name of the gRPC status code, such as `OK` or `NOT_FOUND`. */
  ended(method: string, code: string, milliseconds: number): void;
  /** Of ListWatchService and WriteService: responses, and their size without gRPC's framing. */
  sent(method: string, messages: number, bytes: number): void;
}

/** What is served under one resource's name; a Cacher is one. */
export interface ServedResource extends Pick<Storage, "put" | "delete"> {
  /** The history that revisions belong to; empty where that can't be known. */
  readonly currentHistoryId: string;
  /** Brings `currentHistoryId` up to date, where it is not kept so anyway. */
  findHistory?(signal: AbortSignal): Promise<void>;
  /** What the selectors pick; undefined if both are empty. Throws INVALID_REQUEST. */
  select(labelSelector: string, fieldSelector: string): Selection | undefined;
  get(request: CacheGetRequest): Promise<GetResult>;
  list(request: CacheListRequest): Promise<ListResult>;
  watch(request: CacheWatchRequest): WatchStream;
  readonly ready: boolean;
  onReadyChange(listener: (ready: boolean) => void): void;
  drain(): void;
}

/** What all calls of a server share. */
export interface CallContext {
  readonly resources: ReadonlyMap<string, ServedResource>;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly observer: RpcObserver | undefined;
  /** How long a client may take to accept the end of a stream before it is reset. */
  readonly endFlushMs: number;
  /** How long a client may take to accept a single response before the call is reset. */
  readonly responseFlushMs: number;
  /** How long a client may take to send its request before the call is ended. */
  readonly requestMs: number;
  /** The largest request, in bytes. */
  readonly maxRequestBytes: number;
  /** Requests that are not whole, not inflated or not served yet, by connection. */
  readonly requestPool: BytePool;
  /** For messages: what the pool allows each connection. */
  readonly maxUnreadBytesPerConnection: number;
  /** What has been built for clients and not been accepted by them, by connection. */
  readonly sendBudget: SendBudget;
  /** Has every watch and every health watch that is open. */
  readonly stallDetector: StallDetector;
  /** Has every stream that is open. */
  readonly streams: OpenStreams;
  /** Opens watches when it is their turn. */
  readonly streamOpenings: StreamOpenings;
  /** Reads the selectors of Lists, by turns between connections. */
  readonly parsingSelectors: TimeSliceScheduler;
  /** What is kept of requests, while they wait for their turn and while their streams are open. */
  readonly retainedRequests: BytePool;
  /** What those streams end with for which there is no room in `kept`. */
  readonly tooMuchRetained: () => WatchFanoutError;
  /** How old a watch becomes before it ends with DRAINING, at the most; 0: as old as it likes. */
  readonly maxStreamAgeMs: number;
  /** Numbers from 0 up to 1. */
  readonly random: () => number;
}

/** A method's name in logs and metrics, from a path as gRPC has it: the same without the first slash. */
export function methodOf(path: string): string {
  return path.slice(1);
}

/**
 * What a client may be told of whatever was thrown. A fault of ours is logged under an id, and the id is
 * all that the client is told.
 */
export function toClientError(error: unknown, method: string, logger: Logger): WatchFanoutError {
  if (error instanceof WatchFanoutError) {
    if (error.reason !== "INTERNAL" || error.metadata["id"] !== undefined) return error;
  }
  const id = randomUUID();
  logger.error({ err: error, id, method }, "a call failed for a fault of ours");
  return new WatchFanoutError(
    "INTERNAL",
    `The service failed for a fault of its own. Report it with the id ${id}, under which it is logged.`,
    { metadata: { id }, cause: error },
  );
}
