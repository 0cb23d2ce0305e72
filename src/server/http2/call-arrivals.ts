import type { IncomingHttpHeaders, ServerHttp2Session, ServerHttp2Stream } from "node:http2";
import type { Clock } from "../../base/clock.ts";
import type { TimeSlicedWork, TimeSliceScheduler } from "../../base/time-slices.ts";

/** How many calls of one connection are taken up as they come in a turn of the event loop. */
const callsPerTurn = 16;

interface Arrivals {
  /** How many have come in this turn. */
  count: number;
  /** In the order in which they came. */
  readonly waiting: Map<ServerHttp2Stream, IncomingHttpHeaders>;
}

const ignore = (): void => {};

/**
 * Takes up new calls. A socket is read 64 KiB at a time, which may be more than a thousand calls, all of which
 * Node.js announces in one go. Those beyond `callsPerTurn` of a connection wait, in the order in which they came, and
 * are taken up in time slices that are shared fairly between connections. A call that is over by then costs
 * nothing more.
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

  /** How many calls of this connection wait. */
  waiting(session: ServerHttp2Session): number {
    return this.#connections.get(session)?.waiting.size ?? 0;
  }

  /** Takes up the call of a new stream, now or when it is its turn. */
  add(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void {
    const session = stream.session as ServerHttp2Session | undefined;
    // The connection is gone already.
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
      // Only now: what comes meanwhile is to wait behind it, and not for another run.
      waiting.delete(stream);
      yield;
    }
  }

  #scheduleReset(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    this.#clock.setImmediate(this.#reset);
  }

  /** A turn is over. */
  readonly #reset = (): void => {
    this.#isScheduled = false;
    for (const [session, arrivals] of this.#connections) {
      arrivals.count = 0;
      if (arrivals.waiting.size === 0) this.#connections.delete(session);
    }
    if (this.#connections.size > 0) this.#scheduleReset();
  };
}
