import type { ServerHttp2Session } from "node:http2";
import type { Clock } from "../../base/clock.ts";
import { pauseReading, resumeReading } from "./http2-stream.ts";

/** Maximum number of streams that a connection may open per turn of the event loop before reading from it pauses. */
const streamsPerTurn = 128;

/** Maximum number of a connection's streams that may wait to be opened before reading from it pauses. */
const maxWaiting = 128;

interface Pace {
  /** Streams opened, less `streamsPerTurn` for each turn since. */
  count: number;
  isPaused: boolean;
}

/**
 * Pauses connections that open streams so fast that other connections would be delayed. Node.js itself spends about
 * 30 us on a stream that is opened and reset, and reads up to 2 MiB from a socket at once, which is tens of thousands of
 * streams. So a connection that has opened more than `streamsPerTurn` is not read from until later turns have
 * compensated for it, nor while more than `maxWaiting` of its streams wait to be opened. One paused connection is resumed
 * per turn. No stream is refused: TCP makes the client wait.
 */
export class StreamPacing {
  readonly #clock: Clock;
  readonly #waiting: (session: ServerHttp2Session) => number;
  /** Connections that are paused or have opened streams recently. */
  readonly #paces = new Map<ServerHttp2Session, Pace>();
  #isScheduled = false;

  /** `waiting` returns the number of a connection's streams that wait to be opened. */
  constructor(clock: Clock, waiting: (session: ServerHttp2Session) => number) {
    this.#clock = clock;
    this.#waiting = waiting;
  }

  /** Counts a stream of the connection. Call it within the "stream" event. */
  opened(session: ServerHttp2Session): void {
    let pace = this.#paces.get(session);
    if (pace === undefined) {
      pace = { count: 0, isPaused: false };
      this.#paces.set(session, pace);
    }
    pace.count++;
    if (this.#isTooFast(session, pace)) {
      // Even if it is paused: Node.js resumes by itself once it has written pending data.
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
    // A copy: a resumed connection moves behind the others, and must not be counted down twice.
    for (const [session, pace] of [...this.#paces]) {
      pace.count = Math.max(0, pace.count - streamsPerTurn);
      const isGone = session.destroyed;
      if (!isGone && this.#isTooFast(session, pace)) continue;
      if (pace.isPaused) {
        // One per turn: each may bring as many streams as one read holds.
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
