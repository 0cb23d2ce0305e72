import type { Config, EtcdApiConfig, LimitsConfig, LogFormat } from "../../config/config.ts";
import { defaultServerLimits, type ServerLimits } from "../../server/limits/server-limits.ts";

/** How a worker differs from the service as a whole. */
interface WorkerTerms {
  readonly workers: number;
  readonly logFormat: LogFormat;
  /** The path of the main process' socket. */
  readonly socketPath: string;
}

/** The configuration of a worker: a relay of the main process, with its part of what all may use together. */
export function workerConfig(config: Config, terms: WorkerTerms): Config {
  const { workers, logFormat, socketPath } = terms;
  const address = `unix:${socketPath}`;
  const upstream = { addresses: [address], tls: undefined, tokenFile: undefined };
  return {
    ...config,
    // The main process, which keeps the store and the caches, serves its state also while etcd is away.
    ...{ etcd: undefined, data: undefined, upstream, cacheDir: undefined, workers: 1, logFormat },
    etcdApi: config.etcdApi && ofWorker(config.etcdApi, address),
    // The main process serves each by its own name.
    resources: config.resources.map((resource) => ({ ...resource, upstreamName: resource.name })),
    limits: dividedLimits(config.limits, workers),
    memoryCeilingBytes: ceilingOfProcess(config),
  };
}

/**
 * How long the main process may take to answer a keepalive ping, in milliseconds. Its socket is closed when it ends, and
 * there is no other endpoint: a short timeout would only fail the calls of a process that is busy.
 */
const keepaliveTimeoutMs = 20_000;

/** The next tier is the main process. */
function ofWorker(api: EtcdApiConfig, address: string): EtcdApiConfig {
  const endpoints = [address];
  const keepalive = { ...api.next.keepalive, timeoutMs: keepaliveTimeoutMs };
  const next = { ...api.next, endpoints, tls: undefined, tokenFile: undefined, keepalive };
  const ofMain = { syncIntervalMs: undefined, createsHistoryKey: false };
  // The main process names all that are registered.
  const advertiseClientUrl = api.registration === undefined ? api.advertiseClientUrl : undefined;
  // The main process has the namespace.
  const namespace = undefined;
  const own = { namespace, advertiseClientUrl, registration: undefined, hasSiblings: true };
  return { ...api, ...own, next: { ...next, ...ofMain } };
}

/** The part of `--memory-ceiling` of each process: of the workers and of the main process. */
export function ceilingOfProcess({
  memoryCeilingBytes,
  workers,
}: Pick<Config, "memoryCeilingBytes" | "workers">): number | undefined {
  const processes = workers === 1 ? 1 : workers + 1;
  return memoryCeilingBytes === undefined ? undefined : Math.floor(memoryCeilingBytes / processes);
}

/** A worker's part of the limits. Together the workers never exceed one; 0, which is no limit, stays. */
function dividedLimits(limits: LimitsConfig, workers: number): LimitsConfig {
  const divided = Object.entries(limits).map(([name, limit]) => [
    name,
    // A time, which is the same for each.
    name === "maxQueueMs" ? limit : Math.floor(limit / workers),
  ]);
  return Object.fromEntries(divided) as unknown as LimitsConfig;
}

/**
 * A worker's part of the pools that have no option. At least what one connection may hold, of unsent bytes twice as much,
 * since new responses wait above half of it.
 */
export function dividedPools(workers: number): Partial<ServerLimits> {
  const {
    maxUnreadBytes,
    maxUnreadBytesPerConnection,
    maxIncompleteCalls,
    maxIncompleteCallsPerCaller,
    maxUnsentBytes,
    maxUnsentBytesPerConnection,
    maxRetainedRequestBytes,
    maxRetainedRequestBytesPerConnection,
  } = defaultServerLimits;
  const part = (all: number, least: number): number => Math.max(least, Math.floor(all / workers));
  return {
    maxUnreadBytes: part(maxUnreadBytes, maxUnreadBytesPerConnection),
    maxIncompleteCalls: part(maxIncompleteCalls, maxIncompleteCallsPerCaller),
    maxUnsentBytes: part(maxUnsentBytes, 2 * maxUnsentBytesPerConnection),
    maxRetainedRequestBytes: part(maxRetainedRequestBytes, maxRetainedRequestBytesPerConnection),
  };
}
