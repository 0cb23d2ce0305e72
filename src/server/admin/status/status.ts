/*
 * The content of /status.json. Texts that clients choose are cut to 256 characters; times are in ISO 8601.
 */

/** Estimated quantiles of a latency, in milliseconds. */
interface LatencyQuantiles {
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
}

export interface ResourceReport {
  readonly name: string;
  readonly isCached: boolean;
  /** Whether the cache has synced with the store. */
  readonly isReady: boolean;
  readonly revision: number;
  /** Difference between the newest revision that the store is known to have had and the cache's. */
  readonly lagRevisions: number;
  readonly objects: number;
  /** Absent without a cache. */
  readonly eventWindow?: {
    readonly oldestRevision: number;
    readonly newestRevision: number;
    readonly events: number;
    /** Estimated. */
    readonly bytes: number;
  };
  /** Absent without a cache: each read asks the store. */
  readonly upstream?: UpstreamReport;
}

/** The connection of a cache to its store. */
export interface UpstreamReport {
  /** `relisting`: the whole state is listed, for the first time or again. `disconnected`: the watch will be resumed. */
  readonly state: "connected" | "relisting" | "disconnected";
  /** Why the last attempt failed; absent while it is connected. */
  readonly error?: string | undefined;
  /** When the store last delivered events, progress or a list. */
  readonly lastReceivedAt: string;
  /** How old the cache may be, in seconds, while its source can't be reached. */
  readonly staleSeconds?: number | undefined;
  readonly reconnects: number;
  readonly relists: number;
}

export interface RatesReport {
  /** What the rates are averages of: the time since the previous look, or since the start, in seconds. */
  readonly overSeconds: number;
  /** From the store. */
  readonly eventsReceivedPerSecond: number;
  /** Put into the buffers of watches, once for each. */
  readonly eventsDispatchedPerSecond: number;
  readonly rpcsPerSecond: number;
  readonly messagesSentPerSecond: number;
  readonly bytesSentPerSecond: number;
}

export interface LatenciesReport {
  /** From an event's arrival until it is in the buffer of each live watch. Absent if there was no event. */
  readonly dispatch?: LatencyQuantiles | undefined;
  /** Duration of calls that are no streams. Absent if there was no such call. */
  readonly rpc?: LatencyQuantiles | undefined;
}

/** What the service follows. */
export type UpstreamTier =
  | { readonly kind: "etcd"; readonly addresses: readonly string[] }
  | { readonly kind: "embedded" }
  | {
      readonly kind: "watch-fanout";
      readonly addresses: readonly string[];
      /** The servers that the relay watches now. */
      readonly inUse: readonly string[];
    };

/** A process that serves clients: a worker, or the only process of the service. */
export interface ProcessReport {
  /** The worker's number, from 1; 0: the only process. */
  readonly worker: number;
  readonly pid?: number | undefined;
  readonly isReady: boolean;
  /** Whether it has responded; if not, the following is absent, and its streams are not listed. */
  readonly hasResponded: boolean;
  readonly restarts: number;
  readonly connections?: number | undefined;
  readonly streams?: number | undefined;
  /** Resident memory. */
  readonly memoryBytes?: number | undefined;
}

/** A line of the log, of level warn or above. */
export interface Problem {
  readonly at: string;
  readonly level: "warn" | "error" | "fatal";
  readonly text: string;
}

/** The certificates of a file in use. */
export interface CertificateReport {
  /** What the file is, such as `server-certificate`. */
  readonly kind: string;
  readonly file: string;
  /** Of the certificate that expires first. */
  readonly subject: string;
  /** When that expires. */
  readonly notAfter: string;
}

/** All but the streams. */
export interface Overview {
  readonly at: string;
  readonly service: {
    readonly version: string;
    readonly node: string;
    readonly startedAt: string;
    readonly isReady: boolean;
  };
  readonly resources: readonly ResourceReport[];
  readonly rates: RatesReport;
  readonly latencies: LatenciesReport;
  readonly upstream: UpstreamTier;
  readonly processes: readonly ProcessReport[];
  /** The newest first, at most 50. */
  readonly problems: readonly Problem[];
  /** Those of the main process, which has the files of all. */
  readonly certificates: readonly CertificateReport[];
}

export interface StreamReport {
  readonly id: number;
  /** 0: the only process. */
  readonly worker: number;
  readonly kind: string;
  readonly identity: string;
  /** What limits count against: such as the host of an anonymous caller. */
  readonly caller?: string | undefined;
  /** Absent: it has no resource, or several. */
  readonly resource?: string | undefined;
  readonly state: string;
  readonly scope?:
    | { readonly key: string }
    | { readonly prefix: string }
    | { readonly from: string; readonly to: string | null }
    | undefined;
  readonly labelSelector?: string | undefined;
  readonly fieldSelector?: string | undefined;
  readonly ageSeconds?: number | undefined;
  /** Absent before the first batch. */
  readonly lagRevisions?: number | undefined;
  /** From 0 to 1. */
  readonly bufferFill?: number | undefined;
  readonly messagesSent?: number | undefined;
}

/** A page of the streams. */
export interface StreamsReport {
  /** Number of open streams. */
  readonly total: number;
  /** Number of those that match the search. */
  readonly matched: number;
  /** The matching ones by state. */
  readonly byState: Readonly<Record<string, number>>;
  readonly items: readonly StreamReport[];
  /** The parameter `cursor` of the next page; absent if this is the last. */
  readonly next?: string | undefined;
}

/** The response of /status.json. */
export interface Status extends Overview {
  readonly streams: StreamsReport;
}
