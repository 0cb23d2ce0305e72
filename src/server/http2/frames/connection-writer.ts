import type { Socket } from "node:net";
import type { Clock } from "../../../base/clock.ts";
import {
  AcceptedFrames,
  FrameBatch,
  SharedFrame,
  WriteBuffers,
  writeBufferBytes,
} from "./data-frames.ts";
import { type FrameOutput, FrameSender } from "./frame-sender.ts";
import type { FramedStream } from "./framed-stream.ts";

/**
 * What each message that is sent at once counts beside its size, in bytes. What exceeds a write buffer waits for the
 * flush, so that no stream with many messages sends all of them without a pause.
 */
const bytesPerMessage = 256;

/** Maximum number of writes, of 256 KiB each, in one turn of the event loop. */
const maxWritesPerFlush = 16;

/** Of Node.js' streams. */
export type Done = (error?: Error | null) => void;

/**
 * Writes a connection's DATA frames to its socket. Small messages are accepted at once while nothing waits to be written.
 * All others wait for the flush, and are accepted when the operating system has taken them.
 */
export class ConnectionWriter implements Flushable, FrameOutput {
  /** The messages, and the client's flow control. */
  readonly sender: FrameSender;
  readonly #socket: Socket;
  readonly #context: WriterContext;
  #isClosed = false;
  #isQueued = false;
  /** Frames that were accepted, and are written with the next flush or ahead of nghttp2's frames. */
  #accepted: AcceptedFrames | undefined;
  /** Size of the messages that were sent at once since the last flush, with `bytesPerMessage` more for each. */
  #bytesAtOnce = 0;
  /** Streams whose message is complete with the current write. */
  #completed: FramedStream[] = [];
  /** Number of writes of frames, and of those that the operating system has taken. */
  #writes = 0;
  #taken = 0;
  #isWriting = false;

  constructor(socket: Socket, context: WriterContext) {
    this.#socket = socket;
    this.#context = context;
    this.sender = new FrameSender(context.maxStreams, this);
  }

  ready(): void {
    this.#queue();
  }

  /**
   * A connection with one stream writes the frame within the dispatch round, while all that the message concerns is in the
   * processor's caches. Frames of several streams, and those that others follow, are written together.
   */
  sendAtOnce(id: number, message: Uint8Array, isAlone: boolean): boolean {
    if (this.#isWriting || this.#isClosed || this.#socket.writableLength > 0) return false;
    const bytesAtOnce = this.#bytesAtOnce + message.byteLength + bytesPerMessage;
    if (bytesAtOnce > writeBufferBytes) return false;
    this.#bytesAtOnce = bytesAtOnce;
    if (isAlone && this.#accepted?.isEmpty !== false) {
      this.#socket.write(this.#context.sharedFrame.of(id, message));
      return true;
    }
    this.#accepted ??= new AcceptedFrames();
    this.#accepted.add(id, message);
    this.#queue();
    return true;
  }

  /** Writes the frames that were accepted. Call it ahead of every frame of nghttp2. */
  writeAccepted(): void {
    if (this.#accepted?.isEmpty === false) {
      this.#accepted.write(this.#socket, this.#context.writeBuffers);
    }
  }

  /** Writes no DATA frame any more. The streams have to be closed. Idempotent. */
  close(): void {
    this.#isClosed = true;
  }

  flush(): boolean {
    this.#isQueued = false;
    this.#bytesAtOnce = 0;
    if (this.#isWriting || this.#isClosed) return false;
    this.writeAccepted();
    const { batch } = this.#context;
    const completed = this.#completed;
    for (let i = 0; i < maxWritesPerFlush; i++) {
      const before = completed.length;
      this.sender.collect(batch, completed);
      if (batch.isEmpty) break;
      this.#isWriting = true;
      this.#writes++;
      batch.write(this.#socket, this.#onTaken);
      for (let next = before; next < completed.length; next++) completed[next]?.sent();
      // What the operating system has taken at once need not wait for the callback.
      if (this.#socket.writableLength > 0) return false;
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
    if (this.sender.canSend) this.#queue();
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
    if (this.#isQueued || this.#isWriting || this.#isClosed) return;
    this.#isQueued = true;
    this.#context.flushQueue.add(this);
  }

  /** Whether there is more to send that is not queued. The caller queues it. */
  #takeTurn(): boolean {
    if (this.#isQueued || !this.sender.canSend) return false;
    this.#isQueued = true;
    return true;
  }
}

/** Something with bytes to write. */
export interface Flushable {
  /** Writes what may be written now. Returns whether there is more that may be written at once. */
  flush(): boolean;
}

/**
 * Flushes connections once all that is sent to them in one go has been collected: at the end of the callback in which
 * they were added, so that the messages of all streams of a connection leave in one write. All of them are flushed
 * without a time slice. New events are not read meanwhile, so those that arrive share a message: a server at its limit
 * sends fewer and larger ones. What a flush adds has its turn in the next turn of the event loop.
 */
export class FlushQueue {
  readonly #clock: Clock;
  #waiting: Flushable[] = [];
  #isScheduled = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Add it once until it is flushed. */
  add(flushable: Flushable): void {
    this.#waiting.push(flushable);
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    process.nextTick(this.#run);
  }

  readonly #run = (): void => {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const flushable of waiting) if (flushable.flush()) this.#waiting.push(flushable);
    if (this.#waiting.length > 0) this.#clock.setImmediate(this.#run);
    else this.#isScheduled = false;
  };
}

/** What the writers of a server's connections share. */
export class WriterContext {
  readonly clock: Clock;
  readonly flushQueue: FlushQueue;
  readonly batch = new FrameBatch();
  readonly sharedFrame = new SharedFrame();
  readonly writeBuffers = new WriteBuffers();
  /** Maximum number of open streams per connection. */
  readonly maxStreams: number;

  constructor(clock: Clock, maxStreams: number) {
    this.clock = clock;
    this.flushQueue = new FlushQueue(clock);
    this.maxStreams = maxStreams;
  }
}
