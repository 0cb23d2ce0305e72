import type { Clock } from "../../../base/clock.ts";
import { Fifo } from "../../../base/fifo.ts";

/**
 * Maximum number of streams that are closed in one turn of the event loop, of all connections that end. Each takes some 15
 * us, most of it in callbacks that Node.js runs later in the turn, where no time slice can interrupt them.
 */
export const closedPerTurn = 128;

/** A connection that ends. */
export interface EndingConnection {
  /** Closes one of its streams. Returns false if none is left: then it has ended, and is not called again. */
  closeNext(): boolean;
}

/**
 * Closes the streams of connections that end, a few in each turn of the event loop, connections in rotation. Node.js closes
 * all streams of a connection in the turn in which its session ends: for 50,000 of them the event loop would stop for 0.7
 * s. Until a stream is closed its call counts against all limits as before, which bounds what waits here: so a client whose
 * connection has few streams must not wait for those of others.
 */
export class EndingConnections {
  readonly #clock: Clock;
  readonly #waiting = new Fifo<EndingConnection>();
  /** How many streams may still be closed in this turn. */
  #left = closedPerTurn;
  #isScheduled = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Closes the streams of a connection: in this turn as many as may be, and the rest in later ones. */
  add(connection: EndingConnection): void {
    this.#waiting.push(connection);
    this.#close();
  }

  #close(): void {
    while (this.#left > 0) {
      const next = this.#waiting.shift();
      if (next === undefined) break;
      if (!next.closeNext()) continue;
      this.#left--;
      this.#waiting.push(next);
    }
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    this.#clock.setImmediate(this.#nextTurn);
  }

  readonly #nextTurn = (): void => {
    this.#isScheduled = false;
    this.#left = closedPerTurn;
    if (this.#waiting.length > 0) this.#close();
  };
}
