import type { Clock, Timer } from "../../base/clock.ts";

/** Something that sends one message at a time. */
export interface Sender {
  /** Grows with each message that is sent. */
  readonly sent: number;
  /** Whether the client has still to accept the last one. */
  readonly outstanding: boolean;
  /** Is called once the same message has been outstanding for the whole timeout. */
  stalled(): void;
}

interface Observation {
  sent: number;
  since: number;
}

/**
 * Looks after all senders of a server and finds those whose clients accept nothing. A Cacher does the
 * same for watches that have something waiting, but a watch that has ended, or has nothing more to
 * say, is none of its business any longer. One timer serves all, so that sending costs none.
 */
export class StallDetector {
  readonly #senders = new Map<Sender, Observation>();
  readonly #clock: Clock;
  readonly #timeoutMs: number;
  #timer: Timer | undefined;

  constructor(clock: Clock, timeoutMs: number) {
    this.#clock = clock;
    this.#timeoutMs = timeoutMs;
  }

  add(sender: Sender): void {
    this.#senders.set(sender, { sent: sender.sent, since: this.#clock.now() });
    this.#setTimer();
  }

  delete(sender: Sender): void {
    this.#senders.delete(sender);
    if (this.#senders.size > 0) return;
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  /** How many senders there are. */
  get size(): number {
    return this.#senders.size;
  }

  #setTimer(): void {
    this.#timer ??= this.#clock.setTimeout(() => {
      this.#timer = undefined;
      this.#check();
      if (this.#senders.size > 0) this.#setTimer();
    }, this.#timeoutMs / 8);
  }

  #check(): void {
    const now = this.#clock.now();
    for (const [sender, seen] of this.#senders) {
      if (!sender.outstanding || sender.sent !== seen.sent) {
        seen.sent = sender.sent;
        seen.since = now;
      } else if (now - seen.since >= this.#timeoutMs) {
        sender.stalled();
      }
    }
  }
}
