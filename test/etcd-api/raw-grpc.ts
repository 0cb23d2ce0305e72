import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  type ClientSessionOptions,
  connect,
  constants,
  type IncomingHttpHeaders,
} from "node:http2";

/** Everything of a response, as it is on the wire. */
export interface RawResponse {
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
  readonly trailers: IncomingHttpHeaders | undefined;
  readonly rstCode: number;
}

/** gRPC over Node.js' HTTP/2 client, which shows everything and repeats nothing. */
export class RawGrpc {
  readonly session: ClientHttp2Session;

  /** `ca` is the authority of the server's certificate, in PEM, for an https URL. */
  constructor(url: string, ca?: Buffer, options?: ClientSessionOptions) {
    this.session = connect(url, { ca, ...options });
    this.session.on("error", () => {});
  }

  /** Opens a call. Its request stays open. */
  open(path: string, metadata: IncomingHttpHeaders = {}): RawCall {
    const stream = this.session.request(
      {
        ":method": "POST",
        ":path": path,
        "content-type": "application/grpc",
        te: "trailers",
        ...metadata,
      },
      { endStream: false },
    );
    return new RawCall(stream);
  }

  /** Makes a call with one request, and half-closes it. */
  unary(path: string, request: Uint8Array, metadata?: IncomingHttpHeaders): Promise<RawResponse> {
    const call = this.open(path, metadata);
    call.send(request);
    call.halfClose();
    return call.response;
  }

  close(): void {
    this.session.destroy();
  }
}

/** One call. It is read at once, until `pause`. */
export class RawCall {
  readonly stream: ClientHttp2Stream;
  readonly response: Promise<RawResponse>;
  headers: IncomingHttpHeaders | undefined;
  readonly #chunks: Buffer[] = [];
  readonly #messages: Buffer[] = [];
  /** Bytes that are in no message of `#messages`. */
  #rest: Buffer[] = [];
  #restBytes = 0;
  #waiting: (() => void)[] = [];

  constructor(stream: ClientHttp2Stream) {
    this.stream = stream;
    let trailers: IncomingHttpHeaders | undefined;
    stream.on("response", (headers: IncomingHttpHeaders) => {
      this.headers = { ...headers };
      this.#wake();
    });
    stream.on("trailers", (received: IncomingHttpHeaders) => {
      trailers = { ...received };
    });
    stream.on("data", (chunk: Buffer) => {
      this.#chunks.push(chunk);
      this.#rest.push(chunk);
      this.#restBytes += chunk.length;
      this.#wake();
    });
    stream.on("error", () => {});
    this.response = new Promise((resolve) => {
      stream.on("close", () => {
        const { headers = {} } = this;
        resolve({ headers, body: this.#body, trailers, rstCode: stream.rstCode ?? -1 });
        this.#wake();
      });
    });
  }

  get #body(): Buffer {
    return Buffer.concat(this.#chunks);
  }

  /** The messages so far, without gRPC's framing. */
  get messages(): readonly Buffer[] {
    for (let size = this.#nextSize(); size <= this.#restBytes; size = this.#nextSize()) {
      const bytes = Buffer.concat(this.#rest);
      this.#messages.push(bytes.subarray(5, size));
      this.#rest = [bytes.subarray(size)];
      this.#restBytes -= size;
    }
    return this.#messages;
  }

  /** Size of the next message with its prefix; infinite if the prefix is not there. */
  #nextSize(): number {
    if (this.#restBytes < 5) return Infinity;
    if ((this.#rest[0] as Buffer).length < 5) this.#rest = [Buffer.concat(this.#rest)];
    return 5 + (this.#rest[0] as Buffer).readUInt32BE(1);
  }

  send(message: Uint8Array): void {
    const prefix = Buffer.alloc(5);
    prefix.writeUInt32BE(message.length, 1);
    this.stream.write(Buffer.concat([prefix, message]));
  }

  halfClose(): void {
    this.stream.end();
  }

  cancel(): void {
    this.stream.close(constants.NGHTTP2_CANCEL);
  }

  /** Resolves once there are this many messages; rejects if the call ends before. */
  async untilMessages(count: number): Promise<readonly Buffer[]> {
    while (this.messages.length < count) {
      if (this.stream.destroyed) throw new Error(`It ended after ${this.messages.length} messages`);
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
    return this.messages;
  }

  #wake(): void {
    for (const wake of this.#waiting.splice(0)) wake();
  }
}

/** The status of a response, wherever it is. */
export function statusOf({ headers, trailers }: RawResponse): { code: string; message: string } {
  const { "grpc-status": code, "grpc-message": message } = trailers ?? headers;
  // Servers may encode more than they have to.
  return { code: String(code), message: String(message ?? "").replaceAll("%20", " ") };
}
