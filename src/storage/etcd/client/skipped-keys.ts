import type { Logger } from "pino";
import type { Clock } from "../../../base/clock.ts";

/** Minimum interval between log lines, in milliseconds. */
const logIntervalMs = 60_000;

/**
 * The keys in etcd that can't be objects of a resource: not UTF-8, or the prefix itself. Counts each occurrence, and
 * logs at most one line per interval.
 */
export class SkippedKeys {
  readonly #clock: Clock;
  readonly #logger: Logger;
  #count = 0;
  #logged: number | undefined;

  constructor(clock: Clock, logger: Logger) {
    this.#clock = clock;
    this.#logger = logger;
  }

  get count(): number {
    return this.#count;
  }

  add(key: Buffer): void {
    this.#count++;
    const now = this.#clock.now();
    if (this.#logged !== undefined && now - this.#logged < logIntervalMs) return;
    this.#logged = now;
    this.#logger.warn(
      { keyHex: key.toString("hex"), leftOut: this.#count },
      "ListWatchService leaves out a key that is not UTF-8, or is the resource's prefix itself",
    );
  }
}
