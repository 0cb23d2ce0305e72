import type { IncomingHttpHeaders, ServerHttp2Session, ServerHttp2Stream } from "node:http2";
import type { Clock } from "../../base/clock.ts";
import { turnMs } from "../../base/event-loop-turns.ts";

/** Maximum calls of one connection that start as they arrive in one turn of the event loop. */
const callsPerTurn = 16;

/** Maximum waiting calls that start in one turn, of all connections together. */
const waitingPerTurn = 16;

interface Arrivals {
  /** Calls that arrived in this turn. */
  count: number;
  /** In order of arrival. */
  readonly waiting: Map<ServerHttp2Stream, IncomingHttpHeaders>;
}

const ignore = (): void => {};

/**
 * Starts new calls at a bounded rate. Node.js reads a socket in chunks of 64 KiB, and announces all calls of a chunk
 * at once, which can be more than a thousand. A call costs some 0.2 ms from its first byte to its response, most of it
 * in callbacks that Node.js runs later in the same turn, where no time slice can interrupt them. So the calls beyond
 * `callsPerTurn` of a connection wait, and `waitingPerTurn` of them start in each later turn, one connection after the
 * other, each in order of arrival. A call that ends while it waits costs nothing more.
 */
export class CallArrivals {
  readonly #clock: Clock;
  readonly #start: (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => void;
  /** The connection whose waiting call starts next comes first. */
  readonly #connections = new Map<ServerHttp2Session, Arrivals>();
  #isScheduled = false;

  /** `start` must not throw. */
  constructor(
    clock: Clock,
    start: (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => void,
  ) {
    this.#clock = clock;
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
    arrivals.waiting.set(stream, headers);
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
      for (const [stream, headers] of waiting) {
        waiting.delete(stream);
        if (stream.destroyed || stream.closed) continue;
        this.#start(stream, headers);
        break;
      }
      if (waiting.size > 0) this.#connections.set(session, arrivals);
      return;
    }
  }
}
