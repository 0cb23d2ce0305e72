import type { ServerHttp2Stream } from "node:http2";
import type { Socket } from "node:net";
import { Duplex } from "node:stream";
import type { TLSSocket } from "node:tls";
import type { Clock } from "../../../base/clock.ts";
import type { Flushable, FlushQueue } from "./flush-queue.ts";
import type { FrameBatch } from "./frame-batch.ts";
import { type FrameOutput, FrameSender } from "./frame-sender.ts";
import { FramedStream } from "./framed-stream.ts";
import { FramesAtOnce } from "./frames-at-once.ts";
import { InboundFrames, type InboundListener, type PeerSettings } from "./inbound-frames.ts";
import { OutboundFrames, type OutboundListener } from "./outbound-frames.ts";
import type { ResponseWriter } from "./response-writer.ts";
import type { SharedFrame } from "./shared-frame.ts";
import { type WriteBuffers, writeBufferBytes } from "./write-buffers.ts";

/** What the connections of a server share. */
export interface FramingContext {
  readonly clock: Clock;
  readonly flushQueue: FlushQueue;
  readonly batch: FrameBatch;
  readonly sharedFrame: SharedFrame;
  readonly writeBuffers: WriteBuffers;
  /** Maximum number of open streams per connection. */
  readonly maxStreams: number;
}

/**
 * What each message that is sent at once counts beside its size, in bytes. What exceeds a write buffer waits for the
 * flush, so that no stream with many messages sends all of them without a pause.
 */
const bytesPerMessage = 256;

/** Maximum number of writes, of 256 KiB each, in one turn of the event loop. */
const maxWritesPerFlush = 16;

type Done = (error?: Error | null) => void;

