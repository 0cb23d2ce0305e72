import type { ServerHttp2Session } from "node:http2";
import type { Clock } from "../clock.ts";
import { pauseReading, resumeReading } from "./http2-stream.ts";

/** How many streams one connection may open in a turn of the event loop before nothing more is read from it. */
const streamsPerTurn = 128;

/** How many streams of one connection may wait for their turn to be opened before nothing more is read from it. */
const maxWaiting = 128;

/**
 * Holds back connections that open streams faster than others can be served beside them. What a stream costs
 * before anybody has looked at its request is Node.js's own work, some 30 us for one that is opened and reset, and
 * a socket is read up to 2 MiB in one go, which is tens of thousands of streams. So from a connection that has
 * opened more than `streamsPerTurn` nothing is read until turns have made up for it, nor while more than
 * `maxWaiting` of its streams wait to be opened. Nobody is refused: TCP tells the client to wait.
 */
export class StreamPacing {
  readonly #clock: Clock;
  readonly #waiting: (session: ServerHttp2Session) => number;
  /** How many streams those have opened that did of late, less what turns have made up for. */
  readonly #opened = new Map<ServerHttp2Session, number>();
  #isScheduled = false;

  /** `waiting` says how many streams of a connection wait to be opened. */
  constructor(clock: Clock, waiting: (session: ServerHttp2Session) => number) {
    this.#clock = clock;
    this.#waiting = waiting;
  }

  /** The connection has opened a stream. To be called from within the event that tells of it. */
  opened(session: ServerHttp2Session): void {
    const count = (this.#opened.get(session) ?? 0) + 1;
    this.#opened.set(session, count);
    if (this.#isTooFast(session, count)) pauseReading(session);
    this.#schedule();
  }

  #isTooFast(session: ServerHttp2Session, count: number): boolean {
    return count > streamsPerTurn || this.#waiting(session) > maxWaiting;
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    this.#clock.setImmediate(this.#nextTurn);
  }

  readonly #nextTurn = (): void => {
    this.#isScheduled = false;
    for (const [session, count] of this.#opened) {
      const left = Math.max(0, count - streamsPerTurn);
      this.#opened.set(session, left);
      if (this.#isTooFast(session, left)) continue;
      resumeReading(session);
      if (left === 0) this.#opened.delete(session);
    }
    if (this.#opened.size > 0) this.#schedule();
  };
}
