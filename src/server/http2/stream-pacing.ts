import type { ServerHttp2Session } from "node:http2";
import type { Clock } from "../../base/clock.ts";
import { pauseReading, resumeReading } from "./http2-stream.ts";

/** How many streams one connection may open in a turn of the event loop before nothing more is read from it. */
const streamsPerTurn = 128;

/** How many streams of one connection may wait for their turn to be opened before nothing more is read from it. */
const maxWaiting = 128;

interface Pace {
  /** How many streams it has opened, less what turns have made up for. */
  count: number;
  isPaused: boolean;
}

/**
 * Holds back connections that open streams faster than others can be served beside them. What a stream costs
 * before anybody has looked at its request is Node.js's own work, some 30 us for one that is opened and reset, and
 * a socket is read up to 2 MiB in one go, which is tens of thousands of streams. So from a connection that has
 * opened more than `streamsPerTurn` nothing is read until turns have made up for it, nor while more than
 * `maxWaiting` of its streams wait to be opened. Of those that are held back one is read on in a turn. Nobody is
 * refused: TCP tells the client to wait.
 */
export class StreamPacing {
  readonly #clock: Clock;
  readonly #waiting: (session: ServerHttp2Session) => number;
  /** Those that have opened streams of late. */
  readonly #paces = new Map<ServerHttp2Session, Pace>();
  #isScheduled = false;

  /** `waiting` says how many streams of a connection wait to be opened. */
  constructor(clock: Clock, waiting: (session: ServerHttp2Session) => number) {
    this.#clock = clock;
    this.#waiting = waiting;
  }

  /** The connection has opened a stream. To be called from within the event that tells of it. */
  opened(session: ServerHttp2Session): void {
    let pace = this.#paces.get(session);
    if (pace === undefined) {
      pace = { count: 0, isPaused: false };
      this.#paces.set(session, pace);
    }
    pace.count++;
    if (this.#isTooFast(session, pace)) {
      // Also if it is paused: Node.js reads on by itself once it has written what it had to.
      pauseReading(session);
      pace.isPaused = true;
    }
    this.#schedule();
  }

  #isTooFast(session: ServerHttp2Session, { count }: Pace): boolean {
    return count > streamsPerTurn || this.#waiting(session) > maxWaiting;
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    this.#clock.setImmediate(this.#nextTurn);
  }

  readonly #nextTurn = (): void => {
    this.#isScheduled = false;
    let hasResumed = false;
    for (const [session, pace] of this.#paces) {
      pace.count = Math.max(0, pace.count - streamsPerTurn);
      const isGone = session.destroyed;
      if (!isGone && this.#isTooFast(session, pace)) continue;
      if (pace.isPaused) {
        // One a turn: each may have as much to say as one read brings.
        if (hasResumed && !isGone) continue;
        hasResumed ||= !isGone;
        resumeReading(session);
        pace.isPaused = false;
        this.#paces.delete(session);
        if (!isGone && pace.count > 0) this.#paces.set(session, pace);
      } else if (pace.count === 0) {
        this.#paces.delete(session);
      }
    }
    if (this.#paces.size > 0) this.#schedule();
  };
}
