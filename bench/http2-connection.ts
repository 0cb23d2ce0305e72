import { once } from "node:events";
import { readFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { MessageScanner } from "./message-scanner.ts";
import { tlsFiles } from "./servers.ts";

/** The method and the message of a call, and which parts of its responses are counted. */
export interface CallRequest {
  /** /package.Service/Method */
  readonly path: string;
  readonly message: Uint8Array;
  /** The messages behind it, with gRPC's prefix. */
  readonly more?: Uint8Array;
  /** Whether nothing follows. */
  readonly ends: boolean;
  /** The repeated field whose elements are counted in each response. */
  readonly counted: number;
}

/** Header fields, of fewer than 128 characters each. */
export type Fields = readonly (readonly [name: string, value: string])[];

/** The state of a call. */
interface Call {
  readonly scanner: MessageScanner;
  /** The call has ended, by trailers or otherwise. */
  readonly onEnd: (byTrailers: boolean) => void;
  /** Whether it never extends the flow control window. */
  readonly isShut: boolean;
  /** Bytes received since the flow control window was last extended. */
  received: number;
}

const frame = {
  data: 0,
  headers: 1,
  reset: 3,
  settings: 4,
  ping: 6,
  goAway: 7,
  window: 8,
} as const;
const flag = { ack: 1, endStream: 1, endHeaders: 4, padded: 8 } as const;
const headBytes = 9;
/** The initial flow control window of HTTP/2 (RFC 9113, 6.9.2). */
const initialSendWindow = 65_535;
const maxSendBytes = 16_000;
/** The setting of how many calls the server takes at once. */
const maxConcurrentStreams = 3;
/** The flow control windows that a client grants, in bytes. */
export interface Windows {
  /** Of each call. */
  readonly stream: number;
  /** Of the connection, for all calls together. At least 65,535, with which every connection begins. */
  readonly connection: number;
}

/** Windows that never limit calls, as a client has that extends them by what it measures. */
export const openWindows: Windows = { stream: 4 * 1024 ** 2, connection: 64 * 1024 ** 2 };
/** Those of a client that leaves HTTP/2's values as they are, such as grpc-js. */
export const defaultWindows: Windows = {
  stream: initialSendWindow,
  connection: initialSendWindow,
};

/** The buffer that sockets are read into. Each read is processed before the next one. */
const readBuffer = Buffer.allocUnsafeSlow(256 * 1024);

/** For servers that ask for a client certificate. Theirs is not verified: the measurement is not about that. */
const clientTls = {
  ...{ cert: readFileSync(tlsFiles.cert), key: readFileSync(tlsFiles.key) },
  rejectUnauthorized: false,
};

/** Connects a socket, with TLS for https. `onBytes` gets what was read, in a buffer that is reused for the next read. */
export function connectTo(url: string, onBytes: (bytes: Buffer) => void): Socket {
  const { hostname, port, protocol } = new URL(url);
  const options = {
    host: hostname,
    port: Number(port),
    noDelay: true,
    onread: {
      buffer: readBuffer,
      callback: (bytes: number): boolean => {
        onBytes(readBuffer.subarray(0, bytes));
        return true;
      },
    },
  };
  return protocol === "https:"
    ? connectTls({ ...options, ...clientTls, ALPNProtocols: ["h2"] })
    : connect(options);
}

/**
 * gRPC over HTTP/2 over a socket, reduced to what a load needs: it must use as little CPU as possible, so that the
 * servers are what is measured (https://httpwg.org/specs/rfc9113.html). Response headers are ignored: a call is
 * judged by its messages and its end.
 */
export class Http2Connection {
  readonly #socket: Socket;
  readonly #authority: string;
  readonly #windows: Windows;
  readonly #onLost: (error: Error) => void;
  readonly #fields: Fields;
  readonly #calls = new Map<number, Call>();
  /** The beginning of an incomplete frame. */
  #rest: Buffer | undefined;
  #nextId = 1;
  #received = 0;
  /** Bytes received. */
  receivedBytes = 0;
  #sendWindow = initialSendWindow;
  /** Calls that wait for the flow control window of the connection, or for the server to take more calls. */
  readonly #blocked: { readonly frames: Buffer; readonly bytes: number; readonly id: number }[] =
    [];
  /** The number of calls that the server takes at once. It is unlimited until its settings arrive. */
  #maxCalls = Infinity;
  /** Calls that were sent, and have not ended. */
  #open = 0;
  #out: Buffer[] = [];
  #isClosed = false;

  private constructor(
    url: string,
    windows: Windows,
    onLost: (error: Error) => void,
    fields: Fields,
  ) {
    const { host } = new URL(url);
    this.#fields = fields;
    this.#authority = host;
    this.#windows = windows;
    this.#onLost = onLost;
    this.#socket = connectTo(url, (bytes) => this.#read(bytes));
    this.#socket.on("error", (error) => this.#lose(error));
    this.#socket.on("close", () => this.#lose(new Error(`${host} closed a connection.`)));
  }

  /**
   * Connects to http://HOST:PORT, or with https to a server with any certificate. `onLost` is called when the connection
   * is lost, but not when it is closed. `fields` are further header fields of each call.
   */
  static async to(
    url: string,
    onLost: (error: Error) => void,
    windows: Windows = openWindows,
    fields: Fields = [],
  ): Promise<Http2Connection> {
    const connection = new Http2Connection(url, windows, onLost, fields);
    await once(
      connection.#socket,
      new URL(url).protocol === "https:" ? "secureConnect" : "connect",
    );
    connection.#greet();
    return connection;
  }

  /**
   * Opens a call. `onMessage` is called for each response with a scanner that is valid until it returns. Returns what
   * resets the call.
   */
  open(
    request: CallRequest,
    onMessage: (scanner: MessageScanner) => void,
    onEnd: (byTrailers: boolean) => void,
    isShut: boolean = false,
  ): () => void {
    const scanner = new MessageScanner(request.counted, false, onMessage);
    const id = this.#start(request, { scanner, onEnd, isShut, received: 0 });
    return () => {
      if (!this.#calls.delete(id) || this.#isClosed) return;
      const waiting = this.#blocked.findIndex((blocked) => blocked.id === id);
      if (waiting >= 0) {
        this.#blocked.splice(waiting, 1);
        return;
      }
      this.#send(frameOf(frame.reset, 0, id, Buffer.of(0, 0, 0, 8)));
      this.#open--;
      this.#sendBlocked();
    };
  }

  /** Makes a unary call. Rejects if it ends without a response. */
  unary(request: CallRequest): Promise<MessageScanner> {
    return new Promise((resolve, reject) => {
      let hasAnswer = false;
      const scanner = new MessageScanner(request.counted, true, () => {
        hasAnswer = true;
      });
      const onEnd = (byTrailers: boolean): void => {
        if (hasAnswer && byTrailers) resolve(scanner);
        else reject(new Error(`${this.#authority} returned no response to ${request.path}.`));
      };
      this.#start(request, { scanner, onEnd, isShut: false, received: 0 });
    });
  }

  close(): void {
    this.#isClosed = true;
    this.#socket.destroy();
  }

  #start(request: CallRequest, call: Call): number {
    const { message, more = Buffer.of(), path, ends } = request;
    const bytes = message.length + 5 + more.length;
    if (bytes > maxSendBytes) throw new RangeError("The request is too long for a frame.");
    const id = this.#nextId;
    this.#nextId += 2;
    this.#calls.set(id, call);
    const headers = requestHeaders(this.#authority, path, this.#fields);
    const head = Buffer.alloc(headBytes + 5);
    writeHead(head, bytes, frame.data, ends ? flag.endStream : 0, id);
    head.writeUInt32BE(message.length, headBytes + 1);
    const frames = Buffer.concat([
      frameOf(frame.headers, flag.endHeaders, id, headers),
      head,
      message,
      more,
    ]);
    this.#blocked.push({ frames, bytes, id });
    this.#sendBlocked();
    return id;
  }

  /** Stream ids must be sent in ascending order (RFC 9113, 5.1.1). */
  #sendBlocked(): void {
    for (;;) {
      const next = this.#blocked[0];
      if (next === undefined || next.bytes > this.#sendWindow) return;
      if (this.#open >= this.#maxCalls) return;
      this.#blocked.shift();
      this.#open++;
      this.#sendWindow -= next.bytes;
      this.#send(next.frames);
    }
  }

  /** Everything that is sent in one turn leaves in one write. */
  #send(bytes: Buffer): void {
    this.#out.push(bytes);
    if (this.#out.length > 1) return;
    process.nextTick(() => {
      const out = Buffer.concat(this.#out);
      this.#out = [];
      if (!this.#isClosed) this.#socket.write(out);
    });
  }

  #greet(): void {
    const settings = Buffer.alloc(12);
    settings.writeUInt16BE(2, 0); // no push
    settings.writeUInt16BE(4, 6); // the initial window of each stream
    settings.writeUInt32BE(this.#windows.stream, 8);
    this.#send(Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
    this.#send(frameOf(frame.settings, 0, 0, settings));
    const more = this.#windows.connection - initialSendWindow;
    if (more > 0) this.#send(windowUpdate(0, more));
  }

  #read(chunk: Buffer): void {
    this.receivedBytes += chunk.length;
    const bytes = this.#rest === undefined ? chunk : Buffer.concat([this.#rest, chunk]);
    let at = 0;
    while (bytes.length - at >= headBytes) {
      const end = at + headBytes + bytes.readUIntBE(at, 3);
      if (end > bytes.length) break;
      this.#frame(bytes, at, end);
      if (this.#isClosed) return;
      at = end;
    }
    // The buffer will be reused for the next read.
    this.#rest = at === bytes.length ? undefined : Buffer.from(bytes.subarray(at));
  }

  #frame(bytes: Buffer, at: number, end: number): void {
    const flags = bytes[at + 4] ?? 0;
    const id = bytes.readUInt32BE(at + 5) & 0x7fff_ffff;
    const start = at + headBytes;
    switch (bytes[at + 3]) {
      case frame.data:
        if ((flags & flag.padded) !== 0) throw new Error("A frame has padding.");
        this.#data(bytes, start, end, id);
        if ((flags & flag.endStream) !== 0) this.#end(id, false);
        break;
      case frame.headers:
        if ((flags & flag.endStream) !== 0) this.#end(id, true);
        break;
      case frame.reset:
        this.#end(id, false);
        break;
      case frame.settings:
        if ((flags & flag.ack) === 0) this.#settings(bytes, start, end);
        break;
      case frame.ping:
        if ((flags & flag.ack) === 0) {
          const content = Buffer.from(bytes.subarray(start, end));
          this.#send(frameOf(frame.ping, flag.ack, 0, content));
        }
        break;
      case frame.goAway:
        this.#lose(new Error(`${this.#authority} sent a GOAWAY.`));
        break;
      case frame.window:
        if (id === 0) {
          this.#sendWindow += bytes.readUInt32BE(start);
          this.#sendBlocked();
        }
        break;
    }
  }

  #settings(bytes: Buffer, start: number, end: number): void {
    for (let at = start; at < end; at += 6) {
      if (bytes.readUInt16BE(at) === maxConcurrentStreams)
        this.#maxCalls = bytes.readUInt32BE(at + 2);
    }
    this.#send(frameOf(frame.settings, flag.ack, 0));
    this.#sendBlocked();
  }

  #data(bytes: Buffer, start: number, end: number, id: number): void {
    const length = end - start;
    this.#received += length;
    if (this.#received >= this.#windows.connection / 2) {
      this.#send(windowUpdate(0, this.#received));
      this.#received = 0;
    }
    const call = this.#calls.get(id);
    if (call === undefined) return;
    call.received += length;
    if (call.received >= this.#windows.stream / 2 && !call.isShut) {
      this.#send(windowUpdate(id, call.received));
      call.received = 0;
    }
    call.scanner.take(bytes, start, end);
  }

  #end(id: number, byTrailers: boolean): void {
    const call = this.#calls.get(id);
    if (call === undefined) return;
    this.#calls.delete(id);
    this.#open--;
    this.#sendBlocked();
    call.onEnd(byTrailers);
  }

  #lose(error: Error): void {
    if (this.#isClosed) return;
    this.close();
    this.#onLost(error);
    for (const call of this.#calls.values()) call.onEnd(false);
  }
}

/**
 * Encodes header fields without a dynamic table: some of HPACK's static ones, the others as literals (RFC 7541, 6.1
 * and 6.2.2).
 */
function requestHeaders(authority: string, path: string, fields: Fields): Buffer {
  const literal = (name: readonly number[], value: string): Buffer =>
    Buffer.concat([Buffer.from([...name, value.length]), Buffer.from(value)]);
  return Buffer.concat([
    Buffer.from([0x83, 0x86]), // :method POST, :scheme http
    literal([0x04], path),
    literal([0x01], authority),
    literal([0x0f, 0x10], "application/grpc"), // content-type
    literal([0x00, 2, 0x74, 0x65], "trailers"), // te
    ...fields.map(([name, value]) => literal([0x00, name.length, ...Buffer.from(name)], value)),
  ]);
}

function frameOf(
  type: number,
  flags: number,
  id: number,
  content: Uint8Array = Buffer.of(),
): Buffer {
  const head = Buffer.alloc(headBytes);
  writeHead(head, content.length, type, flags, id);
  return Buffer.concat([head, content]);
}

function writeHead(into: Buffer, length: number, type: number, flags: number, id: number): void {
  into.writeUIntBE(length, 0, 3);
  into.writeUInt8(type, 3);
  into.writeUInt8(flags, 4);
  into.writeUInt32BE(id, 5);
}

function windowUpdate(id: number, bytes: number): Buffer {
  const content = Buffer.alloc(4);
  content.writeUInt32BE(bytes);
  return frameOf(frame.window, 0, id, content);
}
