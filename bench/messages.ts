import { WatchBatch, WatchEvent } from "../src/model/event.ts";
import { StoredObject } from "../src/model/object.ts";
import { framesOf } from "../src/wire/frames.ts";
import type { Benchmark, Row, Settings } from "./benchmark.ts";
import { Child } from "./child.ts";
import { withLoad } from "./load.ts";
import type { PlainQuestion } from "./plain-sockets.ts";
import { tableLine } from "./report.ts";
import { keyOf } from "./requests.ts";
import { attempt, type Servers, type Target } from "./servers.ts";
import { type Percentiles, percentilesOf } from "./statistics.ts";

type Served = Target | "plain sockets";

/** The rate of puts and the number of connections of one measurement. */
interface Shape {
  readonly perSecond: number;
  readonly connections: number;
}

/** The result of one server. */
interface MessageCost extends Shape, Percentiles {
  readonly served: Served;
  /** CPU of the process that serves the streams per delivered event, in microseconds. */
  readonly cpuMicros: number;
  readonly eventsPerMessage: number;
}

const widths = [8, 12, 14, 13, 12, 15, 9, 9];

/** Over plaintext, and over TLS. */
export const messages: Benchmark = benchmarkOf("messages", false);
export const messagesTls: Benchmark = benchmarkOf("messages-tls", true);

/** The cost of a message at rates where few events can share one. */
function benchmarkOf(name: string, isTls: boolean): Benchmark {
  return {
    name,
    options: {
      streams: "1000",
      connections: "20,1000",
      "value-bytes": "256",
      "puts-per-second": "30,200",
      seconds: "6",
      "warm-up-puts": "2000",
    },
    async run(settings, say) {
      const results: MessageCost[] = [];
      const headings = ["puts/s", "connections", "server", "CPU µs/event"];
      say(tableLine([...headings, "of a message", "events/message", "p50 ms", "p99 ms"], widths));
      for (const perSecond of settings.numbers("puts-per-second")) {
        for (const connections of settings.numbers("connections")) {
          const shape = { perSecond, connections };
          const add = (found: readonly MessageCost[]): void => {
            results.push(...found);
            for (const result of found) say(line(result));
          };
          for (const target of targetsOf(isTls)) {
            const measured = (servers: Servers): Promise<MessageCost> =>
              measure(target, servers, shape, settings);
            add(await attempt(target, say, measured, { isTls }));
          }
          add([await measurePlain(shape, settings, isTls)]);
        }
      }
      const over = isTls ? ", TLS" : "";
      return { rows: rowsOf(results, settings, over), results };
    },
  };
}

/** grpc-proxy has no TLS towards its clients without a second certificate for etcd. */
function targetsOf(isTls: boolean): readonly Target[] {
  return isTls ? ["etcd", "watch-fanout"] : ["etcd", "grpc-proxy", "watch-fanout"];
}

/** Of etcd and grpc-proxy, at the rate that is measured. */
const warmUpSeconds = 2;
/**
 * How fast the puts before the measurement of a Node.js process follow one another. At 30 a second, V8 needs minutes until
 * it has optimized what runs once per put. Go is compiled ahead.
 */
const warmUpPerSecond = 100;

export function measure(
  served: Served,
  servers: Servers,
  shape: Shape,
  settings: Settings,
): Promise<MessageCost> {
  return withLoad(async (load) => {
    const { target, url, etcd } = servers;
    const { perSecond, connections } = shape;
    await load.open({ target, url, connections, streams: settings.number("streams") });
    await load.connectWriter(etcd.url, settings.number("value-bytes"));
    const seconds = settings.number("seconds");
    const warmUp =
      target === "watch-fanout"
        ? await load.writePaced(warmUpPerSecond, settings.number("warm-up-puts"))
        : await load.writePaced(perSecond, perSecond * warmUpSeconds);
    // What is left of them would delay the puts that are measured.
    await load.completedBetween(warmUp.first, warmUp.first + warmUp.sentAt.length);
    const before = await load.count();
    const cpuBefore = servingCpu(servers);
    const { first, sentAt } = await load.writePaced(perSecond, perSecond * seconds);
    const completedAt = await load.completedBetween(first, first + sentAt.length);
    const cpuAfter = servingCpu(servers);
    const after = await load.count();
    const delivered = after.delivered - before.delivered;
    const millis = completedAt.map((at, i) => at - (sentAt[i] ?? Number.NaN));
    return {
      served,
      ...shape,
      cpuMicros: ((cpuAfter - cpuBefore) * 1e6) / delivered,
      eventsPerMessage: delivered / (after.messages - before.messages),
      ...percentilesOf(millis),
    };
  });
}

/** Of the process that clients connect to. */
function servingCpu(servers: Servers): number {
  const { etcd, front } = servers.cpu();
  return servers.target === "etcd" ? etcd : front;
}

