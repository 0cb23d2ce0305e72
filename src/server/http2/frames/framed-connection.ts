import {
  constants,
  type Http2Session,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from "node:http2";
import type { Socket } from "node:net";
import { Duplex } from "node:stream";
import type { TLSSocket } from "node:tls";
import type { Clock, Timer } from "../../../base/clock.ts";
import { Fifo } from "../../../base/fifo.ts";
import { ConnectionWriter, type Done, WriterContext } from "./connection-writer.ts";
import {
  InboundFrames,
  type InboundListener,
  OutboundFrames,
  type OutboundListener,
  type PeerSettings,
} from "./frame-readers.ts";
import type { FrameSender } from "./frame-sender.ts";
import { FramedStream } from "./framed-stream.ts";

/** How long the last write of a connection whose session was destroyed may take, in milliseconds. */
const lastWriteMs = 5_000;

const connections = new WeakMap<Http2Session, FramedConnection>();

/** The connection of a session of this server. */
export function framedConnectionOf(session: Http2Session): FramedConnection {
  const connection = connections.get(session);
  if (connection === undefined) throw new Error("The session is not one of this server.");
  return connection;
}

/** Whether a session is closed, or its streams are being closed and then itself. */
export function isEnding(session: Http2Session): boolean {
  return session.destroyed || connections.get(session)?.isEnding === true;
}

/** The socket of a session's client. */
export function socketOf(session: Http2Session): Socket | TLSSocket {
  return framedConnectionOf(session).socket;
}

/** What writes the response of a stream. One whose session is closed can write nothing. */
export function responseOf({ session, id }: ServerHttp2Stream): FramedStream {
  const connection = session && connections.get(session);
  return connection === undefined || id === undefined
    ? FramedStream.closed
    : connection.responseOf(id);
}

/**
 * The HTTP/2 of a client's connection, put between its socket and nghttp2: it sends the DATA frames of the responses, and
 * nghttp2 all others. Node.js documents that a session may be on any Duplex.
 */
export class FramedConnection
  extends Duplex
  implements InboundListener, OutboundListener, EndingConnection
{
  readonly socket: Socket;
  readonly #clock: Clock;
  readonly #endings: EndingConnections;
  readonly #inbound = new InboundFrames(this);
  readonly #outbound = new OutboundFrames(this);
  readonly #sender: FrameSender;
  readonly #writer: ConnectionWriter;
  /** What was received and is read in a later turn, in which nothing else is received. */
  #unread: Buffer | undefined;
  /** Whether nghttp2 takes nothing more until it asks for it. */
  #isFull = false;
  /** Whether nothing is passed on until `release`. */
  #isHeld = false;
  /** The next turn, which passes on what is unread. */
  #turn: Timer | undefined;
  /** nghttp2 has sent a GOAWAY with an error. */
  #isFailed = false;
  #isEnding = false;
  /** The streams that are being closed, with this HTTP/2 error code; undefined: none are. */
  #closing: Iterator<FramedStream> | undefined;
  #closeCode: number = constants.NGHTTP2_CANCEL;
  /** What follows once all streams are closed. */
  #onStreamsClosed: (() => void)[] = [];
  #onReceived: (() => void) | undefined;

  constructor(socket: Socket | TLSSocket, context: FramingContext) {
    super();
    this.socket = socket;
    this.#clock = context.clock;
    this.#endings = context.endings;
    this.#writer = new ConnectionWriter(socket, context);
    this.#sender = this.#writer.sender;
    socket.setNoDelay(true);
    if ("disableRenegotiation" in socket) socket.disableRenegotiation();
    socket.on("data", (chunk: Buffer) => this.#receive(chunk));
    this.on("resume", this.#readOn);
    // Not passed on: Node.js would shut down its side and write nevertheless, and that ends the process.
    socket.on("end", () => this.destroy());
    socket.on("error", (error) => this.destroy(error));
    socket.on("close", () => this.destroy());
  }

  /** Whether its streams are being closed, and then the connection. */
  get isEnding(): boolean {
    return this.#isEnding;
  }

  /**
   * Its HTTP/2 session begins. If Node.js or the server destroys that, for an error of the client or another reason, its
   * streams are closed before that, a few in each turn of the event loop.
   */
  begin(session: ServerHttp2Session): void {
    connections.set(session, this);
    session.on("stream", (stream) => {
      if (stream.id !== undefined) this.#sender.stream(stream.id)?.attach(stream);
    });
    const { destroy } = session;
    const destroyLater: typeof destroy = (error, code) => {
      // The calls that follow have no effect, as without streams.
      if (this.#isEnding && !this.destroyed) return;
      // The client may need longer for what a session that ends gracefully has sent.
      const isGraceful = session.closed;
      this.#endStreams(code, () => {
        Reflect.apply(destroy, session, [error, code]);
        if (!isGraceful) this.#closeInTime();
      });
    };
    Reflect.set(session, "destroy", destroyLater);
  }

  /** Node.js closes it behind the last write of its session, which a client that reads nothing never lets happen. */
  #closeInTime(): void {
    if (this.destroyed) return;
    const timer = this.#clock.setTimeout(() => this.destroy(), lastWriteMs);
    this.once("close", () => timer.cancel());
  }

  /** Calls `listener` before bytes are passed on. It may `hold` the connection: then they are passed on after `release`. */
  onReceived(listener: () => void): void {
    this.#onReceived = listener;
  }

  /** What writes the response of a stream. */
  responseOf(id: number): FramedStream {
    // It has ended already, if the connection does not know it.
    return this.#sender.stream(id) ?? FramedStream.closed;
  }

  /**
   * Passes nothing more on, and reads no more from the socket, until `release`. Node.js pauses and resumes the connection as
   * well, while a write of its own is blocked: it is read when neither prevents it. Idempotent.
   */
  hold(): void {
    this.#isHeld = true;
    this.socket.pause();
  }

  /** Undoes `hold`. Idempotent. */
  release(): void {
    if (!this.#isHeld || this.#closing !== undefined) return;
    this.#isHeld = false;
    if (this.#mayPassOn()) this.#readOn();
  }

  #mayPassOn(): boolean {
    return !this.#isHeld && !this.isPaused() && !this.#isFull;
  }

  #receive(chunk: Buffer): void {
    this.#unread = this.#unread === undefined ? chunk : Buffer.concat([this.#unread, chunk]);
    this.#passOn();
  }

  /** Passes on what a turn may, unless nghttp2 takes nothing now: it would all be passed on at once later. */
  #passOn(): void {
    const unread = this.#unread;
    if (unread === undefined || this.destroyed) return;
    this.#onReceived?.();
    if (!this.#mayPassOn()) {
      this.socket.pause();
      return;
    }
    this.#unread = this.#inbound.take(unread);
    if (this.#unread === undefined) return;
    this.socket.pause();
    this.#passOnLater();
  }

  #passOnLater(): void {
    this.#turn ??= this.#clock.setImmediate(this.#passOnUnread);
  }

  readonly #passOnUnread = (): void => {
    this.#turn = undefined;
    this.#passOn();
    if (this.#unread === undefined && this.#mayPassOn()) this.socket.resume();
  };

  override _read(): void {
    this.#isFull = false;
    this.#readOn();
  }

  readonly #readOn = (): void => {
    if (this.#isHeld) return;
    if (this.#unread === undefined) this.socket.resume();
    else this.#passOnLater();
  };

  override _write(chunk: Buffer, _encoding: string, done: Done): void {
    this.#writer.writeAccepted();
    this.#outbound.take(chunk);
    this.socket.write(chunk, done);
    this.#endIfFailed();
  }

  override _writev(chunks: { chunk: Buffer }[], done: Done): void {
    this.#writer.writeAccepted();
    this.socket.cork();
    chunks.forEach(({ chunk }, i) => {
      this.#outbound.take(chunk);
      if (i === chunks.length - 1) this.socket.write(chunk, done);
      else this.socket.write(chunk);
    });
    this.socket.uncork();
    this.#endIfFailed();
  }

  override _final(done: Done): void {
    this.#writer.writeAccepted();
    if (this.socket.writableEnded) done();
    else this.socket.end(done);
  }

  /** Node.js leaves a connection open whose client has violated the protocol (RFC 9113, 5.4.1). */
  #endIfFailed(): void {
    if (this.#isFailed && !this.socket.writableEnded) this.socket.destroySoon();
  }

  override _destroy(error: Error | null, done: Done): void {
    this.socket.destroy();
    this.#writer.close();
    // Node.js destroys the session when this is done.
    this.#endStreams(undefined, () => done(error));
  }

  /**
   * Closes the streams, with an HTTP/2 error code, in this and later turns of the event loop, and calls `onClosed` once none
   * is left. Nothing is received meanwhile.
   */
  #endStreams(code: number | undefined, onClosed: () => void): void {
    if (!this.#isEnding && code !== undefined && code !== constants.NGHTTP2_NO_ERROR) {
      this.#closeCode = code;
    }
    this.#isEnding = true;
    if (this.#sender.size === 0 && this.#closing === undefined) {
      onClosed();
      return;
    }
    this.#onStreamsClosed.push(onClosed);
    if (this.#closing !== undefined) return;
    this.#closing = this.#sender.streams;
    this.hold();
    this.#endings.add(this);
  }

  /** For `EndingConnections`. */
  closeNext(): boolean {
    const next = this.#closing?.next();
    if (next?.done === false) {
      next.value.abort(this.#closeCode);
      return true;
    }
    this.#closing = undefined;
    // A session that has ended gracefully waits for the end of its client's side.
    this.release();
    const onStreamsClosed = this.#onStreamsClosed;
    this.#onStreamsClosed = [];
    for (const onClosed of onStreamsClosed) onClosed();
    return false;
  }

  bytesReceived(bytes: Buffer): void {
    if (this.push(bytes)) return;
    this.#isFull = true;
    this.socket.pause();
  }

  headersReceived(id: number): void {
    if (!this.#sender.open(id)) this.destroy(new Error("Too many streams"));
  }

  resetReceived(id: number): void {
    this.#sender.close(id);
  }

  settingsReceived(settings: PeerSettings): void {
    if (!this.#sender.settingsReceived(settings)) this.destroy(new Error("SETTINGS flood"));
  }

  windowUpdateReceived(id: number, increment: number): "taken" | "passed" | "overflow" {
    return this.#sender.windowUpdateReceived(id, increment);
  }

  headersSent(id: number, endsStream: boolean): void {
    if (endsStream) this.#sender.close(id);
    else this.#sender.stream(id)?.headersSent();
  }

  dataSent(id: number, bytes: number, endsStream: boolean): void {
    this.#sender.dataSent(id, bytes);
    if (endsStream) this.#sender.close(id);
  }

  resetSent(id: number): void {
    this.#sender.close(id);
  }

  settingsAckSent(): void {
    this.#sender.settingsAcknowledged();
  }

  goAwaySent(lastId: number, code: number): void {
    if (code === 0) {
      this.#sender.serveUpTo(lastId);
    } else {
      this.#isFailed = true;
      this.#writer.close();
    }
  }
}

/**
 * Maximum number of streams that are closed in one turn of the event loop, of all connections that end. Each takes some 15
 * us, most of it in callbacks that Node.js runs later in the turn, where no time slice can interrupt them.
 */
export const closedPerTurn = 128;

/** A connection that ends. */
export interface EndingConnection {
  /** Closes one of its streams. Returns false if none is left: then it has ended, and is not called again. */
  closeNext(): boolean;
}

/**
 * Closes the streams of connections that end, a few in each turn of the event loop, connections in rotation. Node.js closes
 * all streams of a connection in the turn in which its session ends: for 50,000 of them the event loop would stop for 0.7
 * s. Until a stream is closed its call counts against all limits as before, which bounds what waits here: so a client whose
 * connection has few streams must not wait for those of others.
 */
export class EndingConnections {
  readonly #clock: Clock;
  readonly #waiting = new Fifo<EndingConnection>();
  /** How many streams may still be closed in this turn. */
  #left = closedPerTurn;
  #turn: Timer | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Closes the streams of a connection: in this turn as many as may be, and the rest in later ones. */
  add(connection: EndingConnection): void {
    this.#waiting.push(connection);
    this.#close();
  }

  #close(): void {
    while (this.#left > 0) {
      const next = this.#waiting.shift();
      if (next === undefined) break;
      if (!next.closeNext()) continue;
      this.#left--;
      this.#waiting.push(next);
    }
    this.#turn ??= this.#clock.setImmediate(this.#nextTurn);
  }

  readonly #nextTurn = (): void => {
    this.#turn = undefined;
    this.#left = closedPerTurn;
    if (this.#waiting.length > 0) this.#close();
  };
}

/** What the connections of a server share. */
export class FramingContext extends WriterContext {
  readonly endings = new EndingConnections(this.clock);
}
