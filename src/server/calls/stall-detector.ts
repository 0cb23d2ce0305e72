import type { Clock, Timer } from "../../base/clock.ts";

/** Sends one message at a time. */
export interface Sender {
  /** Whether the client has not accepted the last message yet. */
  readonly outstanding: boolean;
  /** When the last message was sent that was not accepted at once, in the clock's milliseconds. */
  readonly outstandingSince: number;
  /** Whether something else ends it at the timeout, and knows more about why. It has an eighth of the timeout for that. */
  readonly isEndedElsewhere: boolean;
  /** For the detector: whether it is observed. */
  isObserved: boolean;
  /** Called when the same message has been outstanding for the whole timeout. */
  stalled(): void;
}

/**
 * Finds the senders of a server whose clients accept nothing. A Cacher does the same for watches with a non-empty buffer,
 * but does not know whether the last message of an ended or idle watch was accepted.
 *
 * Only senders with an outstanding message are looked at, so idle streams cost nothing. One timer serves all of them, so
 * that a message needs no timer of its own.
 */
export class StallDetector {
  readonly #senders = new Set<Sender>();
  readonly #clock: Clock;
  readonly #timeoutMs: number;
  #timer: Timer | undefined;

  constructor(clock: Clock, timeoutMs: number) {
    this.#clock = clock;
    this.#timeoutMs = timeoutMs;
  }

  /**
   * A message of the sender is outstanding from now on. It is observed until none is, or until `delete`. Returns the clock's
   * time, in milliseconds.
   */
  observe(sender: Sender): number {
    // This is on the path of each message that is not accepted at once.
    if (!sender.isObserved) {
      sender.isObserved = true;
      this.#senders.add(sender);
      this.#setTimer(this.#timeoutMs / 8);
    }
    return this.#clock.now();
  }

  /** Idempotent. */
  delete(sender: Sender): void {
    sender.isObserved = false;
    if (!this.#senders.delete(sender) || this.#senders.size > 0) return;
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  /** How long the last message of a sender has been outstanding, in milliseconds; 0 if none is. */
  outstandingMs({ outstanding, outstandingSince }: Sender): number {
    return outstanding ? this.#clock.now() - outstandingSince : 0;
  }

  #setTimer(ms: number): void {
    this.#timer ??= this.#clock.setTimeout(() => {
      this.#timer = undefined;
      const nextMs = this.#check();
      if (this.#senders.size > 0) this.#setTimer(nextMs);
    }, ms);
  }

  /** Returns when to check again, in milliseconds. */
  #check(): number {
    let nextMs = this.#timeoutMs / 8;
    for (const sender of this.#senders) {
      const timeoutMs = this.#timeoutMs * (sender.isEndedElsewhere ? 9 / 8 : 1);
      const leftMs = timeoutMs - this.outstandingMs(sender);
      if (!sender.outstanding) {
        sender.isObserved = false;
        this.#senders.delete(sender);
      } else if (leftMs <= 0) {
        sender.stalled();
      } else {
        nextMs = Math.min(nextMs, leftMs);
      }
    }
    // All are looked at each time, however many stall one after another.
    return Math.max(nextMs, this.#timeoutMs / 64);
  }
}
