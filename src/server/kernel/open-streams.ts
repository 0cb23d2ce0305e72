import type { Clock } from "../../base/clock.ts";
import { tooManyStreams, type WatchFanoutError } from "../../base/errors.ts";
import { runPaced } from "../../base/event-loop-turns.ts";
import type { Identity } from "../../identity/identity.ts";
import type { Access } from "../../policy/access.ts";
import type { WatchStatus } from "../../storage/storage.ts";
import { Ledger, type Reservation } from "./ledger.ts";

/** Number of streams that are looked at between two yields. To end one takes longer than to look at all of these. */
const checksPerStep = 64;

/** Time in which streams that have lost what they need are ended, in milliseconds. */
const endWithinMs = 500;

/** What a stream is. */
export type StreamKind =
  | "watch"
  | "subscribe"
  | "health"
  | "reflection"
  | "keep-alive"
  | "xds"
  | "etcd watch"
  | "etcd call";

let lastId = 0;

/** A number for a new stream, unique in this process. */
export function nextStreamId(): number {
  lastId++;
  return lastId;
}

/** A connection that can be ended: a session of HTTP/2, or a connection with HTTP/1. */
export interface ClientConnection {
  /** Whether it takes no more calls. */
  readonly closed: boolean;
  readonly destroyed: boolean;
  /** Of HTTP/2: whether its client has not acknowledged the settings yet. */
  readonly pendingSettingsAck?: boolean;
  /** Ends it once its calls have ended. Idempotent. */
  close(): void;
  destroy(): void;
  once(event: "close" | "localSettings", listener: () => void): unknown;
}

/** A caller on one connection. */
export interface StreamOwner {
  readonly connection: object;
}

/** A stream: a watch, a health watch, a reflection stream, or any call of the etcd API. */
export interface OpenStream {
  /** From `nextStreamId`. Absent, as with the following: operators are not shown the stream. */
  readonly id?: number;
  readonly streamKind?: StreamKind;
  /** When it was opened, in the clock's milliseconds. Absent if it is not known. */
  readonly openedAt?: number;
  /** The name of its resource; absent without one. */
  readonly resource?: string | undefined;
  /** Absent or undefined: it has no single watch. */
  readonly watchStatus?: WatchStatus | undefined;
  /** The identity that has opened it. */
  readonly identity: Identity;
  /** The rights that it needs for as long as it is open; undefined: it needs no right, or there is no policy. */
  readonly access: Access | readonly Access[] | undefined;
  /** Whose limits it counts against: its caller, on its client's connection. */
  readonly owner: StreamOwner;
  /** Whether its watches are streams of their own, which make room before it. Absent: they are not. */
  readonly hasOwnStreams?: boolean;
  /** Number of messages sent. Absent if it is not counted. */
  readonly sent?: number;
  /**
   * Memory that it holds because its client does not accept what it is sent, in bytes, estimated; 0 if the client has
   * accepted everything. Absent if that is little.
   */
  readonly heldBytes?: number;
  /**
   * For how long its client has not accepted the last message, in milliseconds; 0: it has, or that is not known yet. Absent
   * if it is not known.
   */
  readonly outstandingMs?: number;
  /** Ends it with the error: to make room, after it was removed from the count, or because of its identity or its right. */
  evict(error: WatchFanoutError): void;
  /**
   * Its connection will be closed: ends it if it might not end by itself, as its protocol has it. Absent: it is evicted with
   * DRAINING.
   */
  drain?(): void;
}

/** What a server does at the begin and end of its streams. */
export interface OpenStreamsOptions {
  /** Why this owner may not have one more; undefined: it may. */
  readonly refusal?: (owner: StreamOwner) => WatchFanoutError | undefined;
  readonly opened?: (stream: OpenStream) => void;
  readonly closed?: (stream: OpenStream) => void;
}

/** The open streams of an owner. */
interface OwnedStreams {
  /** The oldest first. */
  readonly streams: Set<OpenStream>;
  /** Their number in the ledger. */
  readonly count: Reservation;
}

/**
 * The open streams of a server, of all services: the one table of them, which everything reads that ends, counts or shows
 * streams. It bounds their number. HTTP/2 bounds the calls of each connection; this bounds the streams of all connections
 * together.
 *
 * At the bound the caller with the most streams makes room: the oldest stream of its connection with the most is ended. If
 * no caller has at least two streams more than the new stream's own, its own connections share what it has in the same
 * way, and if none of them has two streams more, the new stream is refused.
 */
