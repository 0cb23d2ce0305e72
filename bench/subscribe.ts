import type { Benchmark, Row, Settings } from "./benchmark.ts";
import { Child } from "./child.ts";
import { residentBytes, settledResidentBytes } from "./process-usage.ts";
import { tableLine } from "./report.ts";
import { type Servers, withServers } from "./servers.ts";
import { type Percentiles, percentilesOf } from "./statistics.ts";
import type { SubscribeQuestion } from "./subscribe-load.ts";

/** Many watches: on a stream each, on one stream, and on one with a further watch that gets no credit. */
const variants = [
  { name: "a stream each", isOneStream: false, hasStalled: false },
  { name: "one stream", isOneStream: true, hasStalled: false },
  { name: "one stream, one stalled", isOneStream: true, hasStalled: true },
] as const;

/** The result of one variant. Times are from a put to the last watch, in milliseconds. */
interface Subscribed extends Percentiles {
  readonly name: string;
  readonly bytesPerWatch: number;
  /** CPU of the service for each event of each watch, in microseconds. */
  readonly cpuMicros: number;
}

const warmUpPuts = 30;
/**
 * Number of times that so many watches are opened for the memory of each, after the first time: with that V8's young generation
 * grows to its full size, which it keeps, and the code is compiled.
 */
const measuredTimes = 3;
/** V8 needs that many before what runs once per put is optimized. Faster ones, since only the code is warmed. */
const optimizing = { puts: 1_500, perSecond: 150 };
const settleMs = 15_000;
const widths = [24, 14, 14, 9, 9];
/** The goals: at most this many times what a stream each costs, and what it costs without a stalled watch. */
const goals = { ratio: 1, stalledRatio: 1.2 };

/** Watches on one stream, beside as many streams. */
export const subscribe: Benchmark = {
  name: "subscribe",
  options: { watches: "1000", "puts-per-second": "30", seconds: "10" },
  async run(settings, say) {
    const results: Subscribed[] = [];
    say(tableLine(["watches", "bytes/watch", "CPU µs/event", "p50 ms", "p99 ms"], widths));
    for (const variant of variants) {
      const result = await withServers("watch-fanout", (servers) =>
        measure(servers, variant, settings),
      );
      results.push(result);
      const { name, bytesPerWatch, cpuMicros, p50, p99 } = result;
      const figures = [cpuMicros, p50, p99].map((figure) => figure.toFixed(2));
      say(tableLine([name, bytesPerWatch.toFixed(0), ...figures], widths));
    }
    return { rows: rowsOf(results, settings.number("watches")), results };
  },
};

async function measure(
  servers: Servers,
  { name, isOneStream, hasStalled }: (typeof variants)[number],
  settings: Settings,
): Promise<Subscribed> {
  const { url, etcd, pid } = servers;
  const [watches, perSecond] = [settings.number("watches"), settings.number("puts-per-second")];
  const task = { url, etcdUrl: etcd.url, isOneStream, hasStalled };
  const [load, others] = [newLoad(), Array.from({ length: measuredTimes }, newLoad)];
  try {
    await load.ask({ do: "open", task: { ...task, watches } });
    await load.ask({ do: "write", perSecond, count: warmUpPuts });
    const before = await settledResidentBytes(pid, settleMs);
    for (const other of others) await other.ask({ do: "open", task: { ...task, watches } });
    await settledResidentBytes(pid, settleMs);
    const bytesPerWatch = (residentBytes(pid) - before) / (measuredTimes * watches);
    for (const other of others) await other.stop();
    const count = perSecond * settings.number("seconds");
    await load.ask({ do: "write", perSecond: optimizing.perSecond, count: optimizing.puts });
    const cpuBefore = servers.cpu().front;
    const millis = (await load.ask({ do: "write", perSecond, count })) as number[];
    const cpuMicros = ((servers.cpu().front - cpuBefore) * 1e6) / (count * watches);
    return { name, bytesPerWatch, cpuMicros, ...percentilesOf(millis) };
  } finally {
    for (const each of [load, ...others]) await each.stop();
  }
}

function newLoad(): Child<SubscribeQuestion> {
  return new Child<SubscribeQuestion>("subscribe-load.ts");
}

function rowsOf([each, one, stalled]: readonly Subscribed[], watches: number): Row[] {
  const beside = (
    what: string,
    unit: string,
    [of, to]: readonly (Subscribed | undefined)[],
    by: (result: Subscribed) => number,
    [name, most]: readonly [string, number],
  ): Row => {
    const [watchFanout, other] = [of, to].map((result) => (result ? by(result) : Number.NaN));
    const value = (watchFanout ?? Number.NaN) / (other ?? Number.NaN);
    const row = {
      what,
      unit,
      watchFanout: watchFanout ?? Number.NaN,
      ratios: [{ of: name, value }],
    };
    return { ...row, goal: `at most ${most} times ${name}`, met: value <= most };
  };
  const streams = `${watches} streams`;
  return [
    // Mostly garbage of the opening: test/server/services/subscribe-memory.test.ts has the live heap, below 1 KiB.
    beside(
      "resident memory of each watch, on one stream",
      "bytes",
      [one, each],
      (r) => r.bytesPerWatch,
      [streams, goals.ratio],
    ),
    beside("CPU of an event of a watch, on one stream", "µs", [one, each], (r) => r.cpuMicros, [
      streams,
      goals.ratio,
    ]),
    beside("put to the last watch, on one stream, p50", "ms", [one, each], (r) => r.p50, [
      streams,
      goals.ratio,
    ]),
    beside("the same, beside a watch without credit", "ms", [stalled, one], (r) => r.p50, [
      "without it",
      goals.stalledRatio,
    ]),
  ];
}
