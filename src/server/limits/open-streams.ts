import { tooManyStreams, type WatchFanoutError } from "../../base/errors.ts";
import { groupOf, Rotation } from "../../base/rotation.ts";
import type { Identity } from "../../identity/identity.ts";
import type { Access } from "../../policy/access.ts";
import type { WatchStatus } from "../../storage/storage.ts";
import type { AuthenticatedStreams } from "./authenticated-streams.ts";
import type { CallerLimits } from "./caller-limits.ts";
import { CallOwner, callerOf } from "./callers.ts";

/** What a stream is. */
export type StreamKind = "watch" | "health" | "reflection" | "etcd watch" | "etcd call";

let lastId = 0;

/** A number for a new stream, unique in this process. */
export function nextStreamId(): number {
  lastId++;
  return lastId;
}

/** A stream: a watch, a health watch or a reflection stream. */
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
  /** Its client's connection. */
  readonly connection: object;
  /** Whose limits it counts against: its caller, on its connection. */
  readonly owner: object;
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
}

/**
 * Counts and bounds the open streams of a server, of all services. HTTP/2 bounds the calls of each connection; this
 * bounds the streams of all connections together.
 *
 * At the bound the caller with the most streams makes room: the oldest stream of its connection with the most is ended. If
 * no caller has at least two streams more than the new stream's own, its own connections share what it has in the same
 * way, and if none of them has two streams more, the new stream is refused.
 */
export class OpenStreams {
  readonly #maxStreams: number;
  readonly #streams = new Rotation<Set<OpenStream>>();
  readonly #authenticated: AuthenticatedStreams | undefined;
  readonly #callerLimits: Pick<CallerLimits, "streamRefusal"> | undefined;
  #size = 0;

  /** `authenticated` gets every stream for as long as it is open. `callerLimits` limits those of each caller. */
  constructor(
    maxStreams: number,
    {
      authenticated,
      callerLimits,
    }: {
      readonly authenticated?: AuthenticatedStreams;
      readonly callerLimits?: Pick<CallerLimits, "streamRefusal">;
    } = {},
  ) {
    this.#maxStreams = maxStreams;
    this.#authenticated = authenticated;
    this.#callerLimits = callerLimits;
  }

  /** Number of open streams. */
  get size(): number {
    return this.#size;
  }

  /** The open streams. Those that are opened while this is read may or may not be among them. */
  *[Symbol.iterator](): Generator<OpenStream, void, void> {
    for (const [, streams] of this.#streams) yield* streams;
  }

  /** The open streams of a connection, of all callers on it. */
  *of(connection: object): Generator<OpenStream, void, void> {
    for (const [owner, streams] of this.#streams) {
      if (owner === connection || (owner instanceof CallOwner && owner.connection === connection)) {
        yield* streams;
      }
    }
  }

  /** Makes room for one more stream of this owner. Returns the error if there is no room. */
  makeRoom(owner: object): WatchFanoutError | undefined {
    const caller = callerOf(owner);
    const refusal = caller && this.#callerLimits?.streamRefusal(caller);
    if (refusal !== undefined) return refusal;
    if (this.#size < this.#maxStreams) return undefined;
    const error = tooManyStreams(this.#maxStreams);
    const [oldest] = this.#mostBeside(owner) ?? none;
    if (oldest === undefined) return error;
    this.delete(oldest);
    oldest.evict(error);
    return undefined;
  }

  /** The streams of the connection that has to make room for the owner; undefined: none has to. */
  #mostBeside(owner: object): ReadonlySet<OpenStream> | undefined {
    const group = groupOf(owner);
    const others = this.#streams.most(sizeOf);
    const own = this.#streams.mostOf(group, sizeOf);
    // One with just one stream more would be entitled to get it back at once.
    if (others !== undefined && others.total > (own?.total ?? 0) + 1) return others.entry;
    const mine = this.#streams.get(owner)?.size ?? 0;
    return own !== undefined && own.entry.size > mine + 1 ? own.entry : undefined;
  }

  /** Counts a stream, after `makeRoom`. Idempotent. */
  add(stream: OpenStream): void {
    const { owner } = stream;
    let streams = this.#streams.get(owner);
    if (streams === undefined) {
      streams = new Set();
      this.#streams.add(owner, streams);
    }
    if (streams.has(stream)) return;
    streams.add(stream);
    this.#size++;
    const caller = callerOf(owner);
    if (caller !== undefined) caller.streams++;
    this.#authenticated?.add(stream);
  }

  /** Returns whether it was counted. */
  delete(stream: OpenStream): boolean {
    const { owner } = stream;
    const streams = this.#streams.get(owner);
    if (streams?.delete(stream) !== true) return false;
    this.#size--;
    const caller = callerOf(owner);
    if (caller !== undefined) caller.streams--;
    this.#authenticated?.delete(stream);
    if (streams.size === 0) this.#streams.delete(owner);
    return true;
  }
}

const none: ReadonlySet<OpenStream> = new Set();

function sizeOf({ size }: ReadonlySet<OpenStream>): number {
  return size;
}
