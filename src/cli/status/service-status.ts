import type { Clock } from "../../base/clock.ts";
import type { WatchedCertificate, WatchedFiles } from "../../base/watched-files.ts";
import type { Cacher } from "../../cacher/cacher.ts";
import type { Config } from "../../config/config.ts";
import type { UpstreamOutage } from "../../etcd/client/upstream.ts";
import type { ReadinessCheck } from "../../server/admin/admin.ts";
import type {
  CertificateReport,
  DataFileReport,
  Overview,
  ProcessReport,
  ResourceReport,
  StreamsReport,
  UpstreamReport,
  UpstreamTier,
} from "../../server/admin/status/status.ts";
import type { StatusSource } from "../../server/admin/status/status-pages.ts";
import { mergePages, type StreamPage } from "../../server/admin/status/stream-page.ts";
import type { StreamQuery } from "../../server/admin/status/stream-query.ts";
import { countsOfTallies } from "../../server/admin/status/stream-tally.ts";
import { sumOfCalls } from "../../telemetry/rpc-metrics.ts";
import { version } from "../output/version.ts";
import type { ProcessSnapshot, ProcessStatus } from "./process-status.ts";
import { noLatency, type ProcessCounts, Rates } from "./rates.ts";
import { newestOf } from "./recent-problems.ts";
import { verdictOf } from "./verdict.ts";
import { xdsStatusOf } from "./xds-status.ts";

/** The main process of a service, or the only one. What changes is read each time. */
interface MainProcess {
  /** Identifies the replica. */
  readonly id: string;
  readonly caches: ReadonlyMap<string, Cacher>;
  /** With the resources that are served. */
  readonly config: Config;
  /** The servers that a relay watches now. */
  readonly upstreamsInUse: readonly string[];
  /** Has the certificates of all processes. */
  readonly context: { readonly files: Pick<WatchedFiles, "certificates"> };
  /** The file of the embedded store. Undefined: it has no file, or is not open yet. */
  readonly dataFile?: DataFileReport | undefined;
  readonly etcdApi: { readonly outage: UpstreamOutage | undefined } | undefined;
}

/** What the status of a service is read from. */
interface ServiceStatusOptions {
  readonly main: MainProcess;
  readonly status: ProcessStatus;
  /** The checks of /readyz, those of the workers included. */
  readonly checks: () => readonly ReadinessCheck[];
  readonly workers: StatusOfWorkers | undefined;
  readonly clock: Clock;
}

/** The workers of a service. */
export interface StatusOfWorkers {
  stats(): readonly {
    readonly worker: number;
    readonly isReady: boolean;
    readonly restarts: number;
  }[];
  /** Those of the workers that respond within 2 s, by the worker's number. */
  snapshots(): Promise<ReadonlyMap<number, ProcessSnapshot>>;
  streams(query: StreamQuery): Promise<ReadonlyMap<number, StreamPage>>;
}

/** The status of a service, with those of its workers. */
export class ServiceStatus implements StatusSource {
  readonly #options: ServiceStatusOptions;
  readonly #startedAt = new Date();
  readonly #rates: Rates;

  constructor(options: ServiceStatusOptions) {
    this.#options = options;
    this.#rates = new Rates(options.clock.now());
  }

  async overview(): Promise<Overview> {
    const { main: service, status, workers, clock } = this.#options;
    const [main, ofWorkers] = await Promise.all([status.snapshot(), workers?.snapshots()]);
    const all = [main, ...(ofWorkers?.values() ?? [])];
    // The streams of the main process are those of its workers.
    const serving = ofWorkers === undefined ? [main] : [...ofWorkers.values()];
    const checks = this.#options.checks();
    const etcdApiOutage = service.etcdApi?.outage;
    const isReady = isReadyBy(checks);
    const { rates, latencies } = this.#rates.next(countsOf(main, ofWorkers), clock.now());
    const isStoreFull = serving.some((each) => each.isStoreFull);
    const facts = {
      at: new Date().toISOString(),
      service: {
        ...{ instance: service.id, version, node: process.version, isReady },
        startedAt: this.#startedAt.toISOString(),
      },
      ...{ resources: this.#resources(), rates, upstream: this.#upstream() },
      calls: sumOfCalls(serving.map(({ calls }) => calls)),
      certificates: service.context.files.certificates().map(certificateReport),
      processes: this.#processes(main, ofWorkers, isReady),
      mainProcess: ofWorkers === undefined ? undefined : mainReport(main, checks),
      streamCounts: countsOfTallies(
        serving.flatMap(({ tally }) => (tally === undefined ? [] : [tally])),
      ),
    };
    return {
      verdict: verdictOf({ ...facts, checks, isStoreFull, etcdApiOutage }),
      ...{ ...facts, latencies },
      problems: newestOf(all.map(({ problems }) => problems)),
      xds: xdsStatusOf(serving.flatMap(({ xds }) => xds ?? [])),
    };
  }

  async streams(query: StreamQuery): Promise<StreamsReport> {
    // The streams of the main process are those of its workers.
    const { status, workers } = this.#options;
    const pages =
      workers === undefined
        ? [await status.streams(query)]
        : [...(await workers.streams(query)).values()];
    return mergePages(query, pages);
  }

  #resources(): ResourceReport[] {
    const { config, caches } = this.#options.main;
    return config.resources.map(({ name }) => {
      const cache = caches.get(name);
      return cache === undefined ? { ...uncached, name } : cached(name, cache);
    });
  }

