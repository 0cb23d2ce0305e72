import { createServer, type Http2Server, type ServerHttp2Stream } from "node:http2";
import type { AddressInfo } from "node:net";
import { type Logger, pino } from "pino";
import { afterAll } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import type {
  ConnectedMember,
  UpstreamConnection,
} from "../../src/etcd/client/upstream-connection.ts";
import { EtcdServer } from "../../src/etcd-server/etcd-server.ts";
import { ServedStore } from "../../src/etcd-server/protocol/served-store.ts";
import { MemoryStore, type MemoryStoreOptions } from "../../src/storage/memory/memory-store.ts";
import { RawGrpc } from "../etcd-api/raw-grpc.ts";

/** An embedded store with etcd's API, and a client of it. */
export interface Served {
  readonly store: MemoryStore;
  readonly server: Pick<EtcdServer, "connect">;
  /** For calls of this process. */
  readonly connection: UpstreamConnection;
  readonly client: RawGrpc;
  /** Another client, on a connection of its own. */
  connect(): RawGrpc;
  close(): Promise<void>;
}

export async function serveStore(
  options: Partial<MemoryStoreOptions> = {},
  progressIntervalMs: number = 600_000,
  store: MemoryStore = new MemoryStore({ clock: systemClock, ...options }),
  logger: Logger = pino({ level: "silent" }),
): Promise<Served> {
  const server = new EtcdServer({
    ...{ served: new ServedStore(store), progressIntervalMs, logger },
    historyKey: Buffer.from("/watchfanout/history"),
    clientUrl: () => "http://127.0.0.1:2379",
  });
  const connection = server.connect({ isInUse: true } as ConnectedMember);
  const passing = await passOn(connection);
  const { port } = passing.address() as AddressInfo;
  const clients: RawGrpc[] = [];
  const newClient = (): RawGrpc => {
    const client = new RawGrpc(`http://127.0.0.1:${port}`);
    clients.push(client);
    return client;
  };
  return {
    ...{ store, connection, server: { connect: (member) => server.connect(member) } },
    client: newClient(),
    connect: newClient,
    close: async () => {
      for (const client of clients) client.close();
      server.close();
      passing.close();
      await store.close();
    },
  };
}

/** Passes calls by HTTP/2 on to a server of this process, as they are. */
async function passOn(connection: UpstreamConnection): Promise<Http2Server> {
  const server = createServer();
  server.on("stream", (stream: ServerHttp2Stream, headers) => {
    const call = connection.request(headers);
    stream.on("error", () => {}).on("close", () => call.close(0));
    stream.on("data", (chunk: Buffer) => {
      if (!call.write(chunk)) stream.pause();
    });
    stream.on("end", () => call.end());
    call.on("drain", () => stream.resume());
    let trailers = {};
    call.on("trailers", (received) => {
      trailers = received;
    });
    call.on("response", (received, flags) => {
      if (stream.destroyed) return;
      if (flags !== 0) trailers = received;
      stream.respond(received, flags === 0 ? { waitForTrailers: true } : { endStream: true });
    });
    stream.on("wantTrailers", () => stream.sendTrailers(trailers));
    call.on("data", (chunk: Buffer) => {
      if (!stream.write(chunk)) call.pause();
    });
    stream.on("drain", () => call.resume());
    call.on("end", () => stream.end());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return server;
}

/** One for the tests of the file that calls this at its top. */
export function servedOfFile(options: Partial<MemoryStoreOptions> = {}): () => Promise<Served> {
  let started: Promise<Served> | undefined;
  afterAll(async () => {
    await (await started)?.close();
  });
  return () => {
    started ??= serveStore(options);
    return started;
  };
}
