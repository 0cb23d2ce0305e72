import { setTimeout as delay } from "node:timers/promises";
import type { Benchmark, Row, Settings } from "./benchmark.ts";
import { Load } from "./load.ts";
import { residentBytes, settledResidentBytes } from "./process-usage.ts";
import { compare, digits, tableLine } from "./report.ts";
import { attempt, type Servers, type Target, targets } from "./servers.ts";
import { median } from "./statistics.ts";

/** The result of one server with very many streams. */
interface ManyStreams {
  readonly target: Target;
  readonly openSeconds: number;
  readonly bytesPerStream: number;
  /** Time from sending a put until the last stream has its event, for each put. */
  readonly millis: readonly number[];
}

const warmUp = { streams: 100, connections: 10 };
const settleMs = 20_000;
const betweenMs = 500;
const goalMs = 1_000;
const goalBytes = 10 * 1_024;
const widths = [13, 10, 12, 12, 10];

/** A hundred thousand streams on one machine. */
export const manyStreams: Benchmark = {
  name: "many-streams",
  options: {
    "many-streams": "100000",
    "many-connections": "100",
    "load-processes": "2",
    "value-bytes": "256",
    events: "9",
    "give-up-after": "90",
  },
  async run(settings, say) {
    const results: ManyStreams[] = [];
    say(tableLine(["server", "opened, s", "KiB/stream", "median ms", "max ms"], widths));
    for (const target of targets) {
      const found = await attempt(target, say, (servers) => measureInTime(servers, settings));
      results.push(...found);
      for (const { openSeconds, bytesPerStream, millis } of found) {
        const figures = [openSeconds, bytesPerStream / 1_024, median(millis), Math.max(...millis)];
        say(tableLine([target, ...figures.map(digits)], widths));
      }
    }
    return { rows: rowsOf(results, settings), results };
  },
};

async function measureInTime(servers: Servers, settings: Settings): Promise<ManyStreams> {
  const gaveUp = new AbortController();
  const seconds = settings.number("give-up-after");
  const tooLong = delay(seconds * 1_000, undefined, { signal: gaveUp.signal }).then(() => {
    throw new Error(`It took more than ${seconds} s.`);
  });
  const loads = Array.from({ length: settings.number("load-processes") }, () => new Load());
  try {
    return await Promise.race([measure(servers, loads, settings), tooLong]);
  } finally {
    tooLong.catch(() => {});
    gaveUp.abort();
    await Promise.all(loads.map((load) => load.stop()));
  }
}

async function measure(
  servers: Servers,
  loads: readonly Load[],
  settings: Settings,
): Promise<ManyStreams> {
  const { target, url, pid, etcd } = servers;
  const first = new Load();
  try {
    await first.open({ target, url, ...warmUp });
    const before = await settledResidentBytes(pid, settleMs);
    const started = performance.now();
    const share = {
      streams: Math.ceil(settings.number("many-streams") / loads.length),
      connections: Math.ceil(settings.number("many-connections") / loads.length),
    };
    await Promise.all(loads.map((load) => load.open({ target, url, ...share })));
    const openSeconds = (performance.now() - started) / 1_000;
    await first.connectWriter(etcd.url, settings.number("value-bytes"));
    const millis: number[] = [];
    // The first put warms up the compiler.
    for (let i = -1; i < settings.number("events"); i++) {
      await delay(betweenMs);
      const { first: n, sentAt } = await first.writePaced(1, 1);
      const had = await Promise.all(loads.map((load) => load.completedBetween(n, n + 1)));
      if (i >= 0) millis.push(Math.max(...had.flat()) - (sentAt[0] ?? 0));
    }
    await settledResidentBytes(pid, settleMs);
    const bytesPerStream = (residentBytes(pid) - before) / (share.streams * loads.length);
    return { target, openSeconds, bytesPerStream, millis };
  } finally {
    await first.stop();
  }
}

function rowsOf(results: readonly ManyStreams[], settings: Settings): Row[] {
  const count = settings.number("many-streams").toLocaleString("en");
  const rowOf = (
    what: string,
    unit: string,
    goal: string,
    most: number,
    figure: (result: ManyStreams) => number,
  ): Row => {
    const row = compare({
      what: `${count} streams, ${settings.number("many-connections")} connections: ${what}`,
      unit,
      of: (target) => results.filter((result) => result.target === target).map(figure)[0],
      goals: {},
      goal,
    });
    return { ...row, met: row.watchFanout <= most };
  };
  return [
    rowOf("put to the last, median", "ms", "within 1 s", goalMs, ({ millis }) => median(millis)),
    rowOf("put to the last, worst", "ms", "within 1 s", goalMs, ({ millis }) =>
      Math.max(...millis),
    ),
    rowOf(
      "memory per stream",
      "KiB",
      "10 KiB",
      goalBytes / 1_024,
      ({ bytesPerStream }) => bytesPerStream / 1_024,
    ),
  ];
}
