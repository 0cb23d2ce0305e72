import { randomBytes } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import type { Benchmark, Row, Settings } from "./benchmark.ts";
import { fill } from "./fill.ts";
import { defaultWindows, Http2Connection, openWindows } from "./http2-connection.ts";
import { compare, tableLine } from "./report.ts";
import { keyOf, listPages, putRequest, range } from "./requests.ts";
import { attempt, type Servers, type Target, targets } from "./servers.ts";
import { median } from "./statistics.ts";

/** The cost of one complete list: CPU of all servers, and duration, in milliseconds. */
interface ListCost {
  readonly target: Target;
  readonly how: string;
  readonly writesBetween: number;
  readonly windows: ClientWindows;
  readonly cpuMillis: number;
  readonly frontCpuMillis: number;
  readonly millis: number;
}

/**
 * The flow control windows of the client: HTTP/2's 64 KiB, which grpc-js leaves as they are, or ones that never limit the
 * server. gRPC for Go and for C++ begin with the former and extend them within a few round trips.
 */
type ClientWindows = "64 KiB" | "open";

interface Way {
  readonly how: string;
  readonly writesBetween: number;
  readonly windows: ClientWindows;
  readonly list: (connection: Http2Connection) => Promise<{ readonly objects: number }>;
}

/** V8 has optimized what runs for each list by then. */
const warmUpLists = 100;
/** Long enough for the writes between two lists to be processed. */
const restMs = 30;
const widths = [13, 14, 15, 8, 8, 12, 8];

/** The cost of listing many objects. */
export const listCost: Benchmark = {
  name: "list-cost",
  options: { objects: "10000", "value-bytes": "1024", lists: "50", "writes-between": "10" },
  async run(settings, say) {
    const results: ListCost[] = [];
    const headings = ["server", "list", "writes between", "windows", "CPU ms", "before etcd", "ms"];
    say(tableLine(headings, widths));
    for (const target of targets) {
      const found = await attempt(target, say, (servers) => measureLists(servers, settings));
      results.push(...found.flat());
      for (const { how, writesBetween, windows, ...cost } of found.flat()) {
        const figures = [cost.cpuMillis, cost.frontCpuMillis, cost.millis].map((figure) =>
          figure.toFixed(1),
        );
        say(tableLine([target, how, String(writesBetween), windows, ...figures], widths));
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
  if (target === "watch-fanout") return waysTo("all pages", listPages, writesBetween);
  return [
    ...waysTo("linearizable", (connection) => range(connection), writesBetween),
    {
      how: "serializable",
      writesBetween: 0,
      windows: "open",
      list: (connection) => range(connection, true),
    },
  ];
}

function waysTo(how: string, list: Way["list"], writesBetween: number): readonly Way[] {
  return [
    { how, writesBetween: 0, windows: "open", list },
    { how, writesBetween, windows: "open", list },
    { how, writesBetween: 0, windows: "64 KiB", list },
  ];
}

async function measure(servers: Servers, way: Way, settings: Settings): Promise<ListCost> {
  const objects = settings.number("objects");
  const lost = (error: Error): void => void Promise.reject(error);
  const windows = way.windows === "open" ? openWindows : defaultWindows;
  const connection = await Http2Connection.to(servers.url, lost, windows);
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
    windows: way.windows,
    cpuMillis: (etcdCpu + frontCpu) * perList,
    frontCpuMillis: frontCpu * perList,
    millis: median(millis),
  };
}

function rowsOf(results: readonly ListCost[], settings: Settings): Row[] {
  const what = `CPU of a list of ${settings.number("objects")} x ${settings.number("value-bytes")} B`;
  const row = (which: string, writesBetween: number, windows: ClientWindows, goal: number): Row =>
    compare({
      what: `${what}, ${which}`,
      unit: "ms",
      // The first one of each is etcd's default, linearizable.
      of: (target) =>
        results.find(
          (each) =>
            each.target === target &&
            each.writesBetween === writesBetween &&
            each.windows === windows,
        )?.cpuMillis,
      goals: { etcd: goal },
      goal: `1/${Math.round(1 / goal)} of etcd`,
    });
  const writes = settings.number("writes-between");
  return [
    row("cache unchanged", 0, "open", 1 / 5),
    row("cache unchanged, client with windows of 64 KiB", 0, "64 KiB", 1 / 5),
    row(`${writes} writes between lists`, writes, "open", 1 / 7),
  ];
}
