/*
 * The content of /status.json. Texts that clients choose are cut to 256 characters; times are in ISO 8601.
 */

/** Estimated quantiles of a latency, in milliseconds. */
export interface LatencyQuantiles {
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
  /** When the first attempt failed; absent while it is connected. */
  readonly failingSince?: string | undefined;
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
  /** Refused calls: by the limit that was reached, and `memory` for those shed under memory pressure. Only those above 0. */
  readonly refusedPerSecond: Readonly<Record<string, number>>;
}

export interface LatenciesReport {
  /** From an event's arrival until it is in the buffer of each live watch. Absent if there was no event. */
  readonly dispatch?: LatencyQuantiles | undefined;
  /** Duration of calls that are no streams. Absent if there was no such call. */
  readonly rpc?: LatencyQuantiles | undefined;
}

/** Calls that are no streams, of the last minute. */
export interface CallsReport {
  readonly ended: number;
  /** Those with a status that is the service's or its store's fault, by the status code. Only those above 0. */
  readonly failed: Readonly<Record<string, number>>;
}

/** The file of the embedded store. */
export interface DataFileReport {
  readonly path: string;
  readonly bytes: number;
  /** Size above which writes are refused. */
  readonly maxBytes: number;
  readonly revision: number;
  /** Oldest revision that can be read and watched from. */
  readonly oldestRevision: number;
  /** Commits that were kept since the start, and how long they took. Absent: no commit was kept. */
  readonly commits: number;
  readonly commitLatency?: LatencyQuantiles | undefined;
  /** The last commit that was not kept. */
  readonly lastFailure?: { readonly at: string; readonly text: string } | undefined;
}

/** What the service follows. */
export type UpstreamTier =
  | { readonly kind: "etcd"; readonly addresses: readonly string[] }
  /** `file`: absent, it is in memory. */
  | { readonly kind: "embedded"; readonly file?: DataFileReport | undefined }
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
  /** Whether it is the process that workers follow, and serves no clients itself. */
  readonly isMain?: true | undefined;
  readonly pid?: number | undefined;
  readonly isReady: boolean;
  /** Whether it has responded; if not, the following is absent, and its streams are not listed. */
  readonly hasResponded: boolean;
  readonly restarts: number;
  readonly connections?: number | undefined;
  readonly streams?: number | undefined;
  /** Resident memory. */
  readonly memoryBytes?: number | undefined;
  /** The memory that is nearest to its ceiling. Absent if none has one. */
  readonly memory?: MemoryReport | undefined;
  readonly eventLoopDelay?: EventLoopDelayReport | undefined;
}

export interface MemoryReport {
  /** What is measured: the heap, the control group, or the process by --memory-ceiling. */
  readonly limit: string;
  readonly usedBytes: number;
  readonly ceilingBytes: number;
  /** Such as `normal`; from `elevated` on, load is shed. */
  readonly pressure: string;
}

/** How late the event loop ran a timer in the last minute, in milliseconds. */
export interface EventLoopDelayReport {
  readonly p99Ms: number;
  readonly maxMs: number;
}

/** Lines of the log, of level warn or above, that differ in numbers only. */
export interface Problem {
  /** When the last one was written, and the first. */
  readonly at: string;
  readonly firstAt: string;
  readonly count: number;
  readonly level: "warn" | "error" | "fatal";
  /** The last one. */
  readonly text: string;
}

/** The certificates of a file in use. */
export interface CertificateReport {
  /** What the file is, such as `server-certificate`. */
  readonly kind: string;
  readonly file: string;
  /** Of the certificate that expires first. */
  readonly subject: string;
  /** From when on it is valid. */
  readonly notBefore: string;
  /** When it expires. */
  readonly notAfter: string;
}

/** `degraded`: it serves, and something needs attention. `failing`: clients are not served, or not with current data. */
export type VerdictLevel = "ok" | "degraded" | "failing";

export interface VerdictReason {
  readonly level: Exclude<VerdictLevel, "ok">;
  /** A clause without a full stop. */
  readonly text: string;
  /** The error behind it. */
  readonly detail?: string | undefined;
  /** Absent if it is not known. */
  readonly since?: string | undefined;
}

