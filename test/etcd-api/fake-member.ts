import { once } from "node:events";
import {
  createServer as createHttp2Server,
  type IncomingHttpHeaders,
  type ServerHttp2Stream,
} from "node:http2";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { onTestFinished } from "vitest";
import { encode } from "../foreign/protobuf.ts";

const clusterId = 7;
const version = "3.6.0";

/** A call that a member has received. */
export interface ReceivedCall {
  /** The request, with gRPC's framing. */
  readonly request: Buffer;
  readonly headers: IncomingHttpHeaders;
  /** Answers with a header of this revision, and nothing else but its version, if that is asked for. */
  answer(revision: number): void;
  /** Refuses it as UNAVAILABLE. */
  refuse(details: string): void;
}

/** A member of etcd whose answers the test gives. It is closed with the test. */
export class FakeMember {
  readonly url: string;
  readonly calls: ReceivedCall[] = [];
  /** The streams of Watch, each of which gets a response at once. */
  readonly watches: ServerHttp2Stream[] = [];
  readonly #id: number;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  private constructor(id: number, callsPerConnection: number, server: Server) {
    this.#id = id;
    this.#server = server;
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const http2 = createHttp2Server({ settings: { maxConcurrentStreams: callsPerConnection } });
    http2.on("stream", (stream, headers) => {
      if (headers[":path"] === "/etcdserverpb.Watch/Watch") this.#watch(stream);
      else this.#receive(stream, headers);
    });
    server.on("connection", (socket: Socket) => {
      this.#sockets.add(socket);
      socket.on("close", () => this.#sockets.delete(socket));
      http2.emit("connection", socket);
    });
    onTestFinished(() => {
      this.stopListening();
      this.cut();
    });
  }

  static async start(id: number, callsPerConnection: number): Promise<FakeMember> {
    const server = createServer();
    await once(server.listen(0, "127.0.0.1"), "listening");
    return new FakeMember(id, callsPerConnection, server);
  }

  /** Refuses further connections, and keeps those that it has. */
  stopListening(): void {
    this.#server.close();
  }

  /** Whether it has a connection. */
  get isConnected(): boolean {
    return this.#sockets.size > 0;
  }

  /** Ends its streams of Watch. */
  loseLeader(): void {
    for (const stream of this.watches) stream.end();
  }

  /** Closes all connections. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
    this.#sockets.clear();
  }

  #watch(stream: ServerHttp2Stream): void {
    this.watches.push(stream);
    stream.on("error", () => {});
    stream.resume();
    stream.respond({ "content-type": "application/grpc" }, { waitForTrailers: true });
    stream.on("wantTrailers", () => {
      stream.sendTrailers({ "grpc-status": "14", "grpc-message": "etcdserver: no leader" });
      // As etcd does it while the request is not half-closed. In the same step it would drop the trailers.
      setImmediate(() => stream.close());
    });
    stream.write(this.#response(1));
  }

  #receive(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void {
    const chunks: Buffer[] = [];
    stream.on("error", () => {});
    stream.on("data", (chunk: Buffer) => chunks.push(chunk));
    stream.on("end", () => {
      this.calls.push({
        request: Buffer.concat(chunks),
        headers,
        answer: (revision) => this.#answer(stream, headers, revision),
        refuse: (details) => {
          const status = { "grpc-status": "14", "grpc-message": details };
          stream.respond({ "content-type": "application/grpc", ...status }, { endStream: true });
        },
      });
    });
  }

  #answer(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, revision: number): void {
    const isOfItself = headers[":path"] === "/etcdserverpb.Maintenance/Status";
    stream.respond({ "content-type": "application/grpc" }, { waitForTrailers: true });
    stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
    stream.end(this.#response(revision, isOfItself ? { 2: version } : {}));
  }

  #response(revision: number, more: Parameters<typeof encode>[0] = {}): Buffer {
    const header = encode({ 1: clusterId, 2: this.#id, 3: revision, 4: 1 });
    const message = encode({ 1: header, ...more });
    const prefix = Buffer.alloc(5);
    prefix.writeUInt32BE(message.length, 1);
    return Buffer.concat([prefix, message]);
  }
}
