import type { IncomingHttpHeaders, ServerHttp2Session, ServerHttp2Stream } from "node:http2";
import type { Clock, Timer } from "../../base/clock.ts";
import { turnMs } from "../../base/event-loop-turns.ts";
import { FairQueue, groupOf } from "../../base/fair-queue.ts";
import type { Ledger, Reservation } from "../kernel/ledger.ts";
import { resetStream } from "./http2-stream.ts";
import { headerBytes } from "./request-headers.ts";

/** How many calls start in one turn of the event loop. */
interface Portions {
  /** Maximum calls of one caller that start as they arrive. */
  readonly arriving: number;
  /** Maximum waiting calls that start, of all callers together. */
  readonly waiting: number;
}

const alone: Portions = { arriving: 16, waiting: 16 };
/** Shorter turns cost a little more for each call. */
const shared: Portions = { arriving: 8, waiting: 4 };

/** Memory of a waiting call in addition to its headers, in bytes. */
const callBytes = 1024;

/** A waiting call. */
interface Arrival {
  readonly stream: ServerHttp2Stream;
  readonly session: ServerHttp2Session;
  readonly headers: IncomingHttpHeaders;
  /** The charge for the headers. */
  readonly reservation: Reservation;
}

/** A connection that has waiting calls. */
interface WaitingConnection {
  /** Number of its waiting calls, of all owners. */
  waiting: number;
  /** Whose turns its calls take that no proxy forwards, for as long as the connection has waiting calls. */
  owner: object | undefined;
}

/**
 * Starts new calls at a bounded rate. Node.js reads a socket in chunks of 64 KiB, and announces all calls of a chunk
 * at once, which can be more than a thousand. A call costs some 0.2 ms from its first byte to its response, most of it
 * in callbacks that Node.js runs later in the same turn, where no time slice can interrupt them. So a few calls of a caller
 * start as they arrive; further ones wait, on however many connections they arrive, and a few of all start in each later
 * turn. With several callers they are fewer, so that none waits for long turns: callers take turns, and so do the
 * connections of each, each in order of arrival. Calls whose identity a proxy forwards take the turns of that identity, so
 * they wait for none of another identity on the same connection. A call that ends while it waits costs nothing more. The
 * headers of waiting calls are charged to their connection like incomplete requests, or to the identity on it; a call
 * whose charge is evicted is reset.
 */
export class CallArrivals {
  readonly #clock: Clock;
  readonly #requests: Ledger;
  readonly #start: (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => void;
  readonly #ownerOf: (session: ServerHttp2Session) => object;
  /** By connection, or on one of a proxy by identity. */
  readonly #waiting = new FairQueue<Arrival>();
  /** The connections that have waiting calls. */
  readonly #connections = new Map<ServerHttp2Session, WaitingConnection>();
  /** Number of calls that have started as they arrived in this turn, by caller. */
  readonly #started = new Map<object, number>();
  readonly #hasSeveral: () => boolean;
  #turn: Timer | undefined;

  /**
   * `start` must not throw. `requests` bounds the headers of waiting calls. `ownerOf` returns whose turns a connection takes.
   * Default: its own. `hasSeveral`: whether there are several callers now. Default: no.
   */
  constructor(
    clock: Clock,
    requests: Ledger,
    start: (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => void,
    ownerOf: (session: ServerHttp2Session) => object = (session) => session,
    hasSeveral: () => boolean = () => false,
  ) {
    this.#clock = clock;
    this.#requests = requests;
    this.#start = start;
    this.#ownerOf = ownerOf;
    this.#hasSeveral = hasSeveral;
  }

  /** Number of waiting calls of this connection. */
  waiting(session: ServerHttp2Session): number {
    return this.#connections.get(session)?.waiting ?? 0;
  }

  /**
   * Starts the call of a new stream, at once or in a later turn. `forwarded` is whose turns it takes if a proxy forwards its
   * identity. Default: those of its connection.
   */
  add(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, forwarded?: object): void {
    const session = stream.session as ServerHttp2Session | undefined;
    // The connection is closed already: the call only has to end.
    if (session === undefined) {
      this.#start(stream, headers);
      return;
    }
    const connection = this.#connections.get(session);
    const owner = forwarded ?? connection?.owner ?? this.#ownerOf(session);
    if (this.#mayStart(groupOf(owner))) {
      this.#start(stream, headers);
      return;
    }
    this.#countWaiting(session, connection, forwarded === undefined ? owner : undefined);
    // Memory that an identity takes on a connection which it shares is its own.
    const reservation = this.#requests.reserve(forwarded ?? session, 0, () => {
      this.#remove(owner, arrival);
      resetStream(stream);
    });
    const arrival = { stream, session, headers, reservation };
    this.#waiting.push(owner, arrival);
    reservation.resize(callBytes + headerBytes(headers));
    this.#scheduleTurn();
  }

  #countWaiting(
    session: ServerHttp2Session,
    connection: WaitingConnection | undefined,
    owner: object | undefined,
  ): void {
    if (connection === undefined) {
      this.#connections.set(session, { waiting: 1, owner });
    } else {
      connection.waiting++;
      connection.owner ??= owner;
    }
  }

  get #portions(): Portions {
    return this.#hasSeveral() ? shared : alone;
  }

  /** Whether a call of the caller may start as it arrives; then it is counted. */
  #mayStart(caller: object): boolean {
    if (this.#waiting.hasGroup(caller)) return false;
    const started = this.#started.get(caller) ?? 0;
    if (started >= this.#portions.arriving) return false;
    this.#started.set(caller, started + 1);
    this.#scheduleTurn();
    return true;
  }

  #remove(owner: object, arrival: Arrival): void {
    const { session } = arrival;
    this.#waiting.delete(owner, arrival);
    const connection = this.#connections.get(session);
    if (connection === undefined) return;
    connection.waiting--;
    if (connection.waiting === 0) this.#connections.delete(session);
  }

  #scheduleTurn(): void {
    this.#turn ??= this.#clock.setImmediate(this.#nextTurn);
  }

  readonly #nextTurn = (): void => {
    this.#turn = undefined;
    this.#started.clear();
    const end = this.#clock.now() + turnMs;
    const { waiting } = this.#portions;
    for (let started = 0; started < waiting; started++) {
      const next = this.#waiting.next();
      if (next === undefined) break;
      this.#startFirst(next[0]);
      if (this.#clock.now() >= end) break;
    }
    if (this.#waiting.size > 0) this.#scheduleTurn();
  };

  /** Starts the first call of an owner that has not ended. */
  #startFirst(owner: object): void {
    for (;;) {
      const arrival = this.#waiting.first(owner);
      if (arrival === undefined) break;
      const { stream, headers, reservation } = arrival;
      reservation.release();
      this.#remove(owner, arrival);
      if (stream.destroyed || stream.closed) continue;
      this.#start(stream, headers);
      break;
    }
    this.#waiting.served(owner);
  }
}
