import { randomBytes } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import type { Benchmark, Row, Settings } from "./benchmark.ts";
import { fill } from "./fill.ts";
import { Http2Connection } from "./http2-connection.ts";
import { compare, tableLine } from "./report.ts";
import { keyOf, listPages, putRequest, range } from "./requests.ts";
import { attempt, type Servers, type Target, targets } from "./servers.ts";
import { median } from "./statistics.ts";

/** The cost of one complete list: CPU of all servers, and duration, in milliseconds. */
interface ListCost {
  readonly target: Target;
  readonly how: string;
  readonly writesBetween: number;
  readonly cpuMillis: number;
  readonly frontCpuMillis: number;
  readonly millis: number;
}

interface Way {
  readonly how: string;
  readonly writesBetween: number;
  readonly list: (connection: Http2Connection) => Promise<{ readonly objects: number }>;
}

/** V8 has optimized what runs for each list by then. */
const warmUpLists = 100;
/** Long enough for the writes between two lists to be processed. */
const restMs = 30;
const widths = [13, 14, 15, 8, 12, 8];

/** The cost of listing many objects. */
export const listCost: Benchmark = {
  name: "list-cost",
  options: { objects: "10000", "value-bytes": "1024", lists: "50", "writes-between": "10" },
  async run(settings, say) {
    const results: ListCost[] = [];
    say(tableLine(["server", "list", "writes between", "CPU ms", "before etcd", "ms"], widths));
    for (const target of targets) {
      const found = await attempt(target, say, (servers) => measureLists(servers, settings));
      results.push(...found.flat());
      for (const { how, writesBetween, cpuMillis, frontCpuMillis, millis } of found.flat()) {
        const figures = [cpuMillis, frontCpuMillis, millis].map((figure) => figure.toFixed(1));
        say(tableLine([target, how, String(writesBetween), ...figures], widths));
      }
    }
    return { rows: rowsOf(results, settings), results };
  },
};

/** Measures the ways to list that one server has. Uses the options `objects`, `value-bytes`, `lists` and `writes-between`. */
export async function measureLists(servers: Servers, settings: Settings): Promise<ListCost[]> {
  await fill(servers.etcd, settings.number("objects"), settings.number("value-bytes"));
  const results: ListCost[] = [];
  for (const way of waysOf(servers.target, settings.number("writes-between"))) {
    results.push(await measure(servers, way, settings));
  }
  return results;
}

function waysOf(target: Target, writesBetween: number): readonly Way[] {
  if (target === "watch-fanout") {
    const how = "all pages";
    return [
      { how, writesBetween: 0, list: listPages },
      { how, writesBetween, list: listPages },
    ];
  }
  return [
    { how: "linearizable", writesBetween: 0, list: (connection) => range(connection) },
    { how: "linearizable", writesBetween, list: (connection) => range(connection) },
    { how: "serializable", writesBetween: 0, list: (connection) => range(connection, true) },
  ];
}

async function measure(servers: Servers, way: Way, settings: Settings): Promise<ListCost> {
  const objects = settings.number("objects");
  const lost = (error: Error): void => void Promise.reject(error);
  const connection = await Http2Connection.to(servers.url, lost);
  const writer = await Http2Connection.to(servers.etcd.url, lost);
  const value = randomBytes(settings.number("value-bytes"));
  let written = 0;
  let etcdCpu = 0;
  let frontCpu = 0;
  const millis: number[] = [];
  for (let i = -warmUpLists; i < settings.number("lists"); i++) {
    for (let write = 0; write < way.writesBetween; write++) {
      // Spread over all keys.
      written = (written + 611_953) % objects;
      await writer.unary(putRequest(keyOf(written), value));
    }
    if (way.writesBetween > 0) await delay(restMs);
    const before = servers.cpu();
    const started = performance.now();
    const listed = await way.list(connection);
    const took = performance.now() - started;
    if (listed.objects !== objects) throw new Error(`A list had ${listed.objects} objects.`);
    if (i < 0) continue;
    const after = servers.cpu();
    millis.push(took);
    etcdCpu += after.etcd - before.etcd;
    frontCpu += after.front - before.front;
  }
  connection.close();
  writer.close();
  const perList = 1_000 / millis.length;
  return {
    target: servers.target,
    how: way.how,
    writesBetween: way.writesBetween,
    cpuMillis: (etcdCpu + frontCpu) * perList,
    frontCpuMillis: frontCpu * perList,
    millis: median(millis),
  };
}

function rowsOf(results: readonly ListCost[], settings: Settings): Row[] {
  const writes = settings.number("writes-between");
  return [0, writes].map((writesBetween) =>
    compare({
      what:
        `CPU of a list of ${settings.number("objects")} x ${settings.number("value-bytes")} B, ` +
        (writesBetween === 0 ? "cache unchanged" : `${writesBetween} writes between lists`),
      unit: "ms",
      // The first one of each is etcd's default, linearizable.
      of: (target) =>
        results.find((each) => each.target === target && each.writesBetween === writesBetween)
          ?.cpuMillis,
      goals: { etcd: writesBetween === 0 ? 1 / 10 : 1 / 7 },
      goal: writesBetween === 0 ? "1/10 of etcd" : "1/7 of etcd",
    }),
  );
}
