import type { Clock, Timer } from "../../base/clock.ts";

/** Sends one message at a time. */
export interface Sender {
  /** Number of messages sent. */
  readonly sent: number;
  /** Whether the client has not accepted the last message yet. */
  readonly outstanding: boolean;
  /** Called when the same message has been outstanding for the whole timeout. */
  stalled(): void;
}

interface Observation {
  sent: number;
  since: number;
  /** Whether it stays without an outstanding message. */
  readonly isAdded: boolean;
}

/**
 * Finds the senders of a server whose clients accept nothing. A Cacher does the same for watches with a non-empty buffer,
 * but does not know whether the last message of an ended or idle watch was accepted.
 *
 * Only senders with an outstanding message are looked at, so idle streams cost nothing. One timer serves all of them, so
 * that a message needs no timer of its own.
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

  /** Observes the sender until `delete`. */
  add(sender: Sender): void {
    this.#senders.set(sender, { sent: sender.sent, since: this.#clock.now(), isAdded: true });
    this.#setTimer();
  }

  /** A message of the sender is outstanding from now on. It is observed until that is no longer so, or until `delete`. */
  observe(sender: Sender): void {
    if (this.#senders.has(sender)) return;
    this.#senders.set(sender, { sent: sender.sent, since: this.#clock.now(), isAdded: false });
    this.#setTimer();
  }

  /** Idempotent. */
  delete(sender: Sender): void {
    if (!this.#senders.delete(sender) || this.#senders.size > 0) return;
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  /** How long the last message of a sender has been outstanding, in milliseconds; 0 if none is, or it was not seen yet. */
  outstandingMs(sender: Sender): number {
    const seen = this.#senders.get(sender);
    if (seen === undefined || !sender.outstanding || sender.sent !== seen.sent) return 0;
    return this.#clock.now() - seen.since;
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
      if (!sender.outstanding && !seen.isAdded) {
        this.#senders.delete(sender);
      } else if (!sender.outstanding || sender.sent !== seen.sent) {
        seen.sent = sender.sent;
        seen.since = now;
      } else if (now - seen.since >= this.#timeoutMs) {
        sender.stalled();
      }
    }
  }
}
