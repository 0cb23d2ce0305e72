import type { Clock } from "../../base/clock.ts";
import { Turns } from "../../base/turns.ts";
import { settledWithin } from "../../base/wait.ts";
import type { Cacher } from "../../cacher/cacher.ts";
import type {
  CallsReport,
  EventLoopDelayReport,
  MemoryReport,
  Problem,
} from "../../server/admin/status/status.ts";
import { type StreamPage, selectStreams } from "../../server/admin/status/stream-page.ts";
import type { StreamQuery } from "../../server/admin/status/stream-query.ts";
import type { StreamsOrigin } from "../../server/admin/status/stream-report.ts";
import { type StreamTally, tallyStreams } from "../../server/admin/status/stream-tally.ts";
import type { RunningServer, ServerStats } from "../../server/server.ts";
import type { EventLoopMonitor } from "../../telemetry/process-metrics.ts";
import type { RpcMetrics } from "../../telemetry/rpc-metrics.ts";
import type { LatencyBuckets } from "../../telemetry/stage-latency.ts";
import type { XdsReport } from "../../xds/xds-door.ts";
import type { ProcessCounts } from "./rates.ts";
import type { RecentProblems } from "./recent-problems.ts";

/** What a process reports of itself. Can be sent between processes. */
export interface ProcessSnapshot {
  readonly pid: number;
  readonly connections: number;
  readonly streams: number;
  readonly memoryBytes: number;
  /** Undefined: no memory has a ceiling, or it has not been measured yet. */
  readonly memory: MemoryReport | undefined;
  readonly eventLoopDelay: EventLoopDelayReport | undefined;
  readonly counts: ProcessCounts;
  readonly calls: CallsReport;
  /** Whether the store has refused a write in the last minute because it is full. */
  readonly isStoreFull: boolean;
  readonly problems: readonly Problem[];
  /** Undefined: it does not serve xDS. */
  readonly xds: XdsReport | undefined;
  /** Undefined until its streams have been counted once. */
  readonly tally: StreamTally | undefined;
}

/** How long a snapshot waits for its streams to be counted, in milliseconds. Then it has the counts from before. */
const maxTallyMs = 1_000;
/** The counts are used for this many times as long as it took to count, so that counting takes a tenth of the time at most. */
const tallyRest = 9;

/** The parts of a process that its status is read from. Undefined: not there yet. */
export interface ProcessParts {
  readonly caches: ReadonlyMap<string, Cacher>;
  readonly server: RunningServer | undefined;
  readonly xds?: { report(): XdsReport } | undefined;
  readonly rpcs: RpcMetrics | undefined;
  readonly dispatchLatency: LatencyBuckets | undefined;
  readonly eventLoop: Pick<EventLoopMonitor, "worst"> | undefined;
}

/** The status of one process: the only one of a service, its main process, or a worker. */
export class ProcessStatus {
  readonly #worker: number;
  readonly #clock: Clock;
  readonly #turns: Turns;
  readonly #parts: () => ProcessParts;
  readonly #problems: RecentProblems | undefined;
  /** The same for all pages, so that times do not move between them. */
  readonly #epochMs: number;
  #tally: StreamTally | undefined;
  #counting: Promise<void> | undefined;
  /** Until when the counts are used, in the clock's milliseconds. */
  #tallyUntil = -Infinity;

  /** `worker`: its number, from 1; 0: it has no workers, or is their main process. */
  constructor(
    worker: number,
    clock: Clock,
    parts: () => ProcessParts,
    problems: RecentProblems | undefined,
  ) {
    this.#worker = worker;
    this.#clock = clock;
    this.#turns = new Turns(clock);
    this.#parts = parts;
    this.#problems = problems;
    this.#epochMs = Date.now() - clock.now();
  }

  /** Counts the streams again, in time slices, unless that took long a short time ago. */
  async snapshot(): Promise<ProcessSnapshot> {
    await this.#countStreams();
    const { caches, server, xds, rpcs, dispatchLatency, eventLoop } = this.#parts();
    const stats = server?.stats();
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
      memory: stats && memoryOf(stats),
      eventLoopDelay: eventLoop && delayOf(eventLoop),
      counts: {
        ...{ eventsReceived, eventsDispatched, rpcs: started },
        ...{ messagesSent: sentMessages, bytesSent: sentBytes },
        refused: stats === undefined ? {} : refusalsOf(stats),
        dispatchLatency: bucketsOf(dispatchLatency),
        rpcLatency: bucketsOf(rpcs?.unaryBuckets),
      },
      isStoreFull: stats?.isStoreFull ?? false,
      calls: rpcs?.recentCalls.counts() ?? { ended: 0, failed: {} },
      problems: this.#problems?.newest ?? [],
      xds: xds?.report(),
      tally: this.#tally,
    };
  }

  /** Looks at all streams, in time slices. */
  streams(query: StreamQuery): Promise<StreamPage> {
    const { server } = this.#parts();
    return this.#turns.run({}, selectStreams(server?.streams ?? [], query, this.#origin()));
  }

  /** Resolves when the streams are counted, or after a second. */
  async #countStreams(): Promise<void> {
    if (this.#counting === undefined && this.#clock.now() < this.#tallyUntil) return;
    this.#counting ??= this.#count().finally(() => {
      this.#counting = undefined;
    });
    await settledWithin(this.#counting, this.#clock, maxTallyMs);
  }

  async #count(): Promise<void> {
    const origin = this.#origin();
    this.#tally = await this.#turns.run(
      {},
      tallyStreams(this.#parts().server?.streams ?? [], origin),
    );
    const now = this.#clock.now();
    this.#tallyUntil = now + (now - origin.now) * tallyRest;
  }

  #origin(): StreamsOrigin {
    return { worker: this.#worker, now: this.#clock.now(), epochMs: this.#epochMs };
  }
}

/** The memory that is nearest to its ceiling. */
function memoryOf({ pressure: { level, readings } }: ServerStats): MemoryReport | undefined {
  const usage = ({ usedBytes, ceilingBytes }: (typeof readings)[number]) =>
    usedBytes / ceilingBytes;
  const [nearest] = readings.toSorted((a, b) => usage(b) - usage(a));
  if (nearest === undefined) return undefined;
  const { limit, usedBytes, ceilingBytes } = nearest;
  return { limit, usedBytes, ceilingBytes, pressure: level };
}

function refusalsOf({ callers, pressure: { shed } }: ServerStats): Record<string, number> {
  const memory = Object.values(shed).reduce((sum, count) => sum + count, 0);
  return { ...Object.fromEntries(callers.refused), memory };
}

function delayOf(eventLoop: Pick<EventLoopMonitor, "worst">): EventLoopDelayReport {
  const { p99, max } = eventLoop.worst();
  return { p99Ms: p99 * 1_000, maxMs: max * 1_000 };
}

function bucketsOf(buckets: LatencyBuckets | undefined): ProcessCounts["rpcLatency"] {
  return { boundaries: buckets?.boundaries ?? [], counts: buckets?.counts() ?? [] };
}
