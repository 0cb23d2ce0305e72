import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  constants,
  type IncomingHttpHeaders,
} from "node:http2";
import { connect as connectSocket, type Socket } from "node:net";
import { type ConnectionOptions, connect as connectTls } from "node:tls";
import { onTestFinished } from "vitest";
import { decodeRpcStatus } from "../../../src/wire/rpc-status.ts";

/** HTTP/2 without a gRPC library: sends data that no library would send, and reads on request. */
export class RawConnection {
  readonly session: ClientHttp2Session;
  readonly #socket: Socket;

  /**
   * `given` is the initial flow control window of a stream, in bytes, or what TLS needs to connect with a certificate.
   * `localAddress` is an address of this machine.
   */
  constructor(
    port: number,
    given: number | Pick<ConnectionOptions, "cert" | "key" | "ca"> = 65_535,
    localAddress: string = "127.0.0.1",
  ) {
    const to = { port, host: "127.0.0.1", localAddress };
    const tls = typeof given === "number" ? undefined : given;
    this.#socket =
      tls === undefined
        ? connectSocket(to)
        : connectTls({ ...to, ...tls, servername: "localhost", ALPNProtocols: ["h2"] });
    this.session = connect(`${tls === undefined ? "http" : "https"}://localhost:${port}`, {
      createConnection: () => this.#socket,
      settings: { initialWindowSize: typeof given === "number" ? given : 65_535 },
      // In MB. The default of Node.js is too small for these tests.
      maxSessionMemory: 1_000,
    });
    this.session.on("error", () => {});
    onTestFinished(() => this.session.destroy());
  }

  /** Drops the TCP connection, without a word of HTTP/2. */
  drop(): void {
    this.#socket.destroy();
  }

  /** Opens a stream, and sends nothing on it yet. */
  open(path: string, headers: Record<string, string> = {}): RawCall {
    const stream = this.session.request({
      ":method": "POST",
      ":path": path,
      "content-type": "application/grpc",
      te: "trailers",
      ...headers,
    });
    return new RawCall(stream);
  }

  /** Sends one message and half-closes. */
  call(path: string, message: Uint8Array, headers: Record<string, string> = {}): RawCall {
    const call = this.open(path, headers);
    call.stream.end(framed(message));
    return call;
  }
}

export interface RawEnd {
  /** undefined: the stream ended without one. */
  readonly code: number | undefined;
  readonly message: string;
  /** Of google.rpc.ErrorInfo. */
  readonly reason: string | undefined;
  /** The HTTP/2 error code of a reset. */
  readonly reset: number;
}

export class RawCall {
  readonly stream: ClientHttp2Stream;
  readonly ended: Promise<RawEnd>;
  readonly answered: Promise<IncomingHttpHeaders>;

  constructor(stream: ClientHttp2Stream) {
    this.stream = stream;
    let headers: IncomingHttpHeaders = {};
    const keep = (more: IncomingHttpHeaders): void => {
      headers = { ...headers, ...more };
    };
    stream
      .on("response", keep)
      .on("trailers", keep)
      .on("error", () => {});
    // As gRPC libraries do: after the end of the response the client closes its side.
    stream.once("end", () => stream.end());
    this.answered = new Promise((resolve) => {
      stream.once("response", resolve);
    });
    this.ended = new Promise((resolve) => {
      stream.once("close", () => {
        const code = headers["grpc-status"];
        resolve({
          code: code === undefined ? undefined : Number(code),
          message: decodeURIComponent(String(headers["grpc-message"] ?? "")),
          reason: decodeRpcStatus(
            Buffer.from(String(headers["grpc-status-details-bin"] ?? ""), "base64"),
          )?.reason,
          reset: stream.rstCode,
        });
      });
    });
  }

  /** Reads and drops everything. */
  drain(): this {
    this.stream.resume();
    return this;
  }

  /** The responses, split into messages. */
  async *messages(): AsyncGenerator<Buffer, never, void> {
    let rest = Buffer.alloc(0);
    for await (const chunk of this.stream.iterator({ destroyOnReturn: false })) {
      rest = Buffer.concat([rest, chunk]);
      while (rest.length >= 5 && rest.length >= 5 + rest.readUInt32BE(1)) {
        const end = 5 + rest.readUInt32BE(1);
        yield rest.subarray(5, end);
        rest = rest.subarray(end);
      }
    }
    throw new Error("The stream has ended.");
  }

  cancel(): void {
    this.stream.close(constants.NGHTTP2_CANCEL);
  }
}

/** A message in gRPC's framing. */
export function framed(message: Uint8Array): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.byteLength, 1);
  return Buffer.concat([head, message]);
}
