import type { IncomingHttpHeaders, ServerHttp2Session, ServerHttp2Stream } from "node:http2";
import type { Clock } from "../../base/clock.ts";
import type { TimeSlicedWork, TimeSliceScheduler } from "../../base/time-slices.ts";

/** Maximum number of calls of one connection that are opened at once per turn of the event loop. */
const callsPerTurn = 16;

interface Arrivals {
  /** Number of calls that arrived in this turn. */
  count: number;
  /** In order of arrival. */
  readonly waiting: Map<ServerHttp2Stream, IncomingHttpHeaders>;
}

const ignore = (): void => {};

/**
 * Opens new calls. A socket is read 64 KiB at a time, which may be more than a thousand calls, and Node.js emits them
 * all in one turn of the event loop. Calls beyond `callsPerTurn` of a connection wait, in order of arrival, and are
 * opened in time slices that connections share fairly. A call that has ended by then costs nothing more.
 */
export class CallArrivals {
  readonly #clock: Clock;
  readonly #scheduler: TimeSliceScheduler;
  readonly #take: (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => void;
  readonly #connections = new Map<ServerHttp2Session, Arrivals>();
  #isScheduled = false;

  constructor(
    clock: Clock,
    scheduler: TimeSliceScheduler,
    take: (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => void,
  ) {
    this.#clock = clock;
    this.#scheduler = scheduler;
    this.#take = take;
  }

  /** Number of calls of this connection that wait. */
  waiting(session: ServerHttp2Session): number {
    return this.#connections.get(session)?.waiting.size ?? 0;
  }

  /** Opens the call of a new stream, now or in a time slice. */
  add(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void {
    const session = stream.session as ServerHttp2Session | undefined;
    // The connection is already closed.
    if (session === undefined) {
      this.#take(stream, headers);
      return;
    }
    let arrivals = this.#connections.get(session);
    if (arrivals === undefined) {
      arrivals = { count: 0, waiting: new Map() };
      this.#connections.set(session, arrivals);
      this.#scheduleReset();
    }
    arrivals.count++;
    const { waiting } = arrivals;
    if (waiting.size === 0 && arrivals.count <= callsPerTurn) {
      this.#take(stream, headers);
      return;
    }
    // Without a listener, a reset would end the process.
    stream.on("error", ignore);
    waiting.set(stream, headers);
    if (waiting.size === 1) void this.#scheduler.run(session, this.#takeAll(waiting));
  }

  *#takeAll(waiting: Arrivals["waiting"]): TimeSlicedWork<void> {
    for (const [stream, headers] of waiting) {
      if (!stream.destroyed && !stream.closed) this.#take(stream, headers);
      // Deleted only now, so that a call which arrives meanwhile joins this task and does not start another.
      waiting.delete(stream);
      yield;
    }
  }

  #scheduleReset(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    this.#clock.setImmediate(this.#reset);
  }

  /** At the end of a turn. */
  readonly #reset = (): void => {
    this.#isScheduled = false;
    for (const [session, arrivals] of this.#connections) {
      arrivals.count = 0;
      if (arrivals.waiting.size === 0) this.#connections.delete(session);
    }
    if (this.#connections.size > 0) this.#scheduleReset();
  };
}
