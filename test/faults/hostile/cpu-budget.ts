import { setTimeout as delay, setImmediate as nextTurn } from "node:timers/promises";

/** CPU time that may be spent ahead of the budget, in milliseconds. */
const burstMs = 50;
/** The longest pause before the budget is looked at again, in milliseconds. */
const longestPauseMs = 50;

/**
 * Bounds the CPU time of this process to a share of one core, so that on a small machine an attack is measured by
 * what it makes the replica do, and not by its competition for CPU.
 */
export class CpuBudget {
  readonly #share: number;
  #since = performance.now();
  #usage = process.cpuUsage();

  /** `share` of one core, from above 0 to 1. */
  constructor(share: number) {
    this.#share = share;
  }

  /** Resolves in a later turn, as soon as the budget has something left. Rejects once `signal` is aborted. */
  async pace(signal: AbortSignal): Promise<void> {
    await nextTurn(undefined, { signal });
    for (let aheadMs = this.#aheadMs(); aheadMs > 0; aheadMs = this.#aheadMs()) {
      await delay(Math.min(longestPauseMs, aheadMs / this.#share), undefined, { signal });
    }
  }

  #aheadMs(): number {
    const { user, system } = process.cpuUsage(this.#usage);
    const aheadMs = (user + system) / 1_000 - this.#share * (performance.now() - this.#since);
    // Unused budget is not saved: otherwise a flood could follow each pause.
    if (aheadMs < 0) this.#reset();
    return aheadMs - burstMs;
  }

  #reset(): void {
    this.#since = performance.now();
    this.#usage = process.cpuUsage();
  }
}
