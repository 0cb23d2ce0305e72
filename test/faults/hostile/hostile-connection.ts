import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  constants,
  type IncomingHttpHeaders,
} from "node:http2";
import { connect as connectSocket } from "node:net";
import { errorInfoOf } from "../../foreign/bare-grpc.ts";
import { framed } from "./requests.ts";
import type { Responses } from "./responses.ts";

export interface ConnectionOptions {
  /** Bytes that the server may send on a stream before they are read. Default 65,535. */
  readonly window?: number;
}

/** HTTP/2 without a gRPC library: sends what no library would, and reads only on request. */
export class HostileConnection {
  readonly #session: ClientHttp2Session;
  readonly #responses: Responses;
  readonly #closed: Promise<unknown>;

  /** `from`: the address of this end. */
  constructor(
    { port, from }: { readonly port: number; readonly from: string | undefined },
    responses: Responses,
    { window = 65_535 }: ConnectionOptions = {},
  ) {
    this.#responses = responses;
    this.#session = connect(`http://127.0.0.1:${port}`, {
      settings: { initialWindowSize: window },
      createConnection: () => connectSocket({ port, host: "127.0.0.1", localAddress: from }),
      // In MB. Floods have many streams.
      maxSessionMemory: 256,
    });
    this.#closed = new Promise((resolve) => this.#session.once("close", resolve));
    this.#session.on("error", (error: NodeJS.ErrnoException) => {
      responses.count(`connection: ${error.code ?? error.message}`);
    });
    this.#session.on("goaway", (code) => responses.count(`GOAWAY ${code}`));
  }

  get isClosed(): boolean {
    return this.#session.destroyed || this.#session.closed;
  }

  /** Opens a call and sends nothing on it. Undefined once the server has closed the connection. */
  open(path: string, headers: Readonly<Record<string, string>> = {}): HostileCall | undefined {
    if (this.isClosed) {
      this.#responses.count("not sent: connection closed");
      return undefined;
    }
    const stream = this.#session.request({
      ":method": "POST",
      ":path": path,
      "content-type": "application/grpc",
      te: "trailers",
      ...headers,
    });
    return new HostileCall(stream, this.#responses);
  }

  /** Sends one message and half-closes. */
  call(path: string, message: Uint8Array): HostileCall | undefined {
    return this.send(path, framed(message));
  }

  /** Sends bytes that are framed already and half-closes. */
  send(
    path: string,
    bytes: Uint8Array,
    headers?: Readonly<Record<string, string>>,
  ): HostileCall | undefined {
    const call = this.open(path, headers);
    call?.stream.end(bytes);
    return call;
  }

  /** The response to a unary call; undefined without one. */
  async unary(path: string, message: Uint8Array): Promise<Buffer | undefined> {
    const call = this.call(path, message);
    return (await call?.message()) ?? undefined;
  }

  /**
   * Resolves when the server has taken in all that was sent before, as a PING says, or the connection is closed:
   * whatever comes first.
   */
  settled(): Promise<void> {
    return new Promise((resolve) => {
      if (this.isClosed) return resolve();
      this.#session.once("close", resolve);
      this.#session.ping(() => resolve());
    });
  }

  /** Ends all calls at once, without a word to the server. Resolves when the socket is closed. */
  async close(): Promise<void> {
    this.#session.destroy();
    await this.#closed;
  }
}

const codes = [
  ...["OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND"],
  ...["ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION"],
  ...["ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"],
];

/** One call, and the count of its outcome. */
export class HostileCall {
  readonly stream: ClientHttp2Stream;
  readonly closed: Promise<void>;
  #headers: IncomingHttpHeaders = {};

  constructor(stream: ClientHttp2Stream, responses: Responses) {
    this.stream = stream;
    const keep = (headers: IncomingHttpHeaders): void => {
      this.#headers = { ...this.#headers, ...headers };
    };
    stream
      .on("response", keep)
      .on("trailers", keep)
      .on("error", () => {});
    stream.once("end", () => stream.end());
    responses.opened();
    this.closed = new Promise((resolve) => {
      stream.once("close", () => {
        responses.closed(this.#outcome());
        resolve();
      });
    });
  }

  /** Sends bytes that are framed already. Resolves when they are on their way, or the call has ended. */
  sent(bytes: Uint8Array): Promise<void> {
    return Promise.race([
      this.closed,
      new Promise<void>((resolve) => this.stream.write(bytes, () => resolve())),
    ]);
  }

  /** Takes all that comes and drops it. */
  drain(): this {
    this.stream.resume();
    return this;
  }

  /** The first message of the response; undefined if the call ends without one. */
  async message(): Promise<Buffer | undefined> {
    const chunks: Buffer[] = [];
    this.stream.on("data", (chunk: Buffer) => chunks.push(chunk));
    await this.closed;
    const received = Buffer.concat(chunks);
    return received.length >= 5 ? received.subarray(5, 5 + received.readUInt32BE(1)) : undefined;
  }

  /** Resolves when the response has begun, of which nothing need be read, or the call has ended. */
  begun(): Promise<void> {
    return Promise.race([
      this.closed,
      new Promise<void>((resolve) => this.stream.once("response", () => resolve())),
    ]);
  }

  /** Resolves when so many messages have come, or the call has ended. */
  messages(count: number): Promise<void> {
    let received = Buffer.alloc(0);
    let left = count;
    return Promise.race([
      this.closed,
      new Promise<void>((resolve) => {
        this.stream.on("data", (chunk: Buffer) => {
          received = Buffer.concat([received, chunk]);
          while (received.length >= 5 && received.length >= 5 + received.readUInt32BE(1)) {
            received = received.subarray(5 + received.readUInt32BE(1));
            left--;
          }
          if (left <= 0) resolve();
        });
      }),
    ]);
  }

  cancel(): void {
    if (!this.stream.closed) this.stream.close(constants.NGHTTP2_CANCEL);
  }

  #outcome(): string {
    const status = this.#headers["grpc-status"];
    if (status === undefined) return `reset ${this.stream.rstCode}`;
    const reason = errorInfoOf(this.#headers)?.text(1);
    const code = codes[Number(status)] ?? String(status);
    return reason === undefined ? code : `${code} ${reason}`;
  }
}