export async function measurePlain(
  shape: Shape,
  settings: Settings,
  isTls: boolean,
): Promise<MessageCost> {
  const { perSecond, connections } = shape;
  const server = new Child<PlainQuestion>("plain-sockets.ts");
  const reader = new Child<PlainQuestion>("plain-sockets.ts");
  try {
    const streams = settings.number("streams");
    const bytes = (streams / connections) * messageBytes(settings.number("value-bytes"));
    const url = (await server.ask({ do: "listen", isTls })) as string;
    await reader.ask({ do: "read", url, connections, bytes });
    const warmUp = settings.number("warm-up-puts");
    const warmUpWrites = { connections, bytes, perSecond: warmUpPerSecond, count: warmUp };
    await server.ask({ do: "write", ...warmUpWrites });
    await reader.ask({ do: "completed", from: 0, to: warmUp });
    const before = (await server.ask({ do: "cpu" })) as number;
    const count = perSecond * settings.number("seconds");
    const sentAt = (await server.ask({
      do: "write",
      connections,
      bytes,
      perSecond,
      count,
    })) as number[];
    const to = warmUp + count;
    const completedAt = (await reader.ask({ do: "completed", from: warmUp, to })) as number[];
    const after = (await server.ask({ do: "cpu" })) as number;
    const millis = completedAt.map((at, i) => at - (sentAt[i] ?? Number.NaN));
    return {
      served: "plain sockets",
      ...shape,
      cpuMicros: ((after - before) * 1e6) / (count * streams),
      eventsPerMessage: 1,
      ...percentilesOf(millis),
    };
  } finally {
    await Promise.all([server.stop(), reader.stop()]);
  }
}

const frameHeadBytes = 9;

/** Size of a message with one event in its frame, in bytes. */
function messageBytes(valueBytes: number): number {
  const revision = 100_000;
  const object = new StoredObject(
    keyOf(1).slice(7),
    Buffer.alloc(valueBytes),
    1_000,
    revision,
    9,
    0n,
  );
  const [frame] = framesOf(new WatchBatch(revision, [new WatchEvent("MODIFIED", object, object)]));
  return frameHeadBytes + (frame?.byteLength ?? 0);
}

function line(result: MessageCost): string {
  const { perSecond, connections, served, cpuMicros, eventsPerMessage, p50, p99 } = result;
  return tableLine(
    [
      ...[String(perSecond), String(connections), served],
      ...[cpuMicros, cpuMicros * eventsPerMessage, eventsPerMessage, p50, p99].map((figure) =>
        figure.toFixed(2),
      ),
    ],
    widths,
  );
}

/** The maximum of the ratio to etcd, and to the plain sockets per message, of a shape. */
interface Goals {
  readonly etcd: number;
  readonly plain: number;
}

function goalsOf({ perSecond, connections }: Shape, streams: number): Goals {
  if (connections < streams) return { etcd: 1 / 5, plain: 2 };
  return { etcd: perSecond < 100 ? 1 / 2 : 1 / 3, plain: 1.3 };
}

function rowsOf(results: readonly MessageCost[], settings: Settings, over: string): Row[] {
  const streams = settings.number("streams");
  return results
    .filter(({ served }) => served === "watch-fanout")
    .flatMap((ours) => {
      const { perSecond, connections } = ours;
      const other = (served: Served): MessageCost | undefined =>
        results.find(
          (result) =>
            result.served === served &&
            result.perSecond === perSecond &&
            result.connections === connections,
        );
      const etcd = other("etcd");
      const plain = other("plain sockets");
      const proxy = other("grpc-proxy");
      const at = `${perSecond} puts/s, ${streams} streams, ${connections} connections${over}`;
      const goals = goalsOf(ours, streams);
      const ofEtcd = ours.cpuMicros / (etcd?.cpuMicros ?? Number.NaN);
      const ofPlain = (ours.cpuMicros * ours.eventsPerMessage) / (plain?.cpuMicros ?? Number.NaN);
      const cost: Row = {
        what: `CPU of the serving process per delivered event, ${at}`,
        unit: "µs",
        watchFanout: ours.cpuMicros,
        etcd: etcd?.cpuMicros,
        grpcProxy: proxy?.cpuMicros,
        ratios: [
          { of: "etcd", value: ofEtcd },
          { of: "plain sockets, per message", value: ofPlain },
        ],
        goal: `1/${Math.round(1 / goals.etcd)} of etcd, ${goals.plain} × plain sockets`,
        met: ofEtcd <= goals.etcd && ofPlain <= goals.plain,
      };
      const latencies = (["p50", "p99"] as const).map((which): Row => {
        const value = ours[which] / (etcd?.[which] ?? Number.NaN);
        return {
          what: `put to the last, ${at}, ${which}`,
          unit: "ms",
          watchFanout: ours[which],
          etcd: etcd?.[which],
          grpcProxy: proxy?.[which],
          ratios: [{ of: "etcd", value }],
          goal: "1/2 of etcd",
          met: value <= 1 / 2,
        };
      });
      return [cost, ...latencies];
    });
}
