import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { encode } from "../test/foreign/protobuf.ts";
import type { Benchmark, Row, Settings } from "./benchmark.ts";
import { measureFanout } from "./fanout.ts";
import { type CallRequest, Http2Connection } from "./http2-connection.ts";
import { tableLine } from "./report.ts";
import { keyOf, putRequest } from "./requests.ts";
import { resource, type Servers, withServers } from "./servers.ts";
import { median } from "./statistics.ts";

/** What of the telemetry is on: nothing; everything, with one call in a hundred traced; everything, with all traced. */
const variants = ["off", "1 %", "all"] as const;

type Variant = (typeof variants)[number];

/** What is measured: an event that is delivered, or a Get. */
type Subject = "event" | "Get";

/** The most that each may cost, as a multiple of its cost with everything off. */
const goals: Readonly<Record<Subject, Readonly<Record<Exclude<Variant, "off">, number>>>> = {
  // Events are not traced.
  event: { "1 %": 1.05, all: 1.05 },
  Get: { "1 %": 1.25, all: 3 },
};

/** Of the contract: the newest state, and the cache, whatever its revision. */
const revisionMatch = { linearizable: 1, any: 2 };

const warmUpGets = 2_000;
const widths = [6, 10, 10, 14];

/**
 * The cost of traces, metrics that are pushed, and an audit log of all calls, beside that without any of them:
 * alternately, so that other activity of the machine affects all.
 */
export const telemetry: Benchmark = {
  name: "telemetry",
  onlyByName: true,
  options: {
    ...{ streams: "1000", connections: "20", "value-bytes": "256", seconds: "5" },
    ...{ gets: "50000", concurrency: "32", rounds: "5" },
  },
  async run(settings, say) {
    const folder = await mkdtemp(join(tmpdir(), "watch-fanout-bench-"));
    const collector = await startCollector();
    const micros: Record<Subject, Record<Variant, number[]>> = {
      event: { off: [], "1 %": [], all: [] },
      Get: { off: [], "1 %": [], all: [] },
    };
    try {
      const args = argsOf(collector.url, join(folder, "audit.log"));
      say(tableLine(["round", "telemetry", "of", "CPU µs"], widths));
      for (let round = 0; round < settings.number("rounds"); round++) {
        // None is always the first.
        const order = variants.map((_, at) => variants[(at + round) % variants.length] ?? "off");
        for (const variant of order) {
          for (const subject of ["event", "Get"] as const) {
            const result = await withServers(
              "watch-fanout",
              (servers) => measures[subject](servers, settings),
              [],
              { serviceArgs: args[variant] },
            );
            micros[subject][variant].push(result);
            say(tableLine([String(round), variant, subject, result.toFixed(2)], widths));
          }
        }
      }
    } finally {
      await collector.close();
      await rm(folder, { recursive: true });
    }
    return { rows: rowsOf(micros, settings), results: { micros, exports: collector.requests() } };
  },
};

/** CPU of the service, in microseconds. */
const measures: Readonly<
  Record<Subject, (servers: Servers, settings: Settings) => Promise<number>>
> = {
  event: async (servers, settings) => {
    const shape = {
      streams: settings.number("streams"),
      connections: settings.number("connections"),
    };
    return (await measureFanout(servers, shape, settings)).frontCpuMicros;
  },
  Get: async (servers, settings) => {
    const lost = (error: Error): void => void Promise.reject(error);
    const writer = await Http2Connection.to(servers.etcd.url, lost);
    await writer.unary(putRequest(keyOf(0), Buffer.alloc(settings.number("value-bytes"))));
    writer.close();
    const connection = await Http2Connection.to(servers.url, lost);
    // Waits until the cache has the object.
    await connection.unary(getRequest(revisionMatch.linearizable));
    await gets(connection, warmUpGets, settings.number("concurrency"));
    const before = servers.cpu().front;
    await gets(connection, settings.number("gets"), settings.number("concurrency"));
    const seconds = servers.cpu().front - before;
    connection.close();
    return (seconds * 1e6) / settings.number("gets");
  },
};

/** A Get of the object. */
function getRequest(match: number): CallRequest {
  // GetRequest: resource = 1, key = 2, revision_match = 3.
  const message = encode({ 1: resource, 2: "0000000", 3: match });
  return { path: "/watchfanout.v1.ListWatchService/Get", message, ends: true, counted: 2 };
}

/** Makes this many Gets, some of them at the same time. */
async function gets(
  connection: Http2Connection,
  count: number,
  concurrency: number,
): Promise<void> {
  const request = getRequest(revisionMatch.any);
  let left = count;
  const caller = async (): Promise<void> => {
    while (left-- > 0) await connection.unary(request);
  };
  await Promise.all(Array.from({ length: concurrency }, caller));
}

function argsOf(url: string, audit: string): Readonly<Record<Variant, readonly string[]>> {
  const exported = ["--otlp-endpoint", url, "--otlp-metrics-interval", "1s"];
  const all = [...exported, "--audit-log", audit, "--audit-level", "all"];
  return {
    off: [],
    "1 %": [...all, "--trace-ratio", "0.01"],
    all: [...all, "--trace-ratio", "1"],
  };
}

/** A collector that accepts everything and keeps nothing. */
async function startCollector() {
  let requests = 0;
  const server = createServer((request, response) => {
    requests++;
    request.resume().on("end", () => response.end());
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests: () => requests,
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

function rowsOf(micros: Record<Subject, Record<Variant, number[]>>, settings: Settings): Row[] {
  const what = {
    event: `delivered event, ${settings.number("streams")} streams`,
    Get: `Get, ${settings.number("concurrency")} at once`,
  };
  return (["event", "Get"] as const).flatMap((subject) =>
    (["1 %", "all"] as const).map((variant) => {
      const on = median(micros[subject][variant]);
      const ratio = on / median(micros[subject].off);
      const goal = goals[subject][variant];
      return {
        what: `the service's CPU per ${what[subject]}, with telemetry, ${variant} of the calls traced`,
        unit: "µs",
        watchFanout: on,
        ratios: [{ of: "without telemetry", value: ratio }],
        goal: `at most ${goal} times that without`,
        met: ratio <= goal,
      };
    }),
  );
}
