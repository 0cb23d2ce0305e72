import { tooManyStreams, type WatchFanoutError } from "../../base/errors.ts";
import type { Identity } from "../../identity/identity.ts";
import type { Access } from "../../policy/access.ts";
import type { AuthenticatedStreams } from "./authenticated-streams.ts";

/** A stream: a watch, a health watch or a reflection stream. */
export interface OpenStream {
  /** The identity that has opened it. */
  readonly identity: Identity;
  /** The rights that it needs for as long as it is open; undefined: it needs no right, or there is no policy. */
  readonly access: Access | readonly Access[] | undefined;
  /** Its client's connection. */
  readonly connection: object;
  /** Number of messages sent. Absent if it is not counted. */
  readonly sent?: number;
  /**
   * Memory that it holds because its client does not accept what it is sent, in bytes, estimated; 0 if the client has
   * accepted everything. Absent if that is little.
   */
  readonly heldBytes?: number;
  /** Ends it with the error: to make room, after it was removed from the count, or because of its identity or its right. */
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
  readonly #authenticated: AuthenticatedStreams | undefined;
  #size = 0;

  /** `authenticated` gets every stream for as long as it is open. */
  constructor(maxStreams: number, authenticated?: AuthenticatedStreams) {
    this.#maxStreams = maxStreams;
    this.#authenticated = authenticated;
  }

  /** Number of open streams. */
  get size(): number {
    return this.#size;
  }

  /** The open streams. Those that are opened while this is read may or may not be among them. */
  *[Symbol.iterator](): Generator<OpenStream, void, void> {
    for (const streams of this.#connections.values()) yield* streams;
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
    this.#authenticated?.add(stream);
  }

  /** Returns whether it was counted. */
  delete(stream: OpenStream): boolean {
    const streams = this.#connections.get(stream.connection);
    if (streams?.delete(stream) !== true) return false;
    this.#size--;
    this.#authenticated?.delete(stream);
    if (streams.size === 0) this.#connections.delete(stream.connection);
    return true;
  }
}

const none: ReadonlySet<OpenStream> = new Set();
