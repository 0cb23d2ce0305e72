import type { Benchmark, Row, Settings } from "./benchmark.ts";
import { withLoad } from "./load.ts";
import { residentBytes } from "./process-usage.ts";
import { tableLine } from "./report.ts";
import { attempt, type Servers, type Target } from "./servers.ts";
import { type Percentiles, percentilesOf } from "./statistics.ts";

/** One way in which clients read, or do not. */
interface Variant {
  readonly name: string;
  readonly target: Target;
  /** Every second stream reads 64 KiB and nothing more. */
  readonly halfShut: boolean;
  readonly latestState: boolean;
}

/** The result for the reading clients: milliseconds from a put to the last of them, and bytes. */
interface SlowConsumers extends Variant, Percentiles {
  /** Growth of the server's memory since the streams were opened. */
  readonly grownBytes: number;
  /** Number of non-reading streams that were ended. */
  readonly ended: number;
}

const variants: readonly Variant[] = [
  { name: "all read", target: "watch-fanout", halfShut: false, latestState: false },
  { name: "half shut, EVERY_EVENT", target: "watch-fanout", halfShut: true, latestState: false },
  { name: "half shut, LATEST_STATE", target: "watch-fanout", halfShut: true, latestState: true },
  { name: "all read", target: "etcd", halfShut: false, latestState: false },
  { name: "half shut", target: "etcd", halfShut: true, latestState: false },
];
const mebibyte = 1024 ** 2;
const warmUpSeconds = 1;
/** The goal: reading clients must not be affected, except for the variation of a short measurement. */
const goalRatio = 1.2;
/** Bound of the event window, which slow clients make the service retain. */
const goalBytes = 64 * mebibyte;
const widths = [13, 24, 9, 9, 14, 8];

/** Half of the clients do not read at all: the effect on the other half, and the memory that is retained for them. */
export const slowConsumers: Benchmark = {
  name: "slow-consumers",
  options: {
    streams: "1000",
    connections: "20",
    "value-bytes": "256",
    "puts-per-second": "100",
    seconds: "10",
  },
  async run(settings, say) {
    const results: SlowConsumers[] = [];
    say(tableLine(["server", "clients", "p50 ms", "p99 ms", "MiB more", "ended"], widths));
    for (const variant of variants) {
      const found = await attempt(variant.target, say, (servers) =>
        measure(servers, variant, settings),
      );
      results.push(...found);
      for (const { target, name, p50, p99, grownBytes, ended } of found) {
        const figures = [p50.toFixed(1), p99.toFixed(1), (grownBytes / mebibyte).toFixed(1)];
        say(tableLine([target, name, ...figures, String(ended)], widths));
      }
    }
    return { rows: rowsOf(results, settings), results };
  },
};

function measure(servers: Servers, variant: Variant, settings: Settings): Promise<SlowConsumers> {
  return withLoad(async (load) => {
    const { url, pid, etcd } = servers;
    const { target, halfShut, latestState } = variant;
    const [streams, connections] = [settings.number("streams"), settings.number("connections")];
    await load.open({ target, url, streams, connections, halfShut, latestState });
    await load.connectWriter(etcd.url, settings.number("value-bytes"));
    const perSecond = settings.number("puts-per-second");
    await load.writePaced(perSecond, perSecond * warmUpSeconds);
    const before = residentBytes(pid);
    const puts = perSecond * settings.number("seconds");
    const { first, sentAt } = await load.writePaced(perSecond, puts);
    const completedAt = await load.completedBetween(first, first + puts);
    const grownBytes = residentBytes(pid) - before;
    const { shutEnded: ended } = await load.count();
    const millis = completedAt.map((at, i) => at - (sentAt[i] ?? Number.NaN));
    return { ...variant, ...percentilesOf(millis), grownBytes, ended };
  });
}

/** Each compared with the same server when all clients read; etcd's column is etcd when half of them do not. */
function rowsOf(results: readonly SlowConsumers[], settings: Settings): Row[] {
  const of = (target: Target, halfShut: boolean): SlowConsumers | undefined =>
    results.find((result) => result.target === target && result.halfShut === halfShut);
  const all = of("watch-fanout", false);
  const etcd = of("etcd", true);
  const halves = results.filter(({ target, halfShut }) => target === "watch-fanout" && halfShut);
  return halves.flatMap((half) => {
    const what = `${settings.number("streams")} streams, ${half.name}: `;
    const latency = (which: "p50" | "p99"): Row => {
      const value = half[which] / (all?.[which] ?? Number.NaN);
      return {
        what: `${what}put to the last that reads, ${which}`,
        unit: "ms",
        watchFanout: half[which],
        etcd: etcd?.[which],
        ratios: [{ of: "all reading", value }],
        goal: `as if all read (≤ ${goalRatio} ×)`,
        met: value <= goalRatio,
      };
    };
    const growth: Row = {
      what: `${what}growth of memory`,
      unit: "MiB",
      watchFanout: half.grownBytes / mebibyte,
      etcd: etcd === undefined ? undefined : etcd.grownBytes / mebibyte,
      ratios: [],
      goal: "within history's bound (64 MiB)",
      met: half.grownBytes <= goalBytes,
    };
    return [latency("p50"), latency("p99"), growth];
  });
}
