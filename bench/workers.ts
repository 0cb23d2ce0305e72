import { setTimeout as delay } from "node:timers/promises";
import type { Benchmark, Row, Say, Settings } from "./benchmark.ts";
import { fill } from "./fill.ts";
import { withLoad } from "./load.ts";
import { childPids, cpuSeconds, privateBytes, settledResidentBytes } from "./process-usage.ts";
import { tableLine } from "./report.ts";
import { Servers, withServers } from "./servers.ts";
import { median } from "./statistics.ts";

/** What one service delivered in one round. */
interface Throughput {
  readonly eventsPerSecond: number;
  /** CPU of all its processes per delivered event, in microseconds. */
  readonly cpuMicros: number;
  /** Events per CPU second of the process that used most: what they would deliver with a core for each process. */
  readonly eventsPerBusiestSecond: number;
  /** CPU of the busiest worker beside that of the least busy one. */
  readonly imbalance: number;
  /** Cores that the main process, all workers and the load used. */
  readonly mainCores: number;
  readonly workerCores: number;
  readonly loadCores: number;
}

/** The memory of the processes of one service, in bytes. */
interface Memory {
  readonly main: number;
  /** Of the largest worker; undefined without workers. */
  readonly worker: number | undefined;
  /** Without the pages that it shares with other processes. */
  readonly privateOfWorker: number | undefined;
}

const warmUpMs = 1_000;
const settleMs = 20_000;
const mebibyte = 1024 ** 2;
const minSpeedUp = 1.7;
const maxCpuRatio = 1.15;
const widths = [5, 7, 12, 13, 14, 10, 10, 12, 11];

/**
 * Events per second and CPU per delivered event with workers and without, alternately, and the memory of each process. The
 * load runs in one process of its own: where it uses a whole core, or the machine has fewer cores than processes, events
 * per second of the busiest process say what the service could deliver.
 */
export const workers: Benchmark = {
  name: "workers",
  onlyByName: true,
  options: {
    ...{ streams: "1000", connections: "20", "value-bytes": "256", seconds: "5" },
    ...{ workers: "2", rounds: "5", "cached-objects": "100000" },
  },
  async run(settings, say) {
    const throughput = await measureThroughput(settings, say);
    const memory = await measureMemory(settings, say);
    return { rows: throughputRows(throughput, settings), results: { throughput, memory } };
  },
};

interface Compared<T> {
  readonly without: T;
  readonly with: T;
}

async function measureThroughput(
  settings: Settings,
  say: Say,
): Promise<Compared<readonly Throughput[]>> {
  const results = { without: [] as Throughput[], with: [] as Throughput[] };
  const headings = ["round", "workers", "events/s", "CPU µs/event", "events/busiest", "imbalance"];
  say(tableLine([...headings, "main", "workers", "load, cores"], widths));
  for (let round = 0; round < settings.number("rounds"); round++) {
    // The first of a pair has no advantage in the long run.
    const order = round % 2 === 0 ? (["without", "with"] as const) : (["with", "without"] as const);
    for (const which of order) {
      const count = which === "with" ? settings.number("workers") : 1;
      const result = await withServers(
        "watch-fanout",
        (servers) => measureFanout(servers, settings),
        [],
        // Connections must not be moved: the load takes the end of one for a failure.
        { serviceArgs: ["--workers", String(count), "--max-stream-age", "0s"] },
      );
      results[which].push(result);
      say(line(round, count, result));
    }
  }
  return results;
}

async function measureFanout(servers: Servers, settings: Settings): Promise<Throughput> {
  return withLoad(async (load) => {
    const { target, url, etcd, pid } = servers;
    const shape = {
      streams: settings.number("streams"),
      connections: settings.number("connections"),
    };
    await load.open({ target, url, ...shape });
    await load.connectWriter(etcd.url, settings.number("value-bytes"));
    await load.writeSaturated();
    await delay(warmUpMs);
    const pids = [pid, ...childPids(pid)];
    const sample = async () => {
      const { delivered, cpu } = await load.count();
      return { at: performance.now(), delivered, loadCpu: cpu, cpu: pids.map(cpuSeconds) };
    };
    const before = await sample();
    await delay(settings.number("seconds") * 1_000);
    const after = await sample();
    const seconds = (after.at - before.at) / 1_000;
    const delivered = after.delivered - before.delivered;
    const cpu = after.cpu.map((end, i) => end - (before.cpu[i] ?? 0));
    const [main = 0, ...ofWorkers] = cpu;
    const all = cpu.reduce((sum, one) => sum + one, 0);
    return {
      eventsPerSecond: delivered / seconds,
      cpuMicros: (all * 1e6) / delivered,
      eventsPerBusiestSecond: delivered / Math.max(...cpu),
      imbalance: ofWorkers.length === 0 ? 1 : Math.max(...ofWorkers) / Math.min(...ofWorkers),
      mainCores: main / seconds,
      workerCores: (all - main) / seconds,
      loadCores: (after.loadCpu - before.loadCpu) / seconds,
    };
  });
}

