import { setTimeout as delay } from "node:timers/promises";
import type { Benchmark, Row, Settings } from "./benchmark.ts";
import { type Load, withLoad } from "./load.ts";
import { tableLine } from "./report.ts";
import { type Servers, type Target, withServers } from "./servers.ts";
import { type Percentiles, percentilesOf } from "./statistics.ts";

/** What watching costs etcd and whoever writes. */
interface UpstreamCost extends Percentiles {
  readonly name: string;
  readonly target: Target;
  readonly streams: number;
  /** Microseconds of etcd's CPU per put, at the fixed rate. */
  readonly etcdCpuMicros: number;
  /** As fast as etcd takes it and the slowest stream follows. */
  readonly saturatedPerSecond: number;
}

const warmUpMs = 1_000;
const widths = [24, 14, 10, 10, 14];
/** The same, but for what a short measurement strays. */
const same = 1.1;

/** What watching costs etcd and whoever writes: a thousand clients behind the service, beside one watch. */
export const upstreamCost: Benchmark = {
  name: "upstream-cost",
  options: {
    streams: "1000",
    connections: "20",
    "value-bytes": "256",
    "puts-per-second": "200",
    seconds: "5",
  },
  async run(settings, say) {
    const streams = settings.number("streams");
    const cases = [
      { name: "etcd, one watch", target: "etcd", streams: 1 },
      { name: `watch-fanout, ${streams}`, target: "watch-fanout", streams },
      { name: `grpc-proxy, ${streams}`, target: "grpc-proxy", streams },
      { name: `etcd, ${streams}`, target: "etcd", streams },
    ] as const;
    say(tableLine(["watched by", "etcd µs/put", "p50 ms", "p99 ms", "saturated /s"], widths));
    const results: UpstreamCost[] = [];
    for (const each of cases) {
      const result = await withServers(each.target, async (servers) => ({
        ...each,
        ...(await measure(servers, each.streams, settings)),
      }));
      results.push(result);
      say(
        tableLine(
          [
            ...[each.name, result.etcdCpuMicros.toFixed(0), result.p50.toFixed(2)],
            ...[result.p99.toFixed(2), Math.round(result.saturatedPerSecond).toLocaleString("en")],
          ],
          widths,
        ),
      );
    }
    return { rows: rowsOf(results, settings), results };
  },
};

function measure(
  servers: Servers,
  streams: number,
  settings: Settings,
): Promise<Omit<UpstreamCost, "name" | "target" | "streams">> {
  return withLoad(async (load) => {
    const { target, url, etcd } = servers;
    await load.open({ target, url, streams, connections: settings.number("connections") });
    await load.connectWriter(etcd.url, settings.number("value-bytes"));
    const perSecond = settings.number("puts-per-second");
    const seconds = settings.number("seconds");
    await load.writePaced(perSecond, (perSecond * warmUpMs) / 1_000);
    const before = servers.cpu();
    const { putMillis } = await load.writePaced(perSecond, perSecond * seconds);
    const etcdCpu = servers.cpu().etcd - before.etcd;
    return {
      etcdCpuMicros: (etcdCpu * 1e6) / putMillis.length,
      ...percentilesOf(putMillis),
      saturatedPerSecond: await saturated(load, seconds),
    };
  });
}

async function saturated(load: Load, seconds: number): Promise<number> {
  await load.writeSaturated();
  await delay(warmUpMs);
  const started = performance.now();
  const { written: before } = await load.count();
  await delay(seconds * 1_000);
  const { written } = await load.count();
  return ((written - before) * 1_000) / (performance.now() - started);
}

/** etcd's column is etcd with one watch, which is what is aimed at. */
function rowsOf(results: readonly UpstreamCost[], settings: Settings): Row[] {
  const streams = settings.number("streams");
  const alone = results.find((result) => result.streams === 1);
  const crowd = (target: Target): UpstreamCost | undefined =>
    results.find((result) => result.target === target && result.streams === streams);
  const rowOf = (
    what: string,
    unit: string,
    figure: (cost: UpstreamCost) => number,
    moreIsBetter = false,
  ): Row => {
    const [one, ours, proxy, direct] = [
      alone,
      crowd("watch-fanout"),
      crowd("grpc-proxy"),
      crowd("etcd"),
    ].map((cost) => (cost === undefined ? Number.NaN : figure(cost)));
    const ratio = (ours ?? Number.NaN) / (one ?? Number.NaN);
    return {
      what: `${what}, ${streams} clients (etcd: one watch)`,
      unit,
      watchFanout: ours ?? Number.NaN,
      etcd: one,
      grpcProxy: proxy,
      ratios: [
        { of: "one watch", value: ratio },
        { of: `etcd with ${streams}`, value: (ours ?? Number.NaN) / (direct ?? Number.NaN) },
      ],
      goal: `as with one watch (${moreIsBetter ? "≥ 0.9" : "≤ 1.1"} ×)`,
      met: moreIsBetter ? ratio >= 1 / same : ratio <= same,
    };
  };
  const rate = settings.number("puts-per-second");
  return [
    rowOf(`etcd's CPU per put at ${rate} a second`, "µs", (cost) => cost.etcdCpuMicros),
    rowOf(`put p50 at ${rate} a second`, "ms", (cost) => cost.p50),
    rowOf(`put p99 at ${rate} a second`, "ms", (cost) => cost.p99),
    rowOf("writes a second, saturated", "/s", (cost) => cost.saturatedPerSecond, true),
  ];
}
