import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { onTestFinished } from "vitest";
import { framed } from "../raw-connection.ts";

const type = {
  data: 0,
  headers: 1,
  reset: 3,
  settings: 4,
  ping: 6,
  goAway: 7,
  windowUpdate: 8,
} as const;
const headBytes = 9;
const preface = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");

/** What a stream has received. */
export class ReceivedStream {
  readonly id: number;
  /** The flow control window that the client has granted, less what arrived, in bytes. */
  window: number;
  /** HEADERS and DATA frames so far, in order: "H", "D", and "T" for trailers or headers that end the stream. */
  frames = "";
  /** Whether the server ended it or reset it, or the client did. */
  end: "ended" | "reset" | "cancelled" | undefined;
  resetCode: number | undefined;
  #chunks: Buffer[] = [];

  constructor(id: number, window: number) {
    this.id = id;
    this.window = window;
  }

  add(chunk: Buffer): void {
    this.#chunks.push(chunk);
  }

  get bytes(): Buffer {
    if (this.#chunks.length !== 1) this.#chunks = [Buffer.concat(this.#chunks)];
    return this.#chunks[0] as Buffer;
  }
}

/**
 * A client that sends any HTTP/2 frames, valid or not, and keeps account of flow control as strictly as the
 * protocol permits: DATA beyond a window is a violation.
 */
export class FrameClient {
  readonly streams = new Map<number, ReceivedStream>();
  /** What the server must not do. */
  readonly violations: string[] = [];
  readonly socket: Socket;
  window = 65_535;
  goAwayCode: number | undefined;
  isClosed = false;
  pingsAnswered = 0;
  /** The largest DATA frame. */
  largestFrame = 0;
  #initialWindow = 65_535;
  #maxFrameSize = 16_384;
  #settings: { window?: number | undefined; frame?: number | undefined }[] = [];
  #nextId = 1;
  /** Whether what is written waits for `release`. */
  holdsBack = false;
  #unsent = Buffer.alloc(0);
  #rest = Buffer.alloc(0);
  #waiting: (() => void)[] = [];

