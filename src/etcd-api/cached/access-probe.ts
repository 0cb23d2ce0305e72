import type { Clock } from "../../base/clock.ts";

/** How long a read that etcd allowed stands for others, in milliseconds. */
const confirmedMs = 1_000;

/**
 * Knows whether this process may read etcd without a user, as clients without a token may then read the cache: etcd would
 * give both the same. With authentication it refuses both.
 */
export class AccessProbe {
  readonly #read: () => Promise<unknown>;
  readonly #clock: Clock;
  #confirmedAt = -Infinity;
  /** The read in progress, which callers share. */
  #pending: Promise<void> | undefined;

  /** `read` reads a key of etcd, and rejects if etcd refuses that. */
  constructor(read: () => Promise<unknown>, clock: Clock) {
    this.#read = read;
    this.#clock = clock;
  }

  /** Undefined: etcd has allowed a read in the last second. Otherwise rejects if etcd does not allow one now. */
  confirm(): Promise<void> | undefined {
    if (this.#clock.now() - this.#confirmedAt < confirmedMs) return undefined;
    this.#pending ??= this.#ask();
    return this.#pending;
  }

  /** etcd's authentication may have been changed. */
  forget(): void {
    this.#confirmedAt = -Infinity;
    this.#pending = undefined;
  }

  #ask(): Promise<void> {
    const since = this.#clock.now();
    const pending = this.#read()
      .then(() => {
        if (this.#pending === pending) this.#confirmedAt = since;
      })
      .finally(() => {
        if (this.#pending === pending) this.#pending = undefined;
      });
    return pending;
  }
}