  #upstream(): UpstreamTier {
    const { config, upstreamsInUse, dataFile: file } = this.#options.main;
    const { etcd, upstream } = config;
    if (upstream !== undefined) {
      return { kind: "watch-fanout", addresses: upstream.addresses, inUse: upstreamsInUse };
    }
    return etcd === undefined
      ? { kind: "embedded", file }
      : { kind: "etcd", addresses: etcd.endpoints.map(withoutCredentials) };
  }

  #processes(
    main: ProcessSnapshot,
    ofWorkers: ReadonlyMap<number, ProcessSnapshot> | undefined,
    isReady: boolean,
  ): readonly ProcessReport[] {
    const { workers } = this.#options;
    if (workers === undefined) {
      return [{ worker: 0, isReady, hasResponded: true, restarts: 0, ...numbersOf(main) }];
    }
    return workers.stats().map(({ worker, isReady, restarts }) => {
      const snapshot = ofWorkers?.get(worker);
      const numbers = snapshot === undefined ? {} : numbersOf(snapshot);
      return { worker, isReady, hasResponded: snapshot !== undefined, restarts, ...numbers };
    });
  }
}

function isReadyBy(checks: readonly ReadinessCheck[]): boolean {
  return checks.every(({ failure }) => failure === undefined);
}

function certificateReport(certificate: WatchedCertificate): CertificateReport {
  const { kind, file, subject, notBefore, notAfter } = certificate;
  const [from, to] = [new Date(notBefore).toISOString(), new Date(notAfter).toISOString()];
  return { kind, file, subject, notBefore: from, notAfter: to };
}

function mainReport(main: ProcessSnapshot, checks: readonly ReadinessCheck[]): ProcessReport {
  const isReady = isReadyBy(checks.filter(({ name }) => !name.startsWith("worker/")));
  return { worker: 0, isMain: true, isReady, hasResponded: true, restarts: 0, ...numbersOf(main) };
}

function numbersOf(snapshot: ProcessSnapshot) {
  const { pid, connections, streams, memoryBytes } = snapshot;
  const { memory, eventLoopDelay } = snapshot;
  return { pid, connections, streams, memoryBytes, memory, eventLoopDelay };
}

/**
 * The counts by process. With workers, what is received is counted in the main process, and what is sent to clients in the
 * workers.
 */
function countsOf(
  main: ProcessSnapshot,
  workers: ReadonlyMap<number, ProcessSnapshot> | undefined,
): ReadonlyMap<string, ProcessCounts> {
  if (workers === undefined) return new Map([["main", main.counts]]);
  const zero = { eventsDispatched: 0, rpcs: 0, messagesSent: 0, bytesSent: 0, refused: {} };
  const unused = { dispatchLatency: noLatency, rpcLatency: noLatency };
  const counts = new Map<string, ProcessCounts>();
  for (const { pid, counts: own } of workers.values()) {
    counts.set(`worker ${pid}`, { ...own, eventsReceived: 0 });
  }
  return counts.set("main", { ...main.counts, ...zero, ...unused });
}

function cached(name: string, cache: Cacher): ResourceReport {
  const summary = cache.summary();
  const { revision, upstreamRevision, objects, eventWindow, ready } = summary;
  const { upstreamSilenceMs, failingForMs, reconnects, relists } = summary;
  const { staleForMs } = cache;
  return {
    ...{ name, isCached: true, isReady: ready, revision, objects, eventWindow },
    lagRevisions: upstreamRevision - revision,
    upstream: {
      state: upstreamStates[summary.step],
      error: cache.upstreamFailure?.message,
      failingSince: failingForMs === undefined ? undefined : timeBefore(failingForMs),
      lastReceivedAt: timeBefore(upstreamSilenceMs),
      staleSeconds: staleForMs === undefined ? undefined : staleForMs / 1_000,
      ...{ reconnects, relists },
    },
  };
}

function timeBefore(ms: number): string {
  return new Date(Date.now() - ms).toISOString();
}

/** A resource without a cache. */
const uncached = { isCached: false, isReady: true, revision: 0, lagRevisions: 0, objects: 0 };

const upstreamStates = {
  ...{ watching: "connected", list: "relisting", resume: "disconnected" },
} as const satisfies Record<string, UpstreamReport["state"]>;

/** A URL without its user information. */
function withoutCredentials(url: string): string {
  return url.replace(/\/\/[^/]*@/, "//");
}
