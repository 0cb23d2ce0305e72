import { setTimeout as delay } from "node:timers/promises";
import type { Benchmark, Row, Say, Settings } from "./benchmark.ts";
import { Load } from "./load.ts";
import { childPids, residentBytes, settledResidentBytes } from "./process-usage.ts";
import { digits } from "./report.ts";
import { type Front, killFront, type Servers, startService, withServers } from "./servers.ts";
import { median } from "./statistics.ts";

/** The result with very many streams. */
interface Million {
  readonly streams: number;
  readonly openSeconds: number;
  /** Of all processes of the service, and their growth for each stream. */
  readonly residentBytes: number;
  readonly bytesPerStream: number;
  /** Time from sending a put until the last stream has its event, for each put. */
  readonly millis: readonly number[];
}

const warmUp = { streams: 100, connections: 10 };
const settleMs = 30_000;
const betweenMs = 2_000;
/** Time limit of opening the streams, and of one event, in milliseconds. */
const openWithinMs = 30 * 60_000;
const goalMs = 8_000;
const kibibyte = 1024;
const goalKibibytes = 8;

/**
 * A million streams on one machine, and one event for all of them: until the last one has it, and the memory of all
 * processes of the service. The streams are spread over the workers of one service, or over relays below it.
 */
export const million: Benchmark = {
  name: "million",
  onlyByName: true,
  options: {
    ...{ streams: "1000000", connections: "1000", workers: "2", relays: "0" },
    ...{ "load-processes": "2", events: "3", "value-bytes": "256" },
  },
  async run(settings, say) {
    const serviceArgs = [...bounds(settings), ...workersOf(settings, "root")];
    const result = await withServers(
      "watch-fanout",
      (servers) => measure(servers, settings, say),
      [],
      { serviceArgs },
    );
    return { rows: rowsOf(result, settings), results: result };
  },
};

/** Twice what is needed, since each worker has an equal part. Connections must not be moved or end: the load fails then. */
function bounds(settings: Settings): readonly string[] {
  const streams = 2 * (settings.number("streams") + warmUp.streams);
  const connections = 2 * (settings.number("connections") + warmUp.connections);
  return [
    ...["--max-streams", String(streams), "--max-connections", String(connections)],
    ...["--max-stream-age", "0s"],
  ];
}

/** The servers that clients connect to have the workers: the root, or relays if there are any. */
function workersOf(settings: Settings, tier: "root" | "relay"): readonly string[] {
  const isServing = settings.number("relays") > 0 === (tier === "relay");
  return isServing ? ["--workers", String(settings.number("workers"))] : [];
}

async function measure(servers: Servers, settings: Settings, say: Say): Promise<Million> {
  const relays: Front[] = [];
  // As many for each server.
  const servingCount = Math.max(1, settings.number("relays"));
  const loadCount = Math.ceil(settings.number("load-processes") / servingCount) * servingCount;
  const loads = Array.from({ length: loadCount }, () => new Load());
  const first = new Load();
  try {
    for (let i = 0; i < settings.number("relays"); i++) {
      const upstream = ["--upstream", new URL(servers.url).host];
      const args = [...upstream, ...bounds(settings), ...workersOf(settings, "relay")];
      relays.push(await startService(args));
    }
    const urls = relays.length === 0 ? [servers.url] : relays.map(({ url }) => url);
    const mains = [servers.pid, ...relays.map(({ process: { pid = 0 } }) => pid)];
    const pids = mains.flatMap((pid) => [pid, ...childPids(pid)]);
    return await measureStreams({ servers, urls, pids, first, loads }, settings, say);
  } finally {
    await Promise.all([first, ...loads].map((load) => load.stop()));
    await Promise.all(relays.map(killFront));
  }
}

/** What runs. */
interface Setting {
  readonly servers: Servers;
  /** Where clients connect. */
  readonly urls: readonly string[];
  /** Of the service. */
  readonly pids: readonly number[];
  /** Has a few streams, and writes. */
  readonly first: Load;
  readonly loads: readonly Load[];
}

async function measureStreams(
  { servers: { target, etcd }, urls, pids, first, loads }: Setting,
  settings: Settings,
  say: Say,
): Promise<Million> {
  const [url = ""] = urls;
  await first.open({ target, url, ...warmUp });
  await first.connectWriter(etcd.url, settings.number("value-bytes"));
  const before = await settled(pids);
  say(`${pids.length} processes of the service: ${mebibytes(before)} before`);
  const [streams, connections] = [settings.number("streams"), settings.number("connections")];
  // Each load process has an equal part of the streams at one of the servers.
  const shares = loads.map((load, i) => ({ load, url: urls[i % urls.length] ?? url }));
  const share = {
    streams: Math.ceil(streams / loads.length),
    connections: Math.ceil(connections / loads.length),
  };
  const started = performance.now();
  await Promise.all(
    shares.map((each) => each.load.open({ target, url: each.url, ...share }, openWithinMs)),
  );
  const openSeconds = (performance.now() - started) / 1_000;
  const opened = share.streams * loads.length;
  say(`${opened.toLocaleString("en")} streams are open after ${openSeconds.toFixed(0)} s`);
  const millis: number[] = [];
  // The first put warms up the compiler.
  for (let i = -1; i < settings.number("events"); i++) {
    await delay(betweenMs);
    const { first: n, sentAt } = await first.writePaced(1, 1);
    const had = await Promise.all(loads.map((load) => load.completedBetween(n, n + 1)));
    const ms = Math.max(...had.flat()) - (sentAt[0] ?? 0);
    say(`${i < 0 ? "warm-up" : `event ${i + 1}`}: all have it after ${digits(ms)} ms`);
    if (i >= 0) millis.push(ms);
  }
  const after = await settled(pids);
  for (const pid of pids) say(`  process ${pid}: ${mebibytes(residentBytes(pid))}`);
  const bytesPerStream = (after - before) / opened;
  say(`${mebibytes(after)} in all, ${(bytesPerStream / kibibyte).toFixed(2)} KiB per stream`);
  return { streams: opened, openSeconds, residentBytes: after, bytesPerStream, millis };
}

/** Resident memory of all processes, when it no longer changes. */
async function settled(pids: readonly number[]): Promise<number> {
  const all = await Promise.all(pids.map((pid) => settledResidentBytes(pid, settleMs)));
  return all.reduce((sum, bytes) => sum + bytes, 0);
}

function mebibytes(bytes: number): string {
  return `${Math.round(bytes / kibibyte ** 2).toLocaleString("en")} MiB`;
}

function rowsOf({ streams, bytesPerStream, millis }: Million, settings: Settings): Row[] {
  const [relays, workers] = [settings.number("relays"), settings.number("workers")];
  const processes = workers === 1 ? "one process" : `${workers} workers`;
  const servers = relays === 0 ? processes : `${relays} relays with ${processes} each`;
  const what = `${streams.toLocaleString("en")} streams, ${servers}`;
  const rowOf = (which: string, unit: string, value: number, most: number): Row => ({
    what: `${what}: ${which}`,
    unit,
    watchFanout: value,
    ratios: [],
    goal: `${most.toLocaleString("en")} ${unit}`,
    met: value <= most,
  });
  return [
    rowOf("put to the last, median", "ms", median(millis), goalMs),
    rowOf("put to the last, worst", "ms", Math.max(...millis), goalMs),
    rowOf("memory per stream", "KiB", bytesPerStream / kibibyte, goalKibibytes),
  ];
}
