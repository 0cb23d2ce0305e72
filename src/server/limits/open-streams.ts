import { tooManyStreams, type WatchFanoutError } from "../../base/errors.ts";

/** A stream: a watch, a health watch or a reflection stream. */
export interface OpenStream {
  /** Its client's connection. */
  readonly connection: object;
  /** Ends it with the error, to make room. Called after it was removed from the count. */
  evict(error: WatchFanoutError): void;
}

/**
 * Counts and bounds the open streams of a server, of all services. HTTP/2 bounds the calls of each connection; this
 * bounds the streams of all connections together.
 *
 * At the bound the connection with the most streams makes room: its oldest stream is ended. If no connection has at
 * least two streams more than the new stream's own connection, the new stream is refused.
 */
export class OpenStreams {
  readonly #maxStreams: number;
  readonly #connections = new Map<object, Set<OpenStream>>();
  #size = 0;

  constructor(maxStreams: number) {
    this.#maxStreams = maxStreams;
  }

  /** Number of open streams. */
  get size(): number {
    return this.#size;
  }

  /** Makes room for one more stream of this connection. Returns the error if there is no room. */
  makeRoom(connection: object): WatchFanoutError | undefined {
    if (this.#size < this.#maxStreams) return undefined;
    const mine = this.#connections.get(connection)?.size ?? 0;
    let most: ReadonlySet<OpenStream> = none;
    for (const streams of this.#connections.values()) if (streams.size > most.size) most = streams;
    const error = tooManyStreams(this.#maxStreams);
    // A connection with just one stream more would be entitled to get it back at once.
    const [oldest] = most;
    if (oldest === undefined || most.size <= mine + 1) return error;
    this.delete(oldest);
    oldest.evict(error);
    return undefined;
  }

  /** Counts a stream, after `makeRoom`. Idempotent. */
  add(stream: OpenStream): void {
    let streams = this.#connections.get(stream.connection);
    if (streams === undefined) {
      streams = new Set();
      this.#connections.set(stream.connection, streams);
    }
    if (streams.has(stream)) return;
    streams.add(stream);
    this.#size++;
  }

  /** Idempotent. */
  delete(stream: OpenStream): void {
    const streams = this.#connections.get(stream.connection);
    if (streams?.delete(stream) !== true) return;
    this.#size--;
    if (streams.size === 0) this.#connections.delete(stream.connection);
  }
}

const none: ReadonlySet<OpenStream> = new Set();