/** Whether the service is well, and if not, what is wrong. */
export interface Verdict {
  readonly level: VerdictLevel;
  /** One line: the first reason with its time, and how many others there are; or what is well. */
  readonly summary: string;
  /** The worst first. */
  readonly reasons: readonly VerdictReason[];
}

/** The open streams of a service, counted. */
export interface StreamCounts {
  /** When they were counted. */
  readonly at: string;
  readonly total: number;
  readonly byState: Readonly<Record<string, number>>;
  /** Number of those that have left an event unread for more than 5 s, or have not become live for so long. */
  readonly behind: number;
  /** Since when the one that is longest behind is. */
  readonly behindSince?: string | undefined;
  readonly worstLagRevisions?: number | undefined;
  /** The groups with the worst lag first, at most 50. */
  readonly groups: readonly StreamGroup[];
  /** Number of further groups, and of the streams in them. */
  readonly otherGroups: number;
  readonly otherStreams: number;
}

/** Streams of one caller with the same resource, state and scope. */
export interface StreamGroup {
  /** The parameter `group` that its streams are requested by. Absent if they can't be. */
  readonly id?: string | undefined;
  /** Absent: the callers beyond those that are distinguished. */
  readonly identity?: string | undefined;
  readonly caller?: string | undefined;
  readonly resource?: string | undefined;
  readonly kind: string;
  readonly state: string;
  /** Absent: a kind without scopes, or more different ones than are distinguished. */
  readonly scope?: StreamScope | undefined;
  readonly hasManyScopes: boolean;
  readonly streams: number;
  readonly behind: number;
  readonly behindSince?: string | undefined;
  readonly worstLagRevisions?: number | undefined;
}

export type StreamScope =
  | { readonly key: string }
  | { readonly prefix: string }
  | { readonly from: string; readonly to: string | null };

/** What is served by xDS. */
export interface XdsStatus {
  readonly types: readonly {
    /** Its short name, such as `cds`. */
    readonly type: string;
    readonly resource: string;
    /** Number of resources that are served. */
    readonly served: number;
    /** Number of instances that assignments are computed from. Absent: the type is stored. */
    readonly instances?: number | undefined;
    /** Number of stored values that are invalid, and not served. */
    readonly invalid: number;
  }[];
  /** At most 100. */
  readonly problems: readonly XdsProblem[];
}

/** A stored value that is not served, or what clients have refused (NACK). */
export interface XdsProblem {
  readonly kind: "invalid" | "refused";
  readonly type: string;
  /** The key, or the names and versions in the response. */
  readonly name: string;
  readonly text: string;
  readonly count: number;
  /** The client that has refused it last: its identity, and its own id for itself. */
  readonly by?: string | undefined;
}

/** All but the list of streams. */
export interface Overview {
  readonly at: string;
  readonly verdict: Verdict;
  readonly service: {
    /** Identifies this replica: the name of its host, and random digits. */
    readonly instance: string;
    readonly version: string;
    readonly node: string;
    readonly startedAt: string;
    readonly isReady: boolean;
  };
  readonly resources: readonly ResourceReport[];
  readonly rates: RatesReport;
  readonly latencies: LatenciesReport;
  readonly calls: CallsReport;
  readonly upstream: UpstreamTier;
  readonly processes: readonly ProcessReport[];
  /** The process that the workers follow; absent without workers. */
  readonly mainProcess?: ProcessReport | undefined;
  /** Absent until they have been counted once. */
  readonly streamCounts?: StreamCounts | undefined;
  /** The newest first, at most 50. */
  readonly problems: readonly Problem[];
  /** Absent: xDS is not served. */
  readonly xds?: XdsStatus | undefined;
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
  readonly scope?: StreamScope | undefined;
  readonly labelSelector?: string | undefined;
  readonly fieldSelector?: string | undefined;
  readonly ageSeconds?: number | undefined;
  /** Absent before the first batch. */
  readonly lagRevisions?: number | undefined;
  /** Age of the oldest event that it has not read; of a watch that has not become live for 5 s, its own age. */
  readonly behindSeconds?: number | undefined;
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
