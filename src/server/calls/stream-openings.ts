import type { Clock } from "../../base/clock.ts";
import { WatchFanoutError } from "../../base/errors.ts";
import { Counts } from "../../base/rotation.ts";
import type { TimeSlicedWork, TimeSliceScheduler } from "../../base/time-slices.ts";
import { statusOf } from "../../wire/errors.ts";
import type { Ledger, Reservation } from "../kernel/ledger.ts";
import type { CallOwner } from "../limits/callers.ts";
import type { ServerCall } from "./server-call.ts";

/** Maximum time that a stream waits, in milliseconds. */
export const maxOpeningMs = 60_000;

interface Opening {
  readonly call: ServerCall;
  /** Opens the stream, or ends the call. Never throws. */
  readonly open: () => void;
  /** When the stream began to wait, in the clock's milliseconds. */
  readonly since: number;
  /** The charge for the request while it waits. */
  reserved: Reservation | undefined;
}

/**
 * Opens streams in time slices that callers share fairly, and the connections of each: to parse a selector and register
 * a watcher takes so long that thousands at once would delay other calls. A stream with none ahead of it is opened at
 * once. A stream that has ended before its time slice costs nothing more, and one that has waited for a minute is
 * refused.
 */
export class StreamOpenings {
  readonly #clock: Clock;
  readonly #scheduler: TimeSliceScheduler;
  readonly #requests: Ledger;
  readonly #refusal: () => WatchFanoutError;
  readonly #waiting = new Map<CallOwner, Set<Opening>>();
  readonly #ofConnection = new Counts();

  /** `requests` bounds the requests of waiting streams. A stream whose charge is evicted ends with `refusal()`. */
  constructor(
    clock: Clock,
    scheduler: TimeSliceScheduler,
    requests: Ledger,
    refusal: () => WatchFanoutError,
  ) {
    this.#clock = clock;
    this.#scheduler = scheduler;
    this.#requests = requests;
    this.#refusal = refusal;
  }

  /** Number of streams of this connection that wait. */
  waiting(connection: object): number {
    return this.#ofConnection.of(connection);
  }

  /**
   * Calls `open` in the next time slice of its caller and connection, unless the call has ended by then. `bytes` is its
   * request's size.
   */
  add(call: ServerCall, bytes: number, open: () => void): void {
    const { connection, owner } = call;
    const opening: Opening = { call, open, since: this.#clock.now(), reserved: undefined };
    const others = this.#waiting.get(owner);
    const waiting = others ?? new Set();
    waiting.add(opening);
    this.#ofConnection.add(connection, 1);
    if (others === undefined) {
      this.#waiting.set(owner, waiting);
      void this.#scheduler.run(owner, this.#openAll(owner, waiting));
      if (!waiting.has(opening)) return;
    }
    const forget = (): void => {
      if (waiting.delete(opening)) this.#ofConnection.add(connection, -1);
      opening.reserved?.release();
    };
    call.onOver(forget);
    opening.reserved = this.#requests.reserve(connection, bytes, () => {
      forget();
      call.end(statusOf(this.#refusal()));
    });
  }

  *#openAll(owner: CallOwner, waiting: Set<Opening>): TimeSlicedWork<void> {
    for (const opening of waiting) {
      waiting.delete(opening);
      this.#ofConnection.add(opening.call.connection, -1);
      opening.reserved?.release();
      if (!opening.call.isOver) this.#openOrRefuse(opening);
      yield;
    }
    this.#waiting.delete(owner);
  }

  /** The oldest are first, so no stream waits for much longer than the bound. */
  #openOrRefuse({ call, open, since }: Opening): void {
    if (this.#clock.now() - since <= maxOpeningMs) open();
    else call.end(statusOf(openedTooLate()));
  }
}

function openedTooLate(): WatchFanoutError {
  return new WatchFanoutError(
    "OVERLOADED",
    `This replica could not open the stream within ${maxOpeningMs / 1_000} s: others that were requested earlier were ` +
      "opened first. Nothing was done. Try another replica, or this one later.",
  );
}
