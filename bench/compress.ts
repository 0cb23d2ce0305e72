import type { BareGrpc } from "../test/foreign/bare-grpc.ts";
import { encode } from "../test/foreign/protobuf.ts";
import { podValue } from "../test/pod-value.ts";
import type { Benchmark, Outcome, Say, Settings } from "./benchmark.ts";
import { Child } from "./child.ts";
import type { CompressQuestion } from "./compress-client.ts";
import { Http2Connection } from "./http2-connection.ts";
import { tableLine } from "./report.ts";
import { keyOf } from "./requests.ts";
import { resource, type Servers, withServers } from "./servers.ts";
import { withConnections } from "./state-stream.ts";
import { median } from "./statistics.ts";

/** What an initial state costs for each of the clients that get it at the same time, after a first one. */
interface StateCost {
  readonly encoding: (typeof encodings)[number];
  /** CPU of the service for each client, in milliseconds. */
  readonly cpuMillis: number;
  /** Bytes of messages that each client receives. */
  readonly bytes: number;
  /** CPU of a grpc-js client, which decompresses and decodes, in milliseconds; undefined: it does not accept the encoding. */
  readonly clientMillis: number | undefined;
}

const watch = "/watchfanout.v1.ListWatchService/Watch";
/** Those of the service, by the encoding that clients accept. */
const encodings = ["identity", "gzip", "zstd"] as const;
const rounds = 3;
const connections = 20;
const jsClients = 40;
const perTransaction = 12;
const widths = [9, 14, 12, 22];
const goals = { cpu: 1.05, bytes: 0.2 };

/** Compressed initial states of JSON values of about 1 KiB, beside the same without compression. */
export const compress: Benchmark = {
  name: "compress",
  onlyByName: true,
  options: { clients: "1000", objects: "1000" },
  async run(settings, say) {
    // grpc-js always accepts gzip, so what it costs without is measured with a service that does not compress.
    const identity = await served("off", settings, (servers) => jsClientMillis(servers));
    const costs = await served("gzip,zstd", settings, async (servers) => {
      const states = await measure(servers, settings);
      const clients = { identity, gzip: await jsClientMillis(servers), zstd: undefined };
      return states.map((state) => ({ ...state, clientMillis: clients[state.encoding] }));
    });
    sayCosts(costs, say);
    return outcomeOf(costs, settings);
  },
};

function served<T>(
  compression: string,
  settings: Settings,
  use: (servers: Servers) => Promise<T>,
): Promise<T> {
  const filled = async (servers: Servers): Promise<T> => {
    await fillPods(servers, settings.number("objects"));
    return use(servers);
  };
  return withServers("watch-fanout", filled, [], { serviceArgs: ["--compression", compression] });
}

/** What states cost with each encoding, which are measured in turn. */
async function measure(
  servers: Servers,
  settings: Settings,
): Promise<Omit<StateCost, "clientMillis">[]> {
  const clients = settings.number("clients");
  const found = encodings.map((encoding) => ({
    encoding,
    cpuMillis: [] as number[],
    bytes: [] as number[],
  }));
  const messages = await withConnections(portOf(servers), 1, ([connection]) =>
    messagesUntilEnd(connection as BareGrpc),
  );
  for (let round = 0; round <= rounds; round++) {
    for (const { encoding, cpuMillis, bytes } of found) {
      const read = (count: number): Promise<number> =>
        withConnections(portOf(servers), Math.min(count, connections), (all) =>
          readAll(all, count, encoding, messages),
        );
      await read(1);
      const before = servers.cpu().front;
      const received = await read(clients);
      const cpu = servers.cpu().front - before;
      // The first round warms up the compiler.
      if (round === 0) continue;
      bytes.push(received / clients);
      cpuMillis.push((cpu * 1_000) / clients);
    }
  }
  return found.map(({ encoding, cpuMillis, bytes }) => ({
    encoding,
    cpuMillis: median(cpuMillis),
    bytes: median(bytes),
  }));
}

