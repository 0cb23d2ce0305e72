import type { Clock } from "../../base/clock.ts";
import { WatchFanoutError } from "../../base/errors.ts";
import { Counts } from "../../base/fair-queue.ts";
import { Turns } from "../../base/turns.ts";
import { statusOf } from "../../wire/errors.ts";
import type { Ledger, Reservation } from "../kernel/ledger.ts";
import { tooMuchRetained } from "./refusals.ts";
import type { ServerCall } from "./server-call.ts";

/** What waits to be opened: a call, or one watch of a call. */
export type Opening = Pick<ServerCall, "connection" | "owner" | "isOver" | "onOver" | "end">;

/** Maximum time that a stream waits, in milliseconds. */
export const maxOpeningMs = 60_000;

/**
 * Opens streams in turns of the event loop that callers share fairly, and the connections of each: to parse a selector and
 * register a watcher takes so long that thousands at once would delay other calls. A stream with none ahead of it is opened
 * at once. A stream that ends before its turn costs nothing more, and one that has waited for a minute is refused.
 */
export class StreamOpenings {
  readonly #clock: Clock;
  readonly #turns: Turns;
  readonly #requests: Ledger;
  readonly #ofConnection = new Counts();

  /** `requests` bounds the requests of waiting streams. A stream whose charge is evicted ends. */
  constructor(clock: Clock, requests: Ledger) {
    this.#clock = clock;
    // A task is an open call or watch, and these are bounded, so none is refused here.
    this.#turns = new Turns(clock, Infinity);
    this.#requests = requests;
  }

  /** Number of streams of this connection that wait. */
  waiting(connection: object): number {
    return this.#ofConnection.of(connection);
  }

  /**
   * Calls `open`, which must not throw, in the next turn of its caller and connection, unless the call has ended by then.
   * `bytes` is its request's size.
   */
  add(call: Opening, bytes: number, open: () => void): void {
    const { connection, owner } = call;
    const since = this.#clock.now();
    let isWaiting = true;
    let reserved: Reservation | undefined;
    const forget = (): void => {
      if (!isWaiting) return;
      isWaiting = false;
      this.#turns.delete(owner, task);
      this.#ofConnection.add(connection, -1);
      reserved?.release();
    };
    const step = (): boolean => {
      forget();
      if (call.isOver) return false;
      // The oldest are first, so no stream waits for much longer than the bound.
      if (this.#clock.now() - since <= maxOpeningMs) open();
      else call.end(statusOf(openedTooLate()));
      return false;
    };
    const task = { step };
    this.#ofConnection.add(connection, 1);
    this.#turns.start(owner, task);
    if (!isWaiting) return;
    call.onOver(forget);
    reserved = this.#requests.reserve(connection, bytes, () => {
      forget();
      call.end(statusOf(tooMuchRetained(this.#requests)));
    });
  }
}

function openedTooLate(): WatchFanoutError {
  return new WatchFanoutError(
    "OVERLOADED",
    `This replica could not open the stream within ${maxOpeningMs / 1_000} s: others that were requested earlier were ` +
      "opened first. Nothing was done. Try another replica, or this one later.",
  );
}
