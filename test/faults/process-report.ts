import { monitorEventLoopDelay } from "node:perf_hooks";

/** How long a process's event loop was held, since the last report, in milliseconds. */
export interface LoopReport {
  /** How much later than they should timers ran: percentiles of all, and the longest. */
  readonly delayP50: number;
  readonly delayP99: number;
  readonly delayMax: number;
  /**
   * The most CPU time that the main thread took between two looks at the clock, of which there is one in every
   * turn that takes long: what the process's own work held the loop for, however busy the machine is.
   */
  readonly longestTurn: number;
  /** The turns that took more than 20 ms of CPU time, up to 100 of them. */
  readonly longTurns: readonly LongTurn[];
  /** CPU time of all threads. */
  readonly cpu: number;
}

/** One long turn of the event loop. */
export interface LongTurn {
  /** When it ended, in milliseconds since the epoch. */
  readonly at: number;
  /** CPU time of the main thread, in milliseconds. */
  readonly cpu: number;
}

/** The resources that a process uses. */
export interface ProcessReport {
  /** Bytes of objects that are in use. */
  readonly heapUsed: number;
  /** Bytes of buffers. */
  readonly buffers: number;
  /** Bytes outside the heap that objects keep, buffers included. */
  readonly external: number;
  /** Bytes of memory that the system has given it. */
  readonly rss: number;
  /** The most of that since the last report, and of bytes outside the heap, garbage included. */
  readonly peakRss: number;
  readonly peakExternal: number;
  /** Its active handles, by kind. */
  readonly handles: Readonly<Record<string, number>>;
  readonly loop: LoopReport;
}

/** How often the clock is looked at, in milliseconds. */
const lookMs = 10;
/** From which CPU time on a turn is long, in milliseconds, and how many are kept. */
const longTurnMs = 20;
const maxLongTurns = 100;

/** Looks at the clock from within the event loop that it watches. */
class LoopWatch {
  /** Of times between looks: a look that comes on time counts `lookMs`. */
  readonly #delays = monitorEventLoopDelay({ resolution: lookMs });
  #timer: NodeJS.Timeout | undefined;
  #thread = process.threadCpuUsage();
  #process = process.cpuUsage();
  #longestTurn = 0;
  #longTurns: LongTurn[] = [];
  #peakRss = 0;
  #peakExternal = 0;

  start(): void {
    this.#delays.reset();
    this.#delays.enable();
    this.#longestTurn = 0;
    this.#longTurns = [];
    this.#peakRss = 0;
    this.#peakExternal = 0;
    this.#process = process.cpuUsage();
    this.#thread = process.threadCpuUsage();
    this.#timer = setInterval(this.#look, lookMs).unref();
  }

  /** The measurements since the start. */
  stop(): Pick<ProcessReport, "loop" | "peakRss" | "peakExternal"> {
    clearInterval(this.#timer);
    this.#look();
    this.#delays.disable();
    const late = (nanoseconds: number): number => Math.max(0, nanoseconds / 1e6 - lookMs);
    const { user, system } = process.cpuUsage(this.#process);
    const loop: LoopReport = {
      delayP50: late(this.#delays.percentile(50)),
      delayP99: late(this.#delays.percentile(99)),
      delayMax: late(this.#delays.max),
      longestTurn: this.#longestTurn,
      longTurns: this.#longTurns,
      cpu: (user + system) / 1_000,
    };
    return { loop, peakRss: this.#peakRss, peakExternal: this.#peakExternal };
  }

  readonly #look = (): void => {
    const { user, system } = process.threadCpuUsage(this.#thread);
    this.#thread = process.threadCpuUsage();
    const cpu = (user + system) / 1_000;
    this.#longestTurn = Math.max(this.#longestTurn, cpu);
    if (cpu > longTurnMs && this.#longTurns.length < maxLongTurns) {
      this.#longTurns.push({ at: performance.timeOrigin + performance.now(), cpu });
    }
    const { rss, external } = process.memoryUsage();
    this.#peakRss = Math.max(this.#peakRss, rss);
    this.#peakExternal = Math.max(this.#peakExternal, external);
  };
}

/**
 * Loaded into a replica's process before all else: reports to its parent, and dies with it. The workers of a replica load it
 * as well, since they inherit the options of Node.js; their parent is the replica.
 */
function reportToParent(): void {
  if (process.send === undefined || process.argv[2] !== "serve") return;
  const watch = new LoopWatch();
  watch.start();
  process.on("disconnect", () => process.exit(1));
  process.on("message", () => {
    const seen = watch.stop();
    globalThis.gc?.();
    const { heapUsed, arrayBuffers, external, rss } = process.memoryUsage();
    const handles: Record<string, number> = {};
    for (const kind of process.getActiveResourcesInfo()) handles[kind] = (handles[kind] ?? 0) + 1;
    const report: ProcessReport = {
      ...{ heapUsed, buffers: arrayBuffers, external, rss, handles },
      ...seen,
    };
    process.send?.(report);
    // The collection itself is not counted.
    watch.start();
  });
}

reportToParent();