function line(round: number, workerCount: number, result: Throughput): string {
  return tableLine(
    [
      ...[String(round), String(workerCount)],
      Math.round(result.eventsPerSecond).toLocaleString("en"),
      result.cpuMicros.toFixed(2),
      Math.round(result.eventsPerBusiestSecond).toLocaleString("en"),
      result.imbalance.toFixed(2),
      ...[result.mainCores, result.workerCores, result.loadCores].map((cores) => cores.toFixed(2)),
    ],
    widths,
  );
}

async function measureMemory(settings: Settings, say: Say): Promise<Compared<Memory>> {
  const objects = settings.number("cached-objects");
  const measured: Memory[] = [];
  for (const count of [1, settings.number("workers")]) {
    const servers = await Servers.ofEtcd("watch-fanout", [], {
      serviceArgs: ["--workers", String(count)],
    });
    try {
      await fill(servers.etcd, objects, settings.number("value-bytes"));
      await servers.startFront();
      const main = await settledResidentBytes(servers.pid, settleMs);
      const pids = childPids(servers.pid);
      const resident: number[] = [];
      for (const pid of pids) resident.push(await settledResidentBytes(pid, settleMs));
      const [worker, privateOfWorker] = [resident, pids.map(privateBytes)].map((sizes) =>
        sizes.length === 0 ? undefined : Math.max(...sizes),
      );
      measured.push({ main, worker, privateOfWorker });
      say(
        `${objects.toLocaleString("en")} objects, --workers ${count}: main process ${mib(main)}, ` +
          `each worker ${mib(worker)}, of which ${mib(privateOfWorker)} are not shared`,
      );
    } finally {
      await servers.stop();
    }
  }
  const [without, withWorkers] = measured;
  if (without === undefined || withWorkers === undefined) throw new Error("Nothing was measured.");
  return { without, with: withWorkers };
}

function mib(bytes: number | undefined): string {
  return bytes === undefined ? "-" : `${(bytes / mebibyte).toFixed(0)} MiB`;
}

function throughputRows(
  { without, with: withWorkers }: Compared<readonly Throughput[]>,
  settings: Settings,
): Row[] {
  const shape = `${settings.number("streams")} streams, ${settings.number("workers")} workers`;
  const ratioOf = (read: (result: Throughput) => number) => {
    const [one, several] = [without, withWorkers].map((results) => median(results.map(read)));
    return { several: several ?? Number.NaN, ratio: (several ?? 0) / (one ?? 0) };
  };
  const speed = ratioOf(({ eventsPerSecond }) => eventsPerSecond);
  const busiest = ratioOf(({ eventsPerBusiestSecond }) => eventsPerBusiestSecond);
  const cpu = ratioOf(({ cpuMicros }) => cpuMicros);
  const atLeast = (what: string, { several, ratio }: typeof speed): Row => ({
    what: `${what}, ${shape}`,
    unit: "1/s",
    watchFanout: several,
    ratios: [{ of: "one process", value: ratio }],
    goal: `${minSpeedUp} × one process`,
    met: ratio >= minSpeedUp,
  });
  return [
    atLeast("events delivered per second", speed),
    atLeast("events delivered per CPU second of the busiest process", busiest),
    {
      what: `CPU of all processes per delivered event, ${shape}`,
      unit: "µs",
      watchFanout: cpu.several,
      ratios: [{ of: "one process", value: cpu.ratio }],
      goal: `${maxCpuRatio} × one process`,
      met: cpu.ratio <= maxCpuRatio,
    },
  ];
}
