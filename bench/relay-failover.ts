import { randomBytes } from "node:crypto";
import { Message } from "../test/foreign/protobuf.ts";
import { type Benchmark, type Row, type Say, type Settings, UsageError } from "./benchmark.ts";
import { Child } from "./child.ts";
import { Http2Connection } from "./http2-connection.ts";
import { monotonicMs } from "./monotonic-clock.ts";
import { digits } from "./report.ts";
import { keyOf, putRequest } from "./requests.ts";
import type { ResumingCounts, ResumingQuestion } from "./resuming-load.ts";
import {
  type Front,
  freePort,
  keyPrefix,
  killFront,
  resource,
  Servers,
  startService,
} from "./servers.ts";

/** What was measured after one server was killed. */
interface Failover {
  /** From a put just after the kill until the last stream has it, in milliseconds. */
  readonly millis: number;
  /** Streams whose client had to resume them. */
  readonly resumed: number;
  /** Streams that were ended by a server. */
  readonly ended: number;
  /** Lists of a relay because it could not continue its watch. */
  readonly relists: number;
}

interface Failovers {
  readonly before: Failover;
  readonly rootKilled: Failover;
  readonly relayKilled: Failover;
}

const goalMs = 10_000;

/**
 * Two roots of one etcd, relays that follow the first root, and many streams at the relays. The first root is killed: the
 * relays continue at the other one. Then a relay is killed: its clients resume at the other relays, all at once. A put just
 * after each shows how long it takes until all streams have the next event, and whether a relay had to list again.
 */
export const relayFailover: Benchmark = {
  name: "relay-failover",
  onlyByName: true,
  options: {
    ...{ streams: "100000", connections: "1000", "value-bytes": "256" },
    ...{ relays: "2", "load-processes": "2" },
  },
  async run(settings, say) {
    const servers = await Servers.ofEtcd("watch-fanout");
    const fronts: Front[] = [];
    const loads = Array.from(
      { length: settings.number("load-processes") },
      () => new Child<ResumingQuestion>("resuming-load.ts"),
    );
    try {
      const results = await measure({ servers, fronts, loads }, settings, say);
      return { rows: rowsOf(results, settings), results };
    } finally {
      await Promise.all(loads.map((load) => load.stop()));
      await Promise.all(fronts.map(killFront));
      await servers.stop();
    }
  },
};

/** What runs: ended by the caller. */
interface Setting {
  readonly servers: Servers;
  readonly fronts: Front[];
  readonly loads: readonly Child<ResumingQuestion>[];
}

async function measure(setting: Setting, settings: Settings, say: Say): Promise<Failovers> {
  const { servers, fronts, loads } = setting;
  const started = async (args: readonly string[]): Promise<Front> => {
    const front = await startService([
      ...args,
      "--max-streams",
      String(2 * settings.number("streams")),
    ]);
    fronts.push(front);
    return front;
  };
  const ofEtcd = ["--etcd", servers.etcd.url, "--resource", `${resource}=${keyPrefix}`];
  const otherRoot = `127.0.0.1:${await freePort()}`;
  const root = await started(ofEtcd);
  const upstream = `${new URL(root.url).host},${otherRoot}`;
  const relays: Front[] = [];
  for (let i = 0; i < settings.number("relays"); i++) {
    relays.push(await started(["--upstream", upstream]));
  }
  // After the relays, so that all of them follow the first one.
  await started([...ofEtcd, "--listen", otherRoot]);
  const share = {
    streams: Math.ceil(settings.number("streams") / loads.length),
    connections: Math.ceil(settings.number("connections") / loads.length),
  };
  const urls = relays.map(({ url }) => url);
  await Promise.all(loads.map((load) => load.ask({ do: "open", urls, ...share })));
  const writer = await Http2Connection.to(servers.etcd.url, (error) => void Promise.reject(error));
  const valueBytes = settings.number("value-bytes");
  const putAndWait = async (what: string, living: readonly Front[]): Promise<Failover> => {
    const counted = await countsOf(loads);
    const sentAt = monotonicMs();
    // PutResponse: header = 1.
    const response = await writer.unary(putRequest(keyOf(0), randomBytes(valueBytes)));
    const revision = revisionOf(response.bytes1);
    const reached = await Promise.all(
      loads.map((load) => load.ask({ do: "await revision", revision })),
    );
    const millis = Math.max(...(reached as number[])) - sentAt;
    const { resumed, ended } = await countsOf(loads);
    const found = {
      millis,
      resumed: resumed - counted.resumed,
      ended: ended - counted.ended,
      relists: await relistsOf(living),
    };
    say(
      `${what}: all have the next put after ${digits(millis)} ms; ${found.resumed} streams resumed, ` +
        `${found.ended} ended by a server, ${found.relists} relists`,
    );
    return found;
  };
  const [killed, ...others] = relays;
  if (killed === undefined || others.length === 0) throw new UsageError("--relays: at least 2.");
  // The first put warms up the compiler.
  await putAndWait("warm-up", relays);
  const before = await putAndWait("before", relays);
  await killFront(root);
  const rootKilled = await putAndWait("root killed", relays);
  await killFront(killed);
  const relayKilled = await putAndWait("relay killed", others);
  writer.close();
  return { before, rootKilled, relayKilled };
}

/** Of the response to a put. */
function revisionOf(header: Buffer | undefined): number {
  // ResponseHeader: revision = 3.
  return new Message(header ?? Buffer.of()).number(3);
}

async function countsOf(loads: readonly Child<ResumingQuestion>[]): Promise<ResumingCounts> {
  const counts = (await Promise.all(
    loads.map((load) => load.ask({ do: "count" })),
  )) as ResumingCounts[];
  return {
    resumed: counts.reduce((sum, { resumed }) => sum + resumed, 0),
    ended: counts.reduce((sum, { ended }) => sum + ended, 0),
  };
}

async function relistsOf(relays: readonly Front[]): Promise<number> {
  const texts = await Promise.all(
    relays.map(async ({ admin }) => (await fetch(`${admin}/metrics`)).text()),
  );
  const samples = texts.flatMap((text) => [
    ...text.matchAll(/^watch_fanout_upstream_relists_total\{[^}]*\} (\d+)/gm),
  ]);
  return samples.reduce((sum, [, relists]) => sum + Number(relists), 0);
}

function rowsOf({ rootKilled, relayKilled }: Failovers, settings: Settings): Row[] {
  const count = settings.number("streams").toLocaleString("en");
  const relays = settings.number("relays");
  const rowOf = (what: string, unit: string, value: number, most: number): Row => ({
    what: `${count} streams at ${relays} relays: ${what}`,
    unit,
    watchFanout: value,
    ratios: [],
    goal: most === 0 ? "none" : `${most.toLocaleString("en")} ${unit}`,
    met: value <= most,
  });
  return [
    rowOf("root killed, put to the last", "ms", rootKilled.millis, goalMs),
    rowOf("relay killed, put to the last", "ms", relayKilled.millis, goalMs),
    rowOf("relists of relays", "", relayKilled.relists + rootKilled.relists, 0),
    rowOf("streams that can't be resumed", "", rootKilled.ended + relayKilled.ended, 0),
  ];
}
