import type { Clock } from "../../base/clock.ts";
import { runInTimeSlices } from "../../base/time-slice-queue.ts";
import type { TimeSlicedWork } from "../../base/time-slices.ts";
import type { WatchedCertificate } from "../../base/watched-files.ts";
import type { Cacher } from "../../cacher/cacher.ts";
import type { CertificateReport, Problem } from "../../server/admin/status/status.ts";
import { type StreamPage, selectStreams } from "../../server/admin/status/stream-page.ts";
import type { StreamQuery } from "../../server/admin/status/stream-query.ts";
import type { RunningServer } from "../../server/server.ts";
import type { LatencyBuckets } from "../../telemetry/latency-buckets.ts";
import type { RpcMetrics } from "../../telemetry/rpc-metrics.ts";
import type { ProcessCounts } from "./rates.ts";
import type { RecentProblems } from "./recent-problems.ts";

/** What a process reports of itself. Can be sent between processes. */
export interface ProcessSnapshot {
  readonly pid: number;
  readonly connections: number;
  readonly streams: number;
  readonly memoryBytes: number;
  readonly counts: ProcessCounts;
  readonly problems: readonly Problem[];
  readonly certificates: readonly CertificateReport[];
}

/** The parts of a process that its status is read from. Undefined: not there yet. */
export interface ProcessParts {
  readonly caches: ReadonlyMap<string, Cacher>;
  readonly server: RunningServer | undefined;
  readonly rpcs: RpcMetrics | undefined;
  readonly dispatchLatency: LatencyBuckets | undefined;
  readonly certificates: readonly WatchedCertificate[];
}

/** The status of one process: the only one of a service, its main process, or a worker. */
export class ProcessStatus {
  readonly #worker: number;
  readonly #clock: Clock;
  readonly #parts: () => ProcessParts;
  readonly #problems: RecentProblems | undefined;
  /** The same for all pages, so that times do not move between them. */
  readonly #epochMs: number;

  /** `worker`: its number, from 1; 0: it has no workers, or is their main process. */
  constructor(
    worker: number,
    clock: Clock,
    parts: () => ProcessParts,
    problems: RecentProblems | undefined,
  ) {
    this.#worker = worker;
    this.#clock = clock;
    this.#parts = parts;
    this.#problems = problems;
    this.#epochMs = Date.now() - clock.now();
  }

  /** Costs the same for any number of streams. */
  snapshot(): ProcessSnapshot {
    const { caches, server, rpcs, dispatchLatency, certificates } = this.#parts();
    let [eventsReceived, eventsDispatched] = [0, 0];
    for (const cache of caches.values()) {
      const summary = cache.summary();
      eventsReceived += summary.receivedEvents;
      eventsDispatched += summary.dispatchedEvents;
    }
    const { started = 0, sentMessages = 0, sentBytes = 0 } = rpcs?.totals() ?? {};
    return {
      pid: process.pid,
      connections: server?.connections ?? 0,
      streams: server?.openStreams ?? 0,
      memoryBytes: process.memoryUsage.rss(),
      counts: {
        ...{ eventsReceived, eventsDispatched, rpcs: started },
        ...{ messagesSent: sentMessages, bytesSent: sentBytes },
        dispatchLatency: bucketsOf(dispatchLatency),
        rpcLatency: bucketsOf(rpcs?.unaryBuckets),
      },
      problems: this.#problems?.newest ?? [],
      certificates: certificates.map(({ kind, file, subject, notAfter }) => ({
        ...{ kind, file, subject },
        notAfter: new Date(notAfter).toISOString(),
      })),
    };
  }

  /** Looks at all streams, in time slices. */
  streams(query: StreamQuery): Promise<StreamPage> {
    const { server } = this.#parts();
    const origin = { worker: this.#worker, now: this.#clock.now(), epochMs: this.#epochMs };
    const work = selectStreams(server?.streams ?? [], query, origin);
    return new Promise((resolve, reject) => {
      runInTimeSlices(this.#clock, settling(work, resolve, reject));
    });
  }
}

/** The work, with its end reported. It never throws. */
function* settling<T>(
  work: TimeSlicedWork<T>,
  resolve: (value: T) => void,
  reject: (error: unknown) => void,
): TimeSlicedWork<void> {
  try {
    resolve(yield* work);
  } catch (error) {
    reject(error);
  }
}

function bucketsOf(buckets: LatencyBuckets | undefined): ProcessCounts["rpcLatency"] {
  return { boundaries: buckets?.boundaries ?? [], counts: buckets?.counts() ?? [] };
}
