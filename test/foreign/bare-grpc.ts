import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  constants,
  type IncomingHttpHeaders,
} from "node:http2";
import { decompressed } from "./decompressed.ts";
import { Message } from "./protobuf.ts";

/** Default flow control window of one call, in bytes; that of a connection is four times as large. */
const windowBytes = 4 * 1024 * 1024;

/** gRPC over Node's HTTP/2 without a library (https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md). */
export class BareGrpc {
  readonly #session: ClientHttp2Session;

  /** `url` is http://HOST:PORT; `window` is the flow control window of one call, in bytes. */
  constructor(url: string, window: number = windowBytes) {
    this.#session = connect(url, {
      settings: { initialWindowSize: window },
      // In MB. It must exceed the flow control windows.
      maxSessionMemory: 64,
    });
    this.#session.once("connect", () => {
      if (!this.#session.destroyed) this.#session.setLocalWindowSize(4 * window);
    });
    // Each call reports its own outcome.
    this.#session.on("error", () => {});
  }

  /** Sends one message and half-closes. `path` is /package.Service/Method. */
  call(path: string, message: Uint8Array, metadata: IncomingHttpHeaders = {}): BareCall {
    const call = this.open(path, metadata);
    call.send(message);
    call.endRequest();
    return call;
  }

  /** Opens a call without sending anything. */
  open(path: string, metadata: IncomingHttpHeaders = {}): BareCall {
    const stream = this.#session.request({
      ":method": "POST",
      ":path": path,
      "content-type": "application/grpc",
      te: "trailers",
      ...metadata,
    });
    return new BareCall(stream);
  }

  /** Makes a unary call. Rejects with a BareStatus if there is no response. */
  async unary(path: string, message: Uint8Array): Promise<Message> {
    const call = this.call(path, message);
    let response: Buffer | undefined;
    for await (const received of call) response = received;
    if (response === undefined) throw new Error("The call was OK and had no response.");
    return new Message(response);
  }

  /** Resolves when the connection has closed. */
  whenClosed(): Promise<void> {
    return new Promise((resolve) => {
      if (this.#session.destroyed) resolve();
      else this.#session.once("close", resolve);
    });
  }

  /** Ends all calls immediately. */
  close(): void {
    this.#session.destroy();
  }
}

/** The status of a call that was not OK. */
export class BareStatus extends Error {
  override readonly name = "BareStatus";
  /** The status code of gRPC; -1 if the stream ended without one. */
  readonly code: number;
  /** The reason in google.rpc.ErrorInfo; empty if absent. */
  readonly reason: string;
  /** The metadata of the ErrorInfo. */
  readonly metadata: Readonly<Record<string, string>>;
  /**
   * Whether the stream failed before everything was read that it had received: Node.js drops that, so messages before this
   * status may be missing.
   */
  readonly isCutOff: boolean;

  constructor(
    code: number,
    message: string,
    info: Message = new Message(Buffer.of()),
    isCutOff = false,
  ) {
    super(message);
    this.code = code;
    this.isCutOff = isCutOff;
    this.reason = info.text(1);
    this.metadata = Object.fromEntries(
      info.messages(3).map((entry) => [entry.text(1), entry.text(2)]),
    );
  }
}

/** The messages of one call. The iteration throws a BareStatus when the call ends with any status but OK. */
export class BareCall implements AsyncIterable<Buffer> {
  readonly #stream: ClientHttp2Stream;
  #headers: IncomingHttpHeaders = {};
  #failure: Error | undefined;

  constructor(stream: ClientHttp2Stream) {
    this.#stream = stream;
    const keep = (headers: IncomingHttpHeaders): void => {
      this.#headers = { ...this.#headers, ...headers };
    };
    stream.on("response", keep).on("trailers", keep);
    stream.on("error", (error) => {
      this.#failure = error;
    });
  }

  send(message: Uint8Array): void {
    const prefix = Buffer.alloc(5);
    prefix.writeUInt32BE(message.length, 1);
    this.#stream.write(Buffer.concat([prefix, message]));
  }

  endRequest(): void {
    this.#stream.end();
  }

  cancel(): void {
    this.#stream.close(constants.NGHTTP2_CANCEL);
  }

  /** Calls `onMessage` for each message, as it is sent: for loads, in which an iteration is too expensive. */
  consume(onMessage: (message: Buffer) => void, onEnd: (failure: Error | undefined) => void): void {
    const framer = new Framer();
    this.#stream.on("data", (chunk: Buffer) => framer.add(chunk, (message) => onMessage(message)));
    this.#stream.on("close", () => onEnd(this.#status()));
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Buffer, void, void> {
    const framer = new Framer();
    const messages: Buffer[] = [];
    try {
      for await (const chunk of this.#stream) {
        framer.add(chunk, (message, isCompressed) => {
          messages.push(isCompressed ? this.#decompressed(message) : message);
        });
        yield* messages.splice(0);
      }
    } catch (error) {
      // The end of the call does not explain a message that can't be read.
      throw error instanceof RangeError ? error : (this.#status(true) ?? error);
    } finally {
      if (!this.#stream.closed) this.cancel();
    }
    const failure = this.#status();
    if (failure !== undefined) throw failure;
  }

  /** Throws a RangeError for what is not whole. */
  #decompressed(message: Buffer): Buffer {
    const encoding = String(this.#headers["grpc-encoding"]);
    try {
      return decompressed(encoding, message);
    } catch (error) {
      throw new RangeError(`A message with ${encoding} can't be read: ${error}`);
    }
  }

  #status(isCutOff = false): Error | undefined {
    const code = this.#headers["grpc-status"];
    if (code === "0") return undefined;
    if (code === undefined) {
      const said = this.#failure?.message ?? `reset with ${this.#stream.rstCode}`;
      return new BareStatus(-1, `The stream ended without a status: ${said}.`);
    }
    const message = decodeURIComponent(String(this.#headers["grpc-message"] ?? ""));
    return new BareStatus(Number(code), message, errorInfoOf(this.#headers), isCutOff);
  }
}

/** google.rpc.Status: details = 3; Any: type_url = 1, value = 2; ErrorInfo: reason = 1, metadata = 3. */
export function errorInfoOf(headers: IncomingHttpHeaders): Message | undefined {
  const encoded = String(headers["grpc-status-details-bin"] ?? "");
  return errorInfoIn(new Message(Buffer.from(encoded, "base64")));
}

/** Of a google.rpc.Status. */
export function errorInfoIn(status: Message): Message | undefined {
  return status
    .messages(3)
    .find((any) => any.text(1) === "type.googleapis.com/google.rpc.ErrorInfo")
    ?.message(2);
}

/** Splits the stream into messages: one byte for compression, four for the length, the message. */
class Framer {
  #rest: Buffer[] = [];
  #length = 0;
  /** The number of bytes that are needed before a message can be split off. */
  #needed = 5;

  add(chunk: Buffer, onMessage: (message: Buffer, isCompressed: boolean) => void): void {
    this.#rest.push(chunk);
    this.#length += chunk.length;
    if (this.#length < this.#needed) return;
    const bytes = this.#rest.length === 1 ? chunk : Buffer.concat(this.#rest);
    let at = 0;
    this.#needed = 5;
    while (at + 5 <= bytes.length) {
      const end = at + 5 + bytes.readUInt32BE(at + 1);
      if (end > bytes.length) {
        this.#needed = end - at;
        break;
      }
      onMessage(bytes.subarray(at + 5, end), bytes[at] === 1);
      at = end;
    }
    this.#rest = [bytes.subarray(at)];
    this.#length = bytes.length - at;
  }
}
