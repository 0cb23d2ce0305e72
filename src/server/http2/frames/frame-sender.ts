import { copiedBytes, type FrameBatch } from "./data-frames.ts";
import { defaultWindow, leastMaxFrameSize, max31 } from "./frame-format.ts";
import type { PeerSettings, WindowUpdateResult } from "./frame-readers.ts";
import { FramedStream, type StreamOwner } from "./framed-stream.ts";

/** Maximum size of one write, in bytes. TLS copies everything that it is passed at once. */
const maxWriteBytes = 256 * 1024;

/** Maximum size of a message that is sent at once, in bytes. Any client takes it in one frame. */
const maxBytesAtOnce = copiedBytes;

/** Maximum payload of a frame, in bytes, if the client permits that. */
const maxFrameBytes = 64 * 1024;

/**
 * Maximum number of settings frames of a client that are not acknowledged. nghttp2 closes the connection above a
 * thousand.
 */
const maxPendingSettings = 2_000;

/** Where a connection's DATA frames go. */
export interface FrameOutput {
  /** There may be something to send that there was not before. */
  ready(): void;
  /**
   * Sends a frame ahead of everything that is ready later, if nothing waits to be written. `isAlone`: the connection has no
   * other stream, and no frame follows at once. Returns whether the frame was accepted.
   */
  sendAtOnce(id: number, message: Uint8Array, isAlone: boolean): boolean;
}

/**
 * The messages that a connection has to send, and the client's flow control: which stream may send how much. Streams
 * with a message take turns, a frame each.
 */
export class FrameSender implements StreamOwner {
  readonly #maxStreams: number;
  readonly #output: FrameOutput;
  readonly #streams = new Map<number, FramedStream>();
  /** The highest stream id that the client has used, and the highest one that is served. */
  #lastId = 0;
  #lastServedId = max31;
  /** The flow control window of the connection, and the initial one of its streams, in bytes. */
  #window = defaultWindow;
  #initialWindow = defaultWindow;
  #frameBytes = leastMaxFrameSize;
  /** Settings whose acknowledgement has not been sent. They apply from then on. */
  readonly #pendingSettings: PeerSettings[] = [];
  /** Streams with a message, the next one to send first. */
  #first: FramedStream | undefined;
  #last: FramedStream | undefined;
  /** Streams with a message that their window does not permit. */
  readonly #blocked = new Set<FramedStream>();

  constructor(maxStreams: number, output: FrameOutput) {
    this.#maxStreams = maxStreams;
    this.#output = output;
  }

  /** Number of open streams. */
  get size(): number {
    return this.#streams.size;
  }

  /** Whether a stream could send something now. */
  get canSend(): boolean {
    return this.#first !== undefined && this.#window > 0;
  }

  /** undefined: it has ended. */
  stream(id: number): FramedStream | undefined {
    return this.#streams.get(id);
  }

