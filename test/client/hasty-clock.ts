import type { Clock, Timer } from "../../src/base/clock.ts";

/** A clock on which every wait ends immediately: time advances by its length, and it is recorded. */
export class HastyClock implements Clock {
  readonly waits: number[] = [];
  #now = 0;

  now(): number {
    return this.#now;
  }

  setTimeout(callback: () => void, delayMs: number): Timer {
    this.waits.push(delayMs);
    return this.#soon(() => {
      this.#now += delayMs;
      callback();
    });
  }

  setImmediate(callback: () => void): Timer {
    return this.#soon(callback);
  }

  #soon(callback: () => void): Timer {
    const immediate = setImmediate(callback);
    return { cancel: () => clearImmediate(immediate) };
  }
}
