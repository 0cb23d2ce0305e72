import { setTimeout as delay } from "node:timers/promises";
import type { Benchmark, Row, Settings } from "./benchmark.ts";
import { type Load, withLoad } from "./load.ts";
import { tableLine } from "./report.ts";
import { attempt, type Servers, type Target } from "./servers.ts";
import { median, type Percentiles, percentilesOf } from "./statistics.ts";

/** The watchers while etcd is written to. */
interface Watched {
  readonly target: Target;
  readonly streams: number;
}

/** The cost of watching for etcd and its writers. */
interface UpstreamCost extends Percentiles {
  /** CPU of etcd per put at the fixed rate, in microseconds. */
  readonly cpuMicros: number;
  /** Puts per second, as fast as etcd accepts them and the slowest stream follows. */
  readonly saturatedPerSecond: number;
  readonly saturatedCpuMicros: number;
}

interface Result extends Watched {
  /** The medians over rounds. */
  readonly cost: UpstreamCost;
  readonly rounds: readonly UpstreamCost[];
}

const warmUpMs = 1_000;
/** The tolerance of the goal, since short measurements vary. */
const same = 1.1;
const widths = [12, 8, 12, 8, 8, 16, 16];

/** The cost of watching for etcd and its writers: a thousand clients behind the service, compared with one watch. */
export const upstreamCost: Benchmark = {
  name: "upstream-cost",
  options: {
    streams: "1000",
    connections: "20",
    "value-bytes": "256",
    "puts-per-second": "200",
    seconds: "4",
    rounds: "2",
  },
  async run(settings, say) {
    const streams = settings.number("streams");
    const alone: Watched = { target: "etcd", streams: 1 };
    const plans: readonly Watched[] = [
      alone,
      { target: "watch-fanout", streams },
      { target: "grpc-proxy", streams },
      { target: "etcd", streams },
    ];
    const headings = ["etcd µs/put", "p50 ms", "p99 ms", "saturated puts/s", "then etcd µs/put"];
    say(tableLine(["watched by", "streams", ...headings], widths));
    const costs: UpstreamCost[][] = plans.map(() => []);
    for (let round = 0; round < settings.number("rounds"); round++) {
      for (const [i, plan] of plans.entries()) {
        const found = await attempt(plan.target, say, (servers) =>
          measure(servers, plan.streams, settings),
        );
        costs[i]?.push(...found);
        for (const cost of found) say(line(plan, cost));
      }
    }
    const results = plans.map((plan, i): Result => {
      const rounds = costs[i] ?? [];
      return { ...plan, cost: medianOf(rounds), rounds };
    });
    return { rows: rowsOf(results, settings), results };
  },
};

function measure(servers: Servers, streams: number, settings: Settings): Promise<UpstreamCost> {
  return withLoad(async (load) => {
    const { target, url, etcd } = servers;
    await load.open({ target, url, streams, connections: settings.number("connections") });
    await load.connectWriter(etcd.url, settings.number("value-bytes"));
    const perSecond = settings.number("puts-per-second");
    const seconds = settings.number("seconds");
    await load.writePaced(perSecond, (perSecond * warmUpMs) / 1_000);
    const before = servers.cpu().etcd;
    const { putMillis } = await load.writePaced(perSecond, perSecond * seconds);
    const cpuMicros = ((servers.cpu().etcd - before) * 1e6) / putMillis.length;
    const paced = { cpuMicros, ...percentilesOf(putMillis) };
    return { ...paced, ...(await saturated(servers, load, seconds)) };
  });
}

async function saturated(
  servers: Servers,
  load: Load,
  seconds: number,
): Promise<Pick<UpstreamCost, "saturatedPerSecond" | "saturatedCpuMicros">> {
  await load.writeSaturated();
  await delay(warmUpMs);
  const started = performance.now();
  const before = { written: (await load.count()).written, cpu: servers.cpu().etcd };
  await delay(seconds * 1_000);
  const written = (await load.count()).written - before.written;
  const cpu = servers.cpu().etcd - before.cpu;
  return {
    saturatedPerSecond: (written * 1_000) / (performance.now() - started),
    saturatedCpuMicros: (cpu * 1e6) / written,
  };
}

function medianOf(rounds: readonly UpstreamCost[]): UpstreamCost {
  const of = (figure: keyof UpstreamCost): number => median(rounds.map((cost) => cost[figure]));
  return {
    cpuMicros: of("cpuMicros"),
    p50: of("p50"),
    p99: of("p99"),
    saturatedPerSecond: of("saturatedPerSecond"),
    saturatedCpuMicros: of("saturatedCpuMicros"),
  };
}

function line({ target, streams }: Watched, cost: UpstreamCost): string {
  return tableLine(
    [
      ...[target, String(streams), cost.cpuMicros.toFixed(0)],
      ...[cost.p50.toFixed(2), cost.p99.toFixed(2)],
      Math.round(cost.saturatedPerSecond).toLocaleString("en"),
      cost.saturatedCpuMicros.toFixed(0),
    ],
    widths,
  );
}

/** The etcd column is etcd with one watch, which is the goal. */
function rowsOf(results: readonly Result[], settings: Settings): Row[] {
  const many = settings.number("streams");
  const rate = settings.number("puts-per-second");
  const rowOf = (what: string, unit: string, figure: keyof UpstreamCost, more = false): Row => {
    const of = (target: Target, streams: number): number =>
      results.find((result) => result.target === target && result.streams === streams)?.cost[
        figure
      ] ?? Number.NaN;
    const [ours, one] = [of("watch-fanout", many), of("etcd", 1)];
    const value = ours / one;
    return {
      what: `${what}, ${many} clients (etcd: one watch)`,
      unit,
      watchFanout: ours,
      etcd: one,
      grpcProxy: of("grpc-proxy", many),
      ratios: [
        { of: "one watch", value },
        { of: `etcd with ${many}`, value: ours / of("etcd", many) },
      ],
      goal: `as with one watch (${more ? "≥ 0.9" : `≤ ${same}`} ×)`,
      met: more ? value >= 1 / same : value <= same,
    };
  };
  return [
    rowOf(`etcd's CPU per put, ${rate} a second`, "µs", "cpuMicros"),
    rowOf("etcd's CPU per put, saturated writer", "µs", "saturatedCpuMicros"),
    rowOf(`put, ${rate} a second, p50`, "ms", "p50"),
    rowOf(`put, ${rate} a second, p99`, "ms", "p99"),
    rowOf("puts a second, saturated writer", "/s", "saturatedPerSecond", true),
  ];
}