export class OpenStreams {
  readonly #maxStreams: number;
  readonly #options: OpenStreamsOptions;
  /** By connection, and on it by owner. None is empty. */
  readonly #connections = new Map<object, Map<StreamOwner, OwnedStreams>>();
  readonly #ledger = new Ledger<StreamOwner>();

  constructor(maxStreams: number, options: OpenStreamsOptions = {}) {
    this.#maxStreams = maxStreams;
    this.#options = options;
  }

  /** Number of open streams. */
  get size(): number {
    return this.#ledger.total;
  }

  /** The open streams. Those that are opened while this is read may or may not be among them. */
  *[Symbol.iterator](): Generator<OpenStream, void, void> {
    for (const connection of this.#connections.keys()) yield* this.of(connection);
  }

  /** The open streams of a connection, of all callers on it. */
  *of(connection: object): Generator<OpenStream, void, void> {
    for (const { streams } of this.#connections.get(connection)?.values() ?? []) yield* streams;
  }

  /** Makes room for one more stream of this owner. Returns the error if there is no room. */
  makeRoom(owner: StreamOwner): WatchFanoutError | undefined {
    const refusal = this.#options.refusal?.(owner);
    if (refusal !== undefined || this.size < this.#maxStreams) return refusal;
    const error = tooManyStreams(this.#maxStreams);
    const crowding = this.#ledger.makesRoomFor(owner);
    const oldest = oldestOf((crowding && this.#ownedBy(crowding)?.streams) ?? []);
    if (oldest === undefined) return error;
    this.end(oldest, error);
    return undefined;
  }

  /** Counts a stream, after `makeRoom`. Idempotent. */
  add(stream: OpenStream): void {
    const { owner } = stream;
    let owned = this.#ownedBy(owner);
    if (owned === undefined) {
      // The ledger counts, and finds the owner that makes room; its stream is ended here.
      owned = { streams: new Set(), count: this.#ledger.reserve(owner, 0, () => {}) };
      const owners = this.#connections.get(owner.connection);
      if (owners === undefined) this.#connections.set(owner.connection, new Map([[owner, owned]]));
      else owners.set(owner, owned);
    }
    if (owned.streams.has(stream)) return;
    owned.streams.add(stream);
    owned.count.resize(owned.streams.size);
    this.#options.opened?.(stream);
  }

  /** Returns whether it was counted. */
  delete(stream: OpenStream): boolean {
    const { owner } = stream;
    const owners = this.#connections.get(owner.connection);
    const owned = owners?.get(owner);
    if (owned?.streams.delete(stream) !== true) return false;
    owned.count.resize(owned.streams.size);
    if (owned.streams.size === 0) owners?.delete(owner);
    if (owners?.size === 0) this.#connections.delete(owner.connection);
    this.#options.closed?.(stream);
    return true;
  }

  /** Ends a stream with the error. Returns false, without effect, if it is not open. */
  end(stream: OpenStream, error: WatchFanoutError): boolean {
    if (!this.delete(stream)) return false;
    stream.evict(error);
    return true;
  }

  /**
   * Ends each stream for which `errorOf` returns an error, within half a second: in time slices, and beyond them if that
   * would take too long. A thousand take a few milliseconds, and other calls continue meanwhile. Streams that open during
   * the pass may or may not be looked at. Ends early once `isCurrent` returns false.
   */
  endEach(
    clock: Clock,
    errorOf: (stream: OpenStream) => WatchFanoutError | undefined,
    isCurrent: () => boolean = () => true,
  ): void {
    let looked = 0;
    const pass = this.#ending((stream) => {
      looked++;
      return errorOf(stream);
    });
    const step = (): boolean => isCurrent() && pass.next().done !== true;
    // How many are ended is not known before.
    runPaced(clock, { step, steps: this.size, done: () => looked, withinMs: endWithinMs });
  }

  #ownedBy(owner: StreamOwner): OwnedStreams | undefined {
    return this.#connections.get(owner.connection)?.get(owner);
  }

  *#ending(
    errorOf: (stream: OpenStream) => WatchFanoutError | undefined,
  ): Generator<void, void, void> {
    let checks = 0;
    for (const stream of this) {
      const error = errorOf(stream);
      if (error !== undefined) this.end(stream, error);
      if (error !== undefined || ++checks % checksPerStep === 0) yield;
    }
  }
}

/** The first one that has no streams of its own; without such a one, the first. */
function oldestOf(streams: Iterable<OpenStream>): OpenStream | undefined {
  let oldest: OpenStream | undefined;
  for (const stream of streams) {
    if (stream.hasOwnStreams !== true) return stream;
    oldest ??= stream;
  }
  return oldest;
}
