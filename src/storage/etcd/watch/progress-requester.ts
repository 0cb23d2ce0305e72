import type { Clock, Timer } from "../../../base/clock.ts";

/** Interval between repeated progress requests, in milliseconds: etcd drops those that it can't respond to. */
const repeatMs = 100;

/** Maximum time without any response to progress requests, in milliseconds. */
const silenceMs = 10_000;

/**
 * Sends progress requests on one etcd stream until etcd responds.
 *
 * etcd responds only while the watch is synced, and not at all while its own buffer is full, so the request is repeated.
 * A response is for the callers before the request was sent; for later callers another request is sent.
 */
export class ProgressRequester {
  readonly #clock: Clock;
  readonly #send: () => void;
  readonly #onSilence: () => void;
  #isReady = false;
  /** Whether a caller waits for a request that has not been sent yet. */
  #isWanted = false;
  #timer: Timer | undefined;
  /** Since when the stream has been silent after a request, in the clock's milliseconds. */
  #silentSince = 0;
  #isRepeated = false;
  #isPaused = false;

  /** `onSilence` is called when etcd has sent nothing for 10 s after a request. */
  constructor(clock: Clock, send: () => void, onSilence: () => void) {
    this.#clock = clock;
    this.#send = send;
    this.#onSilence = onSilence;
  }

  request(): void {
    this.#isWanted = true;
    this.#next();
  }

  /** The watch exists now. Before, etcd would respond for a stream without watches. */
  ready(): void {
    this.#isReady = true;
    this.#next();
  }

  /** The stream has ended. Requests without a response are sent on the next one, once that is `ready`. */
  lost(): void {
    if (this.#timer !== undefined) this.#isWanted = true;
    this.stop();
    this.#isReady = false;
    this.#isRepeated = false;
  }

  /** Something was received. */
  heard(): void {
    this.#silentSince = this.#clock.now();
  }

  /** The response was received. */
  received(): void {
    if (this.#timer === undefined) return;
    this.stop();
    // Two requests have two responses, and the second would be taken for one to the next request.
    if (this.#isRepeated) this.#isWanted = true;
    this.#isRepeated = false;
    this.#next();
  }

  /** The reader takes nothing, so nothing is received, which is not etcd's fault. */
  pause(): void {
    this.#isPaused = true;
  }

  resume(): void {
    this.#isPaused = false;
    this.heard();
  }

  /** Sends no more requests until `request` is called. */
  stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #next(): void {
    if (!this.#isReady || !this.#isWanted || this.#timer !== undefined) return;
    this.#isWanted = false;
    this.heard();
    this.#send();
    this.#wait();
  }

  #wait(): void {
    this.#timer = this.#clock.setTimeout(() => {
      if (this.#isPaused) return this.#wait();
      if (this.#clock.now() - this.#silentSince >= silenceMs) return this.#onSilence();
      this.#isRepeated = true;
      this.#send();
      this.#wait();
    }, repeatMs);
  }
}
