import type { OutgoingHttpHeaders, ServerHttp2Stream } from "node:http2";
import type { FrameParts } from "../../../wire/encode.ts";

/** Is called once a message was accepted, or with the error that prevents that. */
export type OnAccepted = (error?: Error | null) => void;

/** What a stream needs of its connection. */
export interface StreamOwner {
  /** The stream has a message to send, and its headers are sent. */
  ready(stream: FramedStream): void;
  /**
   * Sends a message of a stream without one, whose headers are sent, if that can be done at once. `isFollowed`: another one
   * follows at once. Returns whether it was.
   */
  sendAtOnce(stream: FramedStream, message: Uint8Array, isFollowed: boolean): boolean;
  /** The stream sends nothing more. */
  closed(stream: FramedStream): void;
}

/** One for all: only its presence matters. */
const closedError = new Error("The stream is closed.");

/**
 * The sending side of a stream: its flow control window, and the message that is being sent. It exists from the HEADERS
 * frame of the request until the stream ends. It writes the messages of one response behind its headers, and then its
 * trailers.
 */
export class FramedStream {
  /** One that was closed before anything was written. */
  static readonly closed = new FramedStream(0, {
    ready: () => {},
    sendAtOnce: () => false,
    closed: () => {},
  });
  static {
    FramedStream.closed.close();
  }

  readonly id: number;
  readonly #owner: StreamOwner;
  /** The flow control window, less the connection's initial window of streams, in bytes. */
  balance = 0;
  /** Size of the message in bytes, and the bytes of it that are not sent. */
  #bytes = 0;
  remaining = 0;
  /** Whether it waits for its turn to send, and which streams are before and behind it. */
  isReady = false;
  previous: FramedStream | undefined;
  next: FramedStream | undefined;
  #hasHeaders = false;
  #isClosed = false;
  /** The current part of the message, how many bytes of it are sent, and the parts of which it is one. */
  #part: Uint8Array | undefined;
  #partSent = 0;
  #parts: FrameParts | undefined;
  #nextPart = 0;
  /** Where the next frame begins: its part, and how many bytes of that are in frames. */
  #plannedPart = 0;
  #plannedBytes = 0;
  #onAccepted: OnAccepted | undefined;
  #end: (() => void) | undefined;
  #stream: ServerHttp2Stream | undefined;

  constructor(id: number, owner: StreamOwner) {
    this.id = id;
    this.#owner = owner;
  }

  /** Node.js' stream, which sends the headers and trailers. */
  attach(stream: ServerHttp2Stream): void {
    this.#stream = stream;
  }