/** CPU of a grpc-js client that reads the state, in milliseconds, once its code is warm. */
async function jsClientMillis({ url }: Servers): Promise<number> {
  const child = new Child<CompressQuestion>("compress-client.ts");
  try {
    await child.ask({ url, resource, clients: jsClients });
    return (await child.ask({ url, resource, clients: jsClients })) as number;
  } finally {
    await child.stop();
  }
}

async function fillPods({ etcd }: Servers, objects: number): Promise<void> {
  const lost = (error: Error): void => void Promise.reject(error);
  const connection = await Http2Connection.to(etcd.url, lost);
  for (let from = 0; from < objects; from += perTransaction) {
    const count = Math.min(perTransaction, objects - from);
    // RequestOp: request_put = 2; PutRequest: key = 1, value = 2; TxnRequest: success = 2.
    const operations = Array.from({ length: count }, (_, i) =>
      encode({ 2: encode({ 1: keyOf(from + i), 2: podValue(from + i) }) }),
    );
    const message = encode({ 2: operations });
    await connection.unary({ path: "/etcdserverpb.KV/Txn", message, ends: true, counted: 15 });
  }
  connection.close();
}

function portOf({ url }: Servers): number {
  return Number(new URL(url).port);
}

function openState(connection: BareGrpc, encoding: string) {
  const call = connection.open(watch, { "grpc-accept-encoding": encoding });
  // resource = 1, send_initial_events = 7.
  call.send(encode({ 1: resource, 7: true }));
  call.endRequest();
  return call;
}

/** Number of messages of the state, which is the same with each encoding. */
function messagesUntilEnd(connection: BareGrpc): Promise<number> {
  return new Promise((resolve, reject) => {
    let count = 0;
    openState(connection, "identity").consume(
      (message) => {
        count++;
        // The last fields of the last one: initial_events_end = 3 is true.
        if (message.at(-2) === 0x18 && message.at(-1) === 1) resolve(count);
      },
      (failure) => reject(failure ?? new Error("A stream ended.")),
    );
  });
}

/** Opens the clients, and resolves to the bytes of all messages of their states. */
async function readAll(
  all: readonly BareGrpc[],
  clients: number,
  encoding: string,
  messages: number,
): Promise<number> {
  let bytes = 0;
  await Promise.all(
    Array.from({ length: clients }, (_, i) => {
      return new Promise<void>((resolve, reject) => {
        let left = messages;
        openState(all[i % all.length] as BareGrpc, encoding).consume(
          (message) => {
            bytes += message.length;
            if (--left === 0) resolve();
          },
          (failure) => reject(failure ?? new Error("A stream ended.")),
        );
      });
    }),
  );
  return bytes;
}

function sayCosts(costs: readonly StateCost[], say: Say): void {
  say(tableLine(["encoding", "CPU ms/client", "KiB/client", "CPU ms of a grpc-js"], widths));
  for (const { encoding, cpuMillis, bytes, clientMillis } of costs) {
    const figures = [cpuMillis.toFixed(3), (bytes / 1_024).toFixed(1)];
    say(tableLine([encoding, ...figures, clientMillis?.toFixed(2) ?? "-"], widths));
  }
}

function outcomeOf(costs: readonly StateCost[], settings: Settings): Outcome {
  const [plain, gzip] = costs;
  if (plain === undefined || gzip === undefined) throw new Error("Nothing was measured.");
  const at = `${settings.number("clients")} clients, ${settings.number("objects")} objects of 1 KiB`;
  const rowOf = (what: string, unit: string, goal: number, of: (cost: StateCost) => number) => {
    const [watchFanout, value] = [of(gzip), of(gzip) / of(plain)];
    const ratios = [{ of: "without", value }];
    return { what, unit, watchFanout, ratios, goal: `${goal} × without`, met: value <= goal };
  };
  return {
    rows: [
      rowOf(`CPU of an initial state with gzip, ${at}`, "ms", goals.cpu, (cost) => cost.cpuMillis),
      rowOf(
        `bytes of an initial state with gzip, ${at}`,
        "bytes",
        goals.bytes,
        (cost) => cost.bytes,
      ),
    ],
    results: costs,
  };
}
