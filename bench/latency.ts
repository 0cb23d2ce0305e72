import type { Benchmark, Row, Settings } from "./benchmark.ts";
import { withLoad } from "./load.ts";
import { compare, tableLine } from "./report.ts";
import { attempt, type Servers, type Target, targets } from "./servers.ts";
import { type Percentiles, percentilesOf } from "./statistics.ts";

/** Milliseconds from sending a put until the last stream has its event. */
interface Latency extends Percentiles {
  readonly target: Target;
  readonly connections: number;
  readonly max: number;
  /** CPU share of the load, as a fraction of one core. */
  readonly loadCores: number;
}

const warmUpPuts = 60;
const widths = [12, 13, 9, 9, 9, 12];

/** The time that a put takes to reach the last of many streams, without other events to batch it with. */
export const latency: Benchmark = {
  name: "latency",
  options: {
    streams: "1000",
    connections: "20,1000",
    "value-bytes": "256",
    "puts-per-second": "30",
    seconds: "10",
  },
  async run(settings, say) {
    const results: Latency[] = [];
    say(tableLine(["connections", "server", "p50 ms", "p99 ms", "max ms", "load, cores"], widths));
    for (const connections of settings.numbers("connections")) {
      for (const target of targets) {
        const found = await attempt(target, say, (servers) =>
          measure(servers, connections, settings),
        );
        results.push(...found);
        for (const { p50, p99, max, loadCores } of found) {
          const figures = [p50, p99, max, loadCores].map((figure) => figure.toFixed(2));
          say(tableLine([String(connections), target, ...figures], widths));
        }
      }
    }
    return { rows: rowsOf(results, settings), results };
  },
};

function measure(servers: Servers, connections: number, settings: Settings): Promise<Latency> {
  return withLoad(async (load) => {
    const { target, url, etcd } = servers;
    await load.open({ target, url, connections, streams: settings.number("streams") });
    await load.connectWriter(etcd.url, settings.number("value-bytes"));
    const perSecond = settings.number("puts-per-second");
    const seconds = settings.number("seconds");
    await load.writePaced(perSecond, warmUpPuts);
    const started = performance.now();
    const { cpu: cpuBefore } = await load.count();
    const { first, sentAt } = await load.writePaced(perSecond, perSecond * seconds);
    const completedAt = await load.completedBetween(first, first + sentAt.length);
    const { cpu } = await load.count();
    const elapsed = (performance.now() - started) / 1_000;
    const millis = completedAt.map((at, i) => at - (sentAt[i] ?? Number.NaN));
    const loadCores = (cpu - cpuBefore) / elapsed;
    return { target, connections, ...percentilesOf(millis), max: Math.max(...millis), loadCores };
  });
}

function rowsOf(results: readonly Latency[], settings: Settings): Row[] {
  return settings.numbers("connections").flatMap((connections) =>
    (["p50", "p99"] as const).map((which) =>
      compare({
        what:
          `put to the last of ${settings.number("streams")} streams, ` +
          `${settings.number("puts-per-second")} puts/s, ${connections} connections, ${which}`,
        unit: "ms",
        of: (target) =>
          results.find((each) => each.target === target && each.connections === connections)?.[
            which
          ],
        goals: { etcd: 1 },
        goal: "no later than etcd",
      }),
    ),
  );
}
