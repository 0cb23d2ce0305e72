import { setTimeout as delay } from "node:timers/promises";
import type { Benchmark, Outcome, Row, Say, Settings } from "./benchmark.ts";
import { type Load, withLoad } from "./load.ts";
import { compare, tableLine } from "./report.ts";
import { attempt, type Servers, type Target, targets } from "./servers.ts";

/** Number of streams and of connections. */
interface Shape {
  readonly streams: number;
  readonly connections: number;
}

/** The result of one server with one number of streams. */
export interface FanoutResult extends Shape {
  readonly target: Target;
  /** Delivered events per second, over all streams. */
  readonly eventsPerSecond: number;
  readonly writesPerSecond: number;
  /** CPU per delivered event in microseconds: of etcd, of the server before it, of both. */
  readonly etcdCpuMicros: number;
  readonly frontCpuMicros: number;
  readonly cpuMicros: number;
  /** CPU share of the load, as a fraction of one core. */
  readonly loadCores: number;
}

const warmUpMs = 1_000;
const widths = [8, 12, 13, 12, 10, 13, 9, 12, 11];

/**
 * The cost of an event, and the number of events per second that reach clients, when a writer writes as fast as they
 * can follow.
 */
export const fanout: Benchmark = {
  name: "fanout",
  options: { streams: "1,100,1000", connections: "20,1000", "value-bytes": "256", seconds: "5" },
  run,
};

async function run(settings: Settings, say: Say): Promise<Outcome> {
  const results: FanoutResult[] = [];
  say(
    tableLine(
      [
        ...["streams", "connections", "server", "events/s", "writes/s", "CPU µs/event"],
        ...["of etcd", "before etcd", "load, cores"],
      ],
      widths,
    ),
  );
  for (const shape of shapes(settings)) {
    for (const target of targets) {
      const measured = (servers: Servers): Promise<FanoutResult> =>
        measureFanout(servers, shape, settings);
      const found = await attempt(target, say, measured);
      results.push(...found);
      for (const result of found) say(line(result));
    }
  }
  return { rows: rowsOf(results, settings), results };
}

/** At most one connection per stream; each number of streams over the smallest number of connections at least. */
function shapes(settings: Settings): Shape[] {
  const [fewest = 1, ...more] = settings.numbers("connections");
  return settings
    .numbers("streams")
    .flatMap((streams) => [
      { streams, connections: Math.min(fewest, streams) },
      ...more
        .filter((connections) => connections <= streams)
        .map((connections) => ({ streams, connections })),
    ]);
}

/** Measures one server with one number of streams and connections. Uses the options `value-bytes` and `seconds`. */
export async function measureFanout(
  servers: Servers,
  shape: Shape,
  settings: Settings,
): Promise<FanoutResult> {
  return withLoad(async (load) => {
    const { target, url, etcd } = servers;
    await load.open({ target, url, ...shape });
    await load.connectWriter(etcd.url, settings.number("value-bytes"));
    await load.writeSaturated();
    await delay(warmUpMs);
    const before = await sample(servers, load);
    await delay(settings.number("seconds") * 1_000);
    const after = await sample(servers, load);
    const seconds = (after.at - before.at) / 1_000;
    const delivered = after.delivered - before.delivered;
    const etcdCpuMicros = ((after.etcdCpu - before.etcdCpu) * 1e6) / delivered;
    const frontCpuMicros = ((after.frontCpu - before.frontCpu) * 1e6) / delivered;
    return {
      target,
      ...shape,
      eventsPerSecond: delivered / seconds,
      writesPerSecond: (after.written - before.written) / seconds,
      etcdCpuMicros,
      frontCpuMicros,
      cpuMicros: etcdCpuMicros + frontCpuMicros,
      loadCores: (after.loadCpu - before.loadCpu) / seconds,
    };
  });
}

interface Sample {
  readonly at: number;
  readonly delivered: number;
  readonly written: number;
  readonly etcdCpu: number;
  readonly frontCpu: number;
  readonly loadCpu: number;
}

async function sample(servers: Servers, load: Load): Promise<Sample> {
  const { delivered, written, cpu: loadCpu } = await load.count();
  const { etcd: etcdCpu, front: frontCpu } = servers.cpu();
  return { at: performance.now(), delivered, written, etcdCpu, frontCpu, loadCpu };
}

function line(result: FanoutResult): string {
  return tableLine(
    [
      ...[String(result.streams), String(result.connections), result.target],
      Math.round(result.eventsPerSecond).toLocaleString("en"),
      Math.round(result.writesPerSecond).toLocaleString("en"),
      result.cpuMicros.toFixed(2),
      result.etcdCpuMicros.toFixed(2),
      result.frontCpuMicros.toFixed(2),
      result.loadCores.toFixed(2),
    ],
    widths,
  );
}

/** Of the largest number of streams: with one stream there is no fan-out. */
function rowsOf(results: readonly FanoutResult[], settings: Settings): Row[] {
  const streams = Math.max(...settings.numbers("streams"));
  const most = results.filter((result) => result.streams === streams);
  return [...new Set(most.map(({ connections }) => connections))].map((connections) => {
    const of = (target: Target): number =>
      most.find((result) => result.target === target && result.connections === connections)
        ?.cpuMicros ?? Number.NaN;
    return compare({
      what: `CPU per delivered event, ${streams} streams, ${connections} connections, saturated writer`,
      unit: "µs",
      of,
      goals: { etcd: 1 / 4, "grpc-proxy": 1 / 3 },
      goal: "1/4 of etcd, 1/3 of grpc-proxy, then 1/10",
    });
  });
}
