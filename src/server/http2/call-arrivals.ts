import type { IncomingHttpHeaders, ServerHttp2Session, ServerHttp2Stream } from "node:http2";
import type { Clock } from "../../base/clock.ts";
import { turnMs } from "../../base/event-loop-turns.ts";
import type { BytePool, Reservation } from "../limits/byte-pool.ts";
import { refuseStream } from "./http2-stream.ts";
import { headerBytes } from "./request-headers.ts";

/** Maximum calls of one connection that start as they arrive in one turn of the event loop. */
const callsPerTurn = 16;

/** Maximum waiting calls that start in one turn, of all connections together. */
const waitingPerTurn = 16;

/** Memory of a waiting call in addition to its headers, in bytes. */
const callBytes = 1024;

interface Arrival {
  readonly headers: IncomingHttpHeaders;
  /** The charge for the headers. */
  readonly reservation: Reservation;
}

interface Arrivals {
  /** Calls that arrived in this turn. */
  count: number;
  /** In order of arrival. */
  readonly waiting: Map<ServerHttp2Stream, Arrival>;
}

const ignore = (): void => {};

/**
 * Starts new calls at a bounded rate. Node.js reads a socket in chunks of 64 KiB, and announces all calls of a chunk
 * at once, which can be more than a thousand. A call costs some 0.2 ms from its first byte to its response, most of it
 * in callbacks that Node.js runs later in the same turn, where no time slice can interrupt them. So the calls beyond
 * `callsPerTurn` of a connection wait, and `waitingPerTurn` of them start in each later turn, one connection after the
 * other, each in order of arrival. A call that ends while it waits costs nothing more. The headers of waiting calls are
 * charged to their connection like incomplete requests; a call whose charge is evicted is reset.
 */
export class CallArrivals {
  readonly #clock: Clock;
  readonly #requests: BytePool;
  readonly #start: (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => void;
  /** The connection whose waiting call starts next comes first. */
  readonly #connections = new Map<ServerHttp2Session, Arrivals>();
  #isScheduled = false;

  /** `start` must not throw. `requests` bounds the headers of waiting calls. */
  constructor(
    clock: Clock,
    requests: BytePool,
    start: (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => void,
  ) {
    this.#clock = clock;
    this.#requests = requests;
    this.#start = start;
  }

  /** Number of waiting calls of this connection. */
  waiting(session: ServerHttp2Session): number {
    return this.#connections.get(session)?.waiting.size ?? 0;
  }

  /** Starts the call of a new stream, at once or in a later turn. */
  add(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void {
    const session = stream.session as ServerHttp2Session | undefined;
    // The connection is closed already: the call only has to end.
    if (session === undefined) {
      this.#start(stream, headers);
      return;
    }
    let arrivals = this.#connections.get(session);
    if (arrivals === undefined) {
      arrivals = { count: 0, waiting: new Map() };
      this.#connections.set(session, arrivals);
      this.#scheduleTurn();
    }
    arrivals.count++;
    if (arrivals.waiting.size === 0 && arrivals.count <= callsPerTurn) {
      this.#start(stream, headers);
      return;
    }
    // Without a listener, a reset would end the process.
    stream.on("error", ignore);
    this.#wait(session, arrivals.waiting, stream, headers);
  }

  #wait(
    session: ServerHttp2Session,
    waiting: Map<ServerHttp2Stream, Arrival>,
    stream: ServerHttp2Stream,
    headers: IncomingHttpHeaders,
  ): void {
    const reservation = this.#requests.reserve(session, 0, () => {
      waiting.delete(stream);
      refuseStream(stream);
    });
    waiting.set(stream, { headers, reservation });
    reservation.resize(callBytes + headerBytes(headers));
  }

  #scheduleTurn(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    this.#clock.setImmediate(this.#nextTurn);
  }

  readonly #nextTurn = (): void => {
    this.#isScheduled = false;
    for (const [session, arrivals] of this.#connections) {
      arrivals.count = 0;
      if (arrivals.waiting.size === 0) this.#connections.delete(session);
    }
    const end = this.#clock.now() + turnMs;
    for (let started = 0; started < waitingPerTurn && this.#connections.size > 0; started++) {
      this.#startNext();
      if (this.#clock.now() >= end) break;
    }
    if (this.#connections.size > 0) this.#scheduleTurn();
  };

  /** Starts the first waiting call of the first connection, which then moves behind all others. */
  #startNext(): void {
    for (const [session, arrivals] of this.#connections) {
      this.#connections.delete(session);
      const { waiting } = arrivals;
      for (const [stream, { headers, reservation }] of waiting) {
        waiting.delete(stream);
        reservation.release();
        if (stream.destroyed || stream.closed) continue;
        this.#start(stream, headers);
        break;
      }
      if (waiting.size > 0) this.#connections.set(session, arrivals);
      return;
    }
  }
}