  private constructor(socket: Socket) {
    this.socket = socket;
    socket.on("data", (chunk: Buffer) => this.#read(chunk));
    socket.on("error", () => {});
    const closed = (): void => {
      this.isClosed = true;
      this.#wake();
    };
    // The server has closed its side, or all of the connection.
    socket.on("end", closed);
    socket.on("close", closed);
    onTestFinished(() => void socket.destroy());
  }

  static async to(port: number, isTls: boolean = false): Promise<FrameClient> {
    const options = { port, host: "127.0.0.1", allowHalfOpen: true };
    const socket = isTls
      ? connectTls({ ...options, ALPNProtocols: ["h2"], rejectUnauthorized: false })
      : connect(options);
    await once(socket, isTls ? "secureConnect" : "connect");
    return new FrameClient(socket);
  }

  /** Sends the preface and settings. */
  greet(initialWindow?: number): void {
    this.write(preface);
    this.settings(initialWindow);
  }

  /** Sends the bytes, behind those that are held back. */
  write(bytes: Buffer): void {
    this.#unsent = Buffer.concat([this.#unsent, bytes]);
    if (!this.holdsBack) this.release(this.#unsent.length);
  }

  /** Sends this many of the bytes that are held back, which may end within a frame. */
  release(bytes: number): void {
    const sent = this.#unsent.subarray(0, bytes);
    this.#unsent = this.#unsent.subarray(sent.length);
    const { writableEnded, destroyed } = this.socket;
    if (sent.length > 0 && !writableEnded && !destroyed) this.socket.write(sent);
  }

  settings(initialWindow?: number, maxFrameSize?: number): void {
    const content: Buffer[] = [];
    const add = (id: number, value: number): void => {
      const setting = Buffer.alloc(6);
      setting.writeUInt16BE(id);
      setting.writeUInt32BE(value, 2);
      content.push(setting);
    };
    if (initialWindow !== undefined) add(4, initialWindow);
    if (maxFrameSize !== undefined) add(5, maxFrameSize);
    this.#settings.push({ window: initialWindow, frame: maxFrameSize });
    this.write(frame(type.settings, 0, 0, Buffer.concat(content)));
  }

  /** Grants more of a flow control window. `id` 0: that of the connection. */
  grant(id: number, bytes: number): void {
    if (id === 0) this.window += bytes;
    const stream = this.streams.get(id);
    if (stream !== undefined) stream.window += bytes;
    this.write(windowUpdate(id, bytes));
  }

  /** Sends a request, with `padding` bytes behind the message. */
  call(path: string, message: Uint8Array, padding: number = 0): ReceivedStream {
    const id = this.#nextId;
    this.#nextId += 2;
    const stream = new ReceivedStream(id, this.#initialWindow);
    this.streams.set(id, stream);
    const body = framed(message);
    const padded = Buffer.concat([Buffer.of(padding), body, Buffer.alloc(padding)]);
    const data =
      padding === 0 ? frame(type.data, 1, id, body) : frame(type.data, 1 | 8, id, padded);
    this.write(Buffer.concat([frame(type.headers, 4, id, headers(path)), data]));
    return stream;
  }

  /** Default: CANCEL. */
  reset(id: number, code: number = 8): void {
    const stream = this.streams.get(id);
    if (stream !== undefined) stream.end ??= "cancelled";
    this.write(frame(type.reset, 0, id, Buffer.of(0, 0, 0, code)));
  }

  goAway(): void {
    this.write(frame(type.goAway, 0, 0, Buffer.alloc(8)));
  }

  ping(): void {
    this.write(frame(type.ping, 0, 0, Buffer.alloc(8, 7)));
  }

  /** Resolves once `condition` holds; checked after each read, and when the connection closes. */
  async until(condition: () => boolean): Promise<void> {
    while (!condition()) {
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }

  #wake(): void {
    for (const wake of this.#waiting.splice(0)) wake();
  }

  #read(chunk: Buffer): void {
    this.#rest = Buffer.concat([this.#rest, chunk]);
    let at = 0;
    while (this.#rest.length - at >= headBytes) {
      const length = this.#rest.readUIntBE(at, 3);
      const end = at + headBytes + length;
      if (end > this.#rest.length) break;
      const id = this.#rest.readUInt32BE(at + 5);
      const flags = this.#rest[at + 4] ?? 0;
      this.#frame(this.#rest[at + 3] ?? 0, flags, id, this.#rest.subarray(at + headBytes, end));
      at = end;
    }
    this.#rest = Buffer.from(this.#rest.subarray(at));
    this.#wake();
  }

  #frame(kind: number, flags: number, id: number, content: Buffer): void {
    const stream = this.streams.get(id);
    switch (kind) {
      case type.data:
        this.#data(stream, id, flags, content);
        break;
      case type.headers:
        if (stream === undefined) {
          this.#violation(`HEADERS of unknown stream ${id}`);
          return;
        }
        if (stream.end === "ended" || stream.end === "reset") {
          this.#violation(`HEADERS after the end of stream ${id}`);
        }
        stream.frames += (flags & 1) === 0 ? "H" : "T";
        if ((flags & 1) !== 0) stream.end ??= "ended";
        break;
      case type.reset:
        if (stream === undefined) {
          this.#violation(`RST_STREAM of unknown stream ${id}`);
          return;
        }
        stream.end ??= "reset";
        stream.resetCode = content.readUInt32BE();
        break;
      case type.settings:
        if ((flags & 1) === 0) this.write(frame(type.settings, 1, 0, Buffer.of()));
        else this.#acknowledged();
        break;
      case type.ping:
        if ((flags & 1) === 0) this.write(frame(type.ping, 1, 0, content));
        else this.pingsAnswered++;
        break;
      case type.goAway:
        this.goAwayCode = content.readUInt32BE(4);
        break;
      case type.windowUpdate:
        break;
      default:
        this.#violation(`a frame of type ${kind}`);
    }
  }

  #data(stream: ReceivedStream | undefined, id: number, flags: number, content: Buffer): void {
    if (stream === undefined) {
      this.#violation(`DATA of unknown stream ${id}`);
      return;
    }
    if (!stream.frames.startsWith("H")) this.#violation(`DATA before the headers of stream ${id}`);
    if (stream.end === "ended" || stream.end === "reset") {
      this.#violation(`DATA after the end of stream ${id}`);
    }
    if (content.length > this.#maxFrameSize) this.#violation(`a frame of ${content.length} bytes`);
    this.largestFrame = Math.max(this.largestFrame, content.length);
    this.window -= content.length;
    stream.window -= content.length;
    if (content.length > 0 && this.window < 0) this.#violation("the connection's window");
    if (content.length > 0 && stream.window < 0) this.#violation(`the window of stream ${id}`);
    stream.add(Buffer.from(content));
    stream.frames += "D";
    if ((flags & 1) !== 0) stream.end ??= "ended";
  }

  /** Settings take effect when they are acknowledged. */
  #acknowledged(): void {
    const settings = this.#settings.shift();
    if (settings === undefined) {
      this.#violation("an acknowledgement of no settings");
      return;
    }
    if (settings.frame !== undefined) this.#maxFrameSize = settings.frame;
    if (settings.window === undefined) return;
    const change = settings.window - this.#initialWindow;
    this.#initialWindow = settings.window;
    for (const stream of this.streams.values()) stream.window += change;
  }

  #violation(what: string): void {
    this.violations.push(what);
  }
}

/** Splits what a stream received into gRPC messages. The last one may be incomplete. */
export function messagesOf({ bytes }: ReceivedStream): Buffer[] {
  const messages: Buffer[] = [];
  for (let at = 0; bytes.length - at >= 5; ) {
    const end = at + 5 + bytes.readUInt32BE(at + 1);
    if (end > bytes.length) break;
    messages.push(bytes.subarray(at + 5, end));
    at = end;
  }
  return messages;
}

export function windowUpdate(id: number, bytes: number): Buffer {
  const content = Buffer.alloc(4);
  content.writeUInt32BE(bytes);
  return frame(type.windowUpdate, 0, id, content);
}

function frame(kind: number, flags: number, id: number, content: Uint8Array): Buffer {
  const head = Buffer.alloc(headBytes);
  head.writeUIntBE(content.length, 0, 3);
  head.writeUInt8(kind, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(id, 5);
  return Buffer.concat([head, content]);
}

/** Header fields without a dynamic table (RFC 7541). */
function headers(path: string): Buffer {
  const literal = (name: readonly number[], value: string): Buffer =>
    Buffer.concat([Buffer.from([...name, value.length]), Buffer.from(value)]);
  return Buffer.concat([
    Buffer.from([0x83, 0x86]), // :method POST, :scheme http
    literal([0x04], path),
    literal([0x01], "localhost"),
    literal([0x0f, 0x10], "application/grpc"), // content-type
    literal([0x00, 2, 0x74, 0x65], "trailers"), // te
  ]);
}
