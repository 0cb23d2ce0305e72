import { tooManyStreams, type WatchFanoutError } from "../../base/errors.ts";

/** A call that lasts: a watch, a health watch, a reflection stream. */
export interface OpenStream {
  /** Its client's connection. */
  readonly connection: object;
  /** Ends it with the error, to make room. It is not counted any more when this is called. */
  evict(error: WatchFanoutError): void;
}

/**
 * All streams of a server, of whatever service, counted per connection and in all. How many one connection may
 * have is HTTP/2's to say, which counts every call; here they are bounded in all.
 *
 * Where there is no room for one more, whoever has most makes it: the stream is refused if its own connection is
 * among those, and otherwise the oldest one of the connection that has most is ended in its place.
 */
export class OpenStreams {
  readonly #maxStreams: number;
  readonly #connections = new Map<object, Set<OpenStream>>();
  #size = 0;

  constructor(maxStreams: number) {
    this.#maxStreams = maxStreams;
  }

  /** How many are open. */
  get size(): number {
    return this.#size;
  }

  /** Sees to it that there is room for one more stream of this connection. Returns why there is none. */
  makeRoom(connection: object): WatchFanoutError | undefined {
    if (this.#size < this.#maxStreams) return undefined;
    const mine = this.#connections.get(connection)?.size ?? 0;
    let most: ReadonlySet<OpenStream> = none;
    for (const streams of this.#connections.values()) if (streams.size > most.size) most = streams;
    const error = tooManyStreams(this.#maxStreams);
    // One that has a single stream more would have to get it back at once.
    const [oldest] = most;
    if (oldest === undefined || most.size <= mine + 1) return error;
    this.delete(oldest);
    oldest.evict(error);
    return undefined;
  }

  /** For a stream that there is room for. */
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
