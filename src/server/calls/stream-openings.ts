import type { WatchFanoutError } from "../../base/errors.ts";
import type { TimeSlicedWork, TimeSliceScheduler } from "../../base/time-slices.ts";
import { statusOf } from "../../wire/errors.ts";
import type { BytePool, Reservation } from "../limits/byte-pool.ts";
import type { ServerCall } from "./server-call.ts";

interface Opening {
  readonly call: ServerCall;
  /** Opens the stream, or ends the call. Never throws. */
  readonly open: () => void;
  /** The bytes that its request takes while it waits. */
  reserved: Reservation | undefined;
}

/**
 * Opens streams in time slices that are shared fairly between connections: to read a selector and to enter a
 * watch takes long enough that thousands at once would hold up everyone else. What nobody is ahead of is opened at
 * once, and a stream that is over when its turn comes costs nothing more.
 */
export class StreamOpenings {
  readonly #scheduler: TimeSliceScheduler;
  readonly #requests: BytePool;
  readonly #refusal: () => WatchFanoutError;
  readonly #waiting = new Map<object, Set<Opening>>();

  /** `requests` bounds what those keep that wait; one that has to go for it ends with what `refusal` makes. */
  constructor(scheduler: TimeSliceScheduler, requests: BytePool, refusal: () => WatchFanoutError) {
    this.#scheduler = scheduler;
    this.#requests = requests;
    this.#refusal = refusal;
  }

  /** How many streams of this connection wait. */
  waiting(connection: object): number {
    return this.#waiting.get(connection)?.size ?? 0;
  }

  /** Has `open` called when it is the turn of the call, if it is not over by then. `bytes` are its request's. */
  add(call: ServerCall, bytes: number, open: () => void): void {
    const { connection } = call;
    const opening: Opening = { call, open, reserved: undefined };
    const others = this.#waiting.get(connection);
    const waiting = others ?? new Set();
    waiting.add(opening);
    if (others === undefined) {
      this.#waiting.set(connection, waiting);
      void this.#scheduler.run(connection, this.#openAll(connection, waiting));
      if (!waiting.has(opening)) return;
    }
    const forget = (): void => {
      waiting.delete(opening);
      opening.reserved?.release();
    };
    call.onOver(forget);
    opening.reserved = this.#requests.reserve(connection, bytes, () => {
      forget();
      call.end(statusOf(this.#refusal()));
    });
  }

  *#openAll(connection: object, waiting: Set<Opening>): TimeSlicedWork<void> {
    for (const opening of waiting) {
      waiting.delete(opening);
      opening.reserved?.release();
      if (!opening.call.isOver) opening.open();
      yield;
    }
    this.#waiting.delete(connection);
  }
}
