import type { Clock, Timer } from "../../../base/clock.ts";

/** After how many milliseconds without an answer etcd is asked again: it drops what it can't answer. */
const askAgainMs = 100;

/** How long etcd may say nothing at all while it is asked, in milliseconds. */
const silenceMs = 10_000;

/**
 * Asks etcd on one stream how far it has come, until it says so.
 *
 * etcd answers only while the watch has caught up, and not at all if its own buffer is full, so the
 * question is repeated. An answer counts for whoever asked before the question was sent: for those who
 * come later it is sent once more.
 */
export class ProgressRequester {
  readonly #clock: Clock;
  readonly #send: () => void;
  readonly #onSilence: () => void;
  #isReady = false;
  /** Whether someone waits for a question that has not been sent yet. */
  #isWanted = false;
  #timer: Timer | undefined;
  /** Since when the stream has been silent while asked, in the clock's milliseconds. */
  #silentSince = 0;
  #isRepeated = false;
  #isPaused = false;

  /** `onSilence` is called once etcd has said nothing for 10 s although it was asked. */
  constructor(clock: Clock, send: () => void, onSilence: () => void) {
    this.#clock = clock;
    this.#send = send;
    this.#onSilence = onSilence;
  }

  request(): void {
    this.#isWanted = true;
    this.#next();
  }

  /** From now on the watch exists: before, etcd would answer for a stream without any. */
  ready(): void {
    this.#isReady = true;
    this.#next();
  }

  /** The stream is over. What has been asked on it is asked on the next one, once that is `ready`. */
  lost(): void {
    if (this.#timer !== undefined) this.#isWanted = true;
    this.stop();
    this.#isReady = false;
    this.#isRepeated = false;
  }

  /** Something came. */
  heard(): void {
    this.#silentSince = this.#clock.now();
  }

  /** The answer came. */
  answered(): void {
    if (this.#timer === undefined) return;
    this.stop();
    // Of two questions there are two answers, and the second would pass for one to the next question.
    if (this.#isRepeated) this.#isWanted = true;
    this.#isRepeated = false;
    this.#next();
  }

  /** The reader takes nothing, so nothing is heard, which is not etcd's fault. */
  pause(): void {
    this.#isPaused = true;
  }

  resume(): void {
    this.#isPaused = false;
    this.heard();
  }

  /** Asks no more, until `ask` is called. */
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
    }, askAgainMs);
  }
}
