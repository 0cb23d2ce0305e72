import type { Benchmark, Row, Settings } from "./benchmark.ts";
import { Child } from "./child.ts";
import type { ObjectCacheQuestion } from "./object-cache-load.ts";
import { cpuSeconds, residentBytes, settledResidentBytes } from "./process-usage.ts";
import { tableLine } from "./report.ts";
import { type Servers, withServers } from "./servers.ts";

/** The result of one variant. Memory is resident, beyond that before the first watch. */
interface Cached {
  readonly name: string;
  readonly serviceBytesPerKey: number;
  readonly clientBytesPerKey: number;
  /** CPU of the service and of the client until every object is known, and the time that it takes, in milliseconds. */
  readonly openServiceCpuMs: number;
  readonly openClientCpuMs: number;
  readonly openMs: number;
  /** CPU of each for one write, in microseconds: for the client with the write itself. */
  readonly serviceMicros: number;
  readonly clientMicros: number;
}

const settleMs = 10_000;
const widths = [14, 14, 14, 12, 12, 9, 14, 14];
const headings = [
  ...["watches", "service B/key", "client B/key", "service ms", "client ms", "open ms"],
  ...["service µs/put", "client µs/put"],
];

/** An ObjectCache whose watches share one stream, beside one whose watches have a stream each. */
export const objectCache: Benchmark = {
  name: "object-cache",
  options: { keys: "1000", "puts-per-second": "200", seconds: "10" },
  async run(settings, say) {
    const results: Cached[] = [];
    say(tableLine(headings, widths));
    for (const isOneStream of [false, true]) {
      const result = await withServers("watch-fanout", (servers) =>
        measure(servers, isOneStream, settings),
      );
      results.push(result);
      const { name, ...figures } = result;
      say(tableLine([name, ...Object.values(figures).map((figure) => figure.toFixed(0))], widths));
    }
    return { rows: rowsOf(results), results };
  },
};

async function measure(
  { url, pid }: Servers,
  isOneStream: boolean,
  settings: Settings,
): Promise<Cached> {
  const [keys, perSecond] = [settings.number("keys"), settings.number("puts-per-second")];
  const load = new Child<ObjectCacheQuestion>("object-cache-load.ts");
  const loadPid = load.pid as number;
  try {
    await load.ask({ do: "fill", url, keys });
    const before = [await settledResidentBytes(pid, settleMs), residentBytes(loadPid)] as const;
    const usedBefore = [cpuSeconds(pid), cpuSeconds(loadPid)] as const;
    const openMs = (await load.ask({ do: "open", isOneStream })) as number;
    const usedToOpen = [cpuSeconds(pid), cpuSeconds(loadPid)] as const;
    const held = [await settledResidentBytes(pid, settleMs), residentBytes(loadPid)] as const;
    const count = perSecond * settings.number("seconds");
    await load.ask({ do: "write", perSecond, count: perSecond });
    const used = [cpuSeconds(pid), cpuSeconds(loadPid)] as const;
    await load.ask({ do: "write", perSecond, count });
    return {
      name: isOneStream ? "one stream" : "a stream each",
      serviceBytesPerKey: (held[0] - before[0]) / keys,
      clientBytesPerKey: (held[1] - before[1]) / keys,
      openServiceCpuMs: (usedToOpen[0] - usedBefore[0]) * 1_000,
      openClientCpuMs: (usedToOpen[1] - usedBefore[1]) * 1_000,
      openMs,
      serviceMicros: ((cpuSeconds(pid) - used[0]) / count) * 1e6,
      clientMicros: ((cpuSeconds(loadPid) - used[1]) / count) * 1e6,
    };
  } finally {
    await load.stop();
  }
}

function rowsOf([each, one]: readonly Cached[]): Row[] {
  const beside = (what: string, unit: string, by: (result: Cached) => number): Row => {
    const watchFanout = one ? by(one) : Number.NaN;
    const value = watchFanout / (each ? by(each) : Number.NaN);
    const ratios = [{ of: "a stream each", value }];
    return { what, unit, watchFanout, ratios, goal: "at most a stream each", met: value <= 1 };
  };
  return [
    beside(
      "memory of the service for each object of a cache",
      "bytes",
      (r) => r.serviceBytesPerKey,
    ),
    beside("memory of the client for each object of a cache", "bytes", (r) => r.clientBytesPerKey),
    beside("time until all objects of a cache are known", "ms", (r) => r.openMs),
    beside("CPU of the service for an event of one object", "µs", (r) => r.serviceMicros),
    beside("CPU of the client for an event of one object", "µs", (r) => r.clientMicros),
  ];
}