/** The HTTP/2 of a client's connection, put between its socket and nghttp2. */
export class FramedConnection
  extends Duplex
  implements Flushable, FrameOutput, InboundListener, OutboundListener
{
  readonly socket: Socket;
  readonly #context: FramingContext;
  readonly #inbound = new InboundFrames(this);
  readonly #outbound = new OutboundFrames(this);
  readonly #sender: FrameSender;
  /** What was received and is read in a later turn, in which nothing else is received. */
  #unread: Buffer | undefined;
  /** Whether nghttp2 takes nothing more until it asks for it. */
  #isFull = false;
  /** Whether nothing is passed on until `release`. */
  #isHeld = false;
  /** Whether the next turn passes on what is unread. */
  #isWaiting = false;
  #isQueued = false;
  /** Frames that were sent at once, and are written with the next flush or ahead of nghttp2's frames. */
  #atOnce: FramesAtOnce | undefined;
  /** Size of the messages that were sent at once since the last flush, with `bytesPerMessage` more for each. */
  #bytesAtOnce = 0;
  /** Streams whose message is complete with the current write. */
  #completed: FramedStream[] = [];
  /** Number of writes of frames, and of those that the operating system has taken. */
  #writes = 0;
  #taken = 0;
  #isWriting = false;
  /** nghttp2 has sent a GOAWAY with an error. */
  #isFailed = false;

  constructor(socket: Socket | TLSSocket, context: FramingContext) {
    super();
    this.socket = socket;
    this.#context = context;
    this.#sender = new FrameSender(context.maxStreams, this);
    socket.setNoDelay(true);
    if ("disableRenegotiation" in socket) socket.disableRenegotiation();
    socket.on("data", (chunk: Buffer) => this.#receive(chunk));
    this.on("resume", this.#readOn);
    // Not passed on: Node.js would shut down its side and write nevertheless, and that ends the process.
    socket.on("end", () => this.destroy());
    socket.on("error", (error) => this.destroy(error));
    socket.on("close", () => this.destroy());
  }

  /** What writes the response of a stream. */
  writerOf(id: number, stream: ServerHttp2Stream): ResponseWriter {
    const framed = this.#sender.stream(id) ?? new FramedStream(id, this.#sender);
    // Already ended, if the connection does not know it.
    if (this.#sender.stream(id) === undefined) framed.close();
    else framed.attach(stream);
    return framed;
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
    if (!this.#isHeld) return;
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
    if (this.#isWaiting) return;
    this.#isWaiting = true;
    this.#context.clock.setImmediate(this.#passOnUnread);
  }

  readonly #passOnUnread = (): void => {
    this.#isWaiting = false;
    this.#passOn();
    if (this.#unread === undefined && this.#mayPassOn()) this.socket.resume();
  };

  ready(): void {
    this.#queue();
  }

  /**
   * A connection with one stream writes the frame within the dispatch round, while all that the message concerns is in the
   * processor's caches. Those with several streams write all frames of a round together.
   */
  sendAtOnce(id: number, message: Uint8Array, isOnly: boolean): boolean {
    if (this.#isWriting || this.socket.writableLength > 0) return false;
    const bytesAtOnce = this.#bytesAtOnce + message.byteLength + bytesPerMessage;
    if (bytesAtOnce > writeBufferBytes) return false;
    this.#bytesAtOnce = bytesAtOnce;
    if (isOnly && this.#atOnce?.isEmpty !== false) {
      this.socket.write(this.#context.sharedFrame.of(id, message));
      return true;
    }
    this.#atOnce ??= new FramesAtOnce();
    this.#atOnce.add(id, message);
    this.#queue();
    return true;
  }

  /** Writes what was sent at once. */
  #writeAtOnce(): void {
    if (this.#atOnce?.isEmpty === false) {
      this.#atOnce.write(this.socket, this.#context.writeBuffers);
    }
  }

  flush(): boolean {
    this.#isQueued = false;
    this.#bytesAtOnce = 0;
    this.#writeAtOnce();
    if (this.#isWriting || this.destroyed) return false;
    const { batch } = this.#context;
    const completed = this.#completed;
    for (let i = 0; i < maxWritesPerFlush; i++) {
      const before = completed.length;
      this.#sender.collect(batch, completed);
      if (batch.isEmpty) break;
      this.#isWriting = true;
      this.#writes++;
      batch.write(this.socket, this.#onTaken);
      for (let next = before; next < completed.length; next++) completed[next]?.sent();
      // What the operating system has taken at once need not wait for the callback.
      if (this.socket.writableLength > 0) return false;
      this.#isWriting = false;
    }
    this.#accept();
    return this.#takeTurn();
  }

  readonly #onTaken: Done = (error) => {
    this.#taken++;
    // Without a socket nothing more is sent; its "close" ends the streams.
    if (error !== undefined && error !== null) return;
    if (!this.#isWriting || this.#taken < this.#writes) return;
    this.#accept();
    if (this.#sender.canSend) this.#queue();
  };

  /** The current write was taken. */
  #accept(): void {
    this.#isWriting = false;
    const completed = this.#completed;
    if (completed.length === 0) return;
    // The streams may send their next message, which is not a part of this write.
    this.#completed = [];
    for (const stream of completed) stream.accepted();
  }

  #queue(): void {
    if (this.#isQueued || this.#isWriting || this.destroyed) return;
    this.#isQueued = true;
    this.#context.flushQueue.add(this);
  }

  /** Whether there is more to send that is not queued. The caller queues it. */
  #takeTurn(): boolean {
    if (this.#isQueued || !this.#sender.canSend) return false;
    this.#isQueued = true;
    return true;
  }

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
    this.#writeAtOnce();
    this.#outbound.take(chunk);
    this.socket.write(chunk, done);
    this.#endIfFailed();
  }

  override _writev(chunks: { chunk: Buffer }[], done: Done): void {
    this.#writeAtOnce();
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
    if (this.socket.writableEnded) done();
    else this.socket.end(done);
  }

  /** Node.js leaves a connection open whose client has violated the protocol (RFC 9113, 5.4.1). */
  #endIfFailed(): void {
    if (this.#isFailed && !this.socket.writableEnded) this.socket.destroySoon();
  }

  override _destroy(error: Error | null, done: Done): void {
    this.socket.destroy();
    this.#sender.closeAll();
    done(error);
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
    this.#sender.serveUpTo(code === 0 ? lastId : 0);
    this.#isFailed ||= code !== 0;
  }
}