  /**
   * The client has sent HEADERS, which open a stream if its id is new. Returns whether there is room for it: nghttp2
   * refuses streams above the bound, but needs a moment for that.
   */
  open(id: number): boolean {
    if (id <= this.#lastId || id > this.#lastServedId || id % 2 === 0) return true;
    this.#lastId = id;
    this.#streams.set(id, new FramedStream(id, this));
    return this.#streams.size <= 2 * this.#maxStreams;
  }

  close(id: number): void {
    this.#streams.get(id)?.drop();
  }

  /** The open streams, those included that are opened while this is read. */
  get streams(): IterableIterator<FramedStream> {
    return this.#streams.values();
  }

  /** A GOAWAY was sent: the client's streams above `id` are ignored. */
  serveUpTo(id: number): void {
    this.#lastServedId = Math.min(id, this.#lastServedId);
    for (const stream of this.#streams.values()) if (stream.id > id) stream.drop();
  }

  /** Returns false if there are too many settings. */
  settingsReceived(settings: PeerSettings): boolean {
    this.#pendingSettings.push(settings);
    return this.#pendingSettings.length <= maxPendingSettings;
  }

  /** Applies the oldest settings that were not acknowledged. */
  settingsAcknowledged(): void {
    const settings = this.#pendingSettings.shift();
    if (settings?.maxFrameSize !== undefined) {
      this.#frameBytes = Math.min(settings.maxFrameSize, maxFrameBytes);
    }
    if (settings?.initialWindow === undefined) return;
    const isMore = settings.initialWindow > this.#initialWindow;
    this.#initialWindow = settings.initialWindow;
    if (!isMore) return;
    for (const stream of this.#blocked) if (this.#windowOf(stream) > 0) this.#enqueue(stream);
  }

  /** `id` 0: of the connection. */
  windowUpdateReceived(id: number, increment: number): WindowUpdateResult {
    if (id === 0) {
      if (this.#window + increment > max31) return "overflow";
      this.#window += increment;
      if (this.#first !== undefined) this.#output.ready();
      return "taken";
    }
    const stream = this.#streams.get(id);
    if (stream === undefined) return "passed";
    if (this.#windowOf(stream) + increment > max31) return "overflow";
    stream.balance += increment;
    if (this.#blocked.has(stream) && this.#windowOf(stream) > 0) this.#enqueue(stream);
    return "taken";
  }

  /** nghttp2 has sent DATA itself. Those frames are empty, so `bytes` is 0 or a fault. */
  dataSent(id: number, bytes: number): void {
    this.#window -= bytes;
    const stream = this.#streams.get(id);
    if (stream !== undefined) stream.balance -= bytes;
  }

  /** For FramedStream. */
  ready(stream: FramedStream): void {
    this.#enqueue(stream);
  }

  /** For FramedStream. A message that other messages wait behind, or that a window does not permit, has to wait as well. */
  sendAtOnce(stream: FramedStream, message: Uint8Array, isFollowed: boolean): boolean {
    const bytes = message.byteLength;
    if (bytes > maxBytesAtOnce || this.#first !== undefined) return false;
    if (bytes > this.#window || bytes > this.#windowOf(stream)) return false;
    const isAlone = !isFollowed && this.#streams.size === 1;
    if (!this.#output.sendAtOnce(stream.id, message, isAlone)) return false;
    this.#window -= bytes;
    stream.balance -= bytes;
    return true;
  }

  /** For FramedStream. */
  closed(stream: FramedStream): void {
    this.#streams.delete(stream.id);
    this.#blocked.delete(stream);
    if (stream.isReady) this.#unlink(stream);
  }

  /**
   * Adds the frames of the next write to `batch`, and the streams whose message they complete to `completed`. At most 256
   * KiB.
   */
  collect(batch: FrameBatch, completed: FramedStream[]): void {
    let left = maxWriteBytes;
    while (left > 0 && this.#window > 0) {
      const stream = this.#dequeue();
      if (stream === undefined) return;
      // It may have been closed while it waited.
      if (stream.remaining === 0) continue;
      const window = this.#windowOf(stream);
      if (window <= 0) {
        this.#blocked.add(stream);
        continue;
      }
      const bytes = stream.plan(Math.min(this.#frameBytes, window, this.#window));
      this.#window -= bytes;
      stream.balance -= bytes;
      left -= bytes;
      batch.add(stream, bytes);
      if (stream.remaining === 0) completed.push(stream);
      else this.#append(stream);
    }
  }

  #windowOf(stream: FramedStream): number {
    return this.#initialWindow + stream.balance;
  }

  #enqueue(stream: FramedStream): void {
    this.#blocked.delete(stream);
    this.#append(stream);
    if (this.#window > 0) this.#output.ready();
  }

  #append(stream: FramedStream): void {
    if (stream.isReady) return;
    stream.isReady = true;
    stream.previous = this.#last;
    if (this.#last === undefined) this.#first = stream;
    else this.#last.next = stream;
    this.#last = stream;
  }

  #dequeue(): FramedStream | undefined {
    const stream = this.#first;
    if (stream !== undefined) this.#unlink(stream);
    return stream;
  }

  #unlink(stream: FramedStream): void {
    const { previous, next } = stream;
    if (previous === undefined) this.#first = next;
    else previous.next = next;
    if (next === undefined) this.#last = previous;
    else next.previous = previous;
    stream.previous = undefined;
    stream.next = undefined;
    stream.isReady = false;
  }
}