  /**
   * Writes a small message that is accepted with that: the client's flow control permits it, and nothing on the connection
   * waits to be written. If another one follows at once, they are written together. Returns false, without effect, otherwise.
   */
  writeAtOnce(message: Uint8Array, isFollowed: boolean = false): boolean {
    if (!this.#hasHeaders || this.#isClosed || this.remaining > 0) return false;
    return this.#owner.sendAtOnce(this, message, isFollowed);
  }

  /**
   * Writes a message. It is accepted when the client's flow control has permitted all of it and the operating system has
   * taken it. Write the next one only then.
   */
  write(message: Uint8Array, onAccepted: OnAccepted): void {
    if (this.#isClosed) {
      onAccepted(closedError);
      return;
    }
    this.#part = message;
    this.#partSent = 0;
    this.#bytes = message.byteLength;
    this.remaining = this.#bytes;
    this.#onAccepted = onAccepted;
    if (this.#hasHeaders) this.#owner.ready(this);
  }

  /** As `write`, for a message in consecutive parts. Without `onAccepted` it is the only one of its response. */
  writeParts(parts: FrameParts, onAccepted?: OnAccepted): void {
    if (this.#isClosed) {
      onAccepted?.(closedError);
      return;
    }
    this.#onAccepted = onAccepted;
    let bytes = 0;
    for (const part of parts) bytes += part.byteLength;
    this.#parts = parts;
    this.#nextPart = 0;
    this.#plannedPart = 0;
    this.#plannedBytes = 0;
    this.#moveToNextPart();
    this.#bytes = bytes;
    this.remaining = bytes;
    if (this.#hasHeaders) this.#owner.ready(this);
  }

  /** Writes the last bytes of a response, behind a message that may not be accepted. That is accepted with them then. */
  append(bytes: Uint8Array): void {
    const onAccepted = this.#onAccepted;
    if (this.remaining === 0) {
      this.write(bytes, (error) => onAccepted?.(error));
      return;
    }
    // A message in one part becomes one of two, of which as much is planned as is sent.
    if (this.#parts === undefined) {
      this.#parts = [this.#part as Uint8Array];
      this.#nextPart = 1;
      this.#plannedPart = 0;
      this.#plannedBytes = this.#partSent;
    }
    this.#parts = [...this.#parts, bytes];
    this.#bytes += bytes.byteLength;
    this.remaining += bytes.byteLength;
  }

  /**
   * Drops the message that was written last, unless a part of it was passed on already. It is neither accepted nor refused
   * then. Returns whether it was dropped.
   */
  withdraw(): boolean {
    if (this.remaining === 0 || this.remaining < this.#bytes) return false;
    this.remaining = 0;
    this.#part = undefined;
    this.#parts = undefined;
    this.#onAccepted = undefined;
    return true;
  }

  /** Ends the stream with the trailers, behind what was written. Calls `onSent` when it passes them to Node.js. */
  end(trailers: OutgoingHttpHeaders, onSent: () => void): void {
    const stream = this.#stream;
    if (this.#isClosed || stream === undefined) return;
    this.#end = () => {
      stream.once("wantTrailers", () => {
        stream.sendTrailers(trailers);
        onSent();
      });
      stream.end();
    };
    if (this.remaining === 0) this.sent();
  }

  /** The stream is closed: drops what is not sent. Idempotent. */
  close(): void {
    this.drop();
    const onAccepted = this.#onAccepted;
    this.#onAccepted = undefined;
    onAccepted?.(closedError);
  }

  /**
   * The stream has ended or was reset: drops what is not sent. Idempotent. The sender of the message learns of it with
   * `close`, once Node.js has closed the stream: many may be reset at once, and their release takes time.
   */
  drop(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.remaining = 0;
    this.#part = undefined;
    this.#parts = undefined;
    this.#end = undefined;
    this.#stream = undefined;
    this.#owner.closed(this);
  }

  /** Its connection ends: drops what is not sent, and closes Node.js' stream with this HTTP/2 error code. */
  abort(code: number): void {
    const stream = this.#stream;
    this.drop();
    if (stream === undefined || stream.destroyed) return;
    stream.close(code);
    stream.destroy();
  }

  /** The headers of the response are sent, so its messages may follow. */
  headersSent(): void {
    if (this.#hasHeaders) return;
    this.#hasHeaders = true;
    if (this.remaining > 0) this.#owner.ready(this);
  }

  /**
   * Plans the next frame, with a payload of at most `max` bytes, of a message that is not sent. Returns its size. It ends
   * where a part ends, if it can, since a part that is cut needs views. If one is not full, the next part did not fit: so
   * two in a row have more than `max` bytes, unless a window ends them.
   */
  plan(max: number): number {
    const parts = this.#parts;
    let bytes = 0;
    if (parts === undefined) bytes = Math.min(this.remaining, max);
    else {
      for (; this.#plannedPart < parts.length; this.#plannedPart++) {
        const left = (parts[this.#plannedPart] as Uint8Array).byteLength - this.#plannedBytes;
        if (bytes + left > max) break;
        bytes += left;
        this.#plannedBytes = 0;
      }
      if (bytes === 0) {
        bytes = max;
        this.#plannedBytes += max;
      }
    }
    this.remaining -= bytes;
    return bytes;
  }

  /** Takes a view of at most `bytes` of the message, which has that many left, for a frame. */
  take(bytes: number): Uint8Array {
    const part = this.#part as Uint8Array;
    const start = this.#partSent;
    const end = Math.min(part.byteLength, start + bytes);
    this.#partSent = end;
    if (end === part.byteLength) this.#moveToNextPart();
    return end - start === part.byteLength ? part : part.subarray(start, end);
  }

  /** Copies `bytes` of the message, which has that many left, for a frame. */
  copy(bytes: number, into: Uint8Array, start: number): void {
    for (let at = start; at < start + bytes; ) {
      const piece = this.take(start + bytes - at);
      into.set(piece, at);
      at += piece.byteLength;
    }
  }

  /** All of the message has been passed to the socket: the trailers may follow. */
  sent(): void {
    const end = this.#end;
    this.#end = undefined;
    end?.();
  }

  /** The operating system has taken all of the message. */
  accepted(): void {
    const onAccepted = this.#onAccepted;
    this.#onAccepted = undefined;
    onAccepted?.();
  }

  #moveToNextPart(): void {
    this.#partSent = 0;
    do {
      this.#part = this.#parts?.[this.#nextPart++];
    } while (this.#part?.byteLength === 0);
    if (this.#part === undefined) this.#parts = undefined;
  }
}
