import type { OutgoingHttpHeaders, ServerHttp2Stream } from "node:http2";
import type { FrameParts } from "../../../wire/frame-parts.ts";

/** Is called once a message was accepted, or with the error that prevents that. */
export type OnAccepted = (error?: Error | null) => void;

/** Writes the messages of one response behind its headers, and then its trailers. */
export interface ResponseWriter {
  /** Whether the stream is closed: nothing can be written any more. */
  readonly isClosed: boolean;
  /**
   * Writes a small message that is accepted with that: the client's flow control permits it, and nothing on the connection
   * waits to be written. Returns false, without effect, otherwise.
   */
  writeAtOnce(message: Uint8Array): boolean;
  /**
   * Writes a message. It is accepted when the client's flow control has permitted all of it and the operating system has
   * taken it. Write the next one only then.
   */
  write(message: Uint8Array, onAccepted: OnAccepted): void;
  /** As `write`, for a message in consecutive parts. Without `onAccepted` it is the only one of its response. */
  writeParts(parts: FrameParts, onAccepted?: OnAccepted): void;
  /**
   * Drops the message that was written last, unless a part of it was passed on already. It is neither accepted nor refused
   * then. Returns whether it was dropped.
   */
  withdraw(): boolean;
  /** Ends the stream with the trailers, behind what was written. Calls `onSent` when it passes them to Node.js. */
  end(trailers: OutgoingHttpHeaders, onSent: () => void): void;
  /** The stream is closed: drops what is not sent. Idempotent. */
  close(): void;
}

/** How much of a response is passed to HTTP/2 at once, in bytes. */
const pieceBytes = 256 * 1024;

/** Writes with the public API of Node.js. */
export class StreamWriter implements ResponseWriter {
  readonly #stream: ServerHttp2Stream;
  #isWriting = false;
  #onWritten: (() => void) | undefined;

  constructor(stream: ServerHttp2Stream) {
    this.#stream = stream;
  }

  get isClosed(): boolean {
    return this.#stream.destroyed || this.#stream.closed;
  }

  /** Node.js accepts a message only later. */
  writeAtOnce(): boolean {
    return false;
  }

  write(message: Uint8Array, onAccepted: OnAccepted): void {
    this.#stream.write(message, onAccepted);
  }

  writeParts(parts: FrameParts, onAccepted?: OnAccepted): void {
    this.#isWriting = true;
    this.#writeFrom(parts, 0, onAccepted);
  }

  /** Node.js has passed on as much as the window permits. */
  withdraw(): boolean {
    return false;
  }

  end(trailers: OutgoingHttpHeaders, onSent: () => void): void {
    if (this.#isWriting) this.#onWritten = () => endStream(this.#stream, trailers, onSent);
    else endStream(this.#stream, trailers, onSent);
  }

  /** Node.js drops it. */
  close(): void {}

  /** Writes the parts from `first` on, 256 KiB at a time: TLS copies everything that it is passed at once. */
  #writeFrom(parts: FrameParts, first: number, onAccepted?: OnAccepted): void {
    const stream = this.#stream;
    stream.cork();
    let bytes = 0;
    let next = first;
    while (next < parts.length && bytes < pieceBytes) {
      const part = parts[next++] as Uint8Array;
      bytes += part.byteLength;
      if (next < parts.length && bytes >= pieceBytes) {
        stream.write(part, (error) => {
          if (error === null || error === undefined) this.#writeFrom(parts, next, onAccepted);
          else onAccepted?.(error);
        });
      } else if (next === parts.length) {
        stream.write(part, onAccepted);
      } else {
        stream.write(part);
      }
    }
    if (next === parts.length) {
      this.#isWriting = false;
      this.#onWritten?.();
    }
    stream.uncork();
  }
}

/** Ends a stream behind what has been written to it. */
export function endStream(
  stream: ServerHttp2Stream,
  trailers: OutgoingHttpHeaders,
  onSent: () => void,
): void {
  stream.once("wantTrailers", () => {
    stream.sendTrailers(trailers);
    onSent();
  });
  stream.end();
}
