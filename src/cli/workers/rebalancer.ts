import type { Logger } from "pino";
import type { Clock, Timer } from "../../base/clock.ts";
import type { ConnectionDistributor, ConnectionTaker } from "./connection-distributor.ts";

/** Interval of the checks, in milliseconds. */
const checkMs = 1_000;

/**
 * Number of checks in a row that find uneven connections before any is moved. Short connections and those of clients that
 * reconnect even out by themselves.
 */
const checksBefore = 5;

/** A worker has too many connections if it has more than this share of an equal part. To move fewer is not worth it. */
const maxShare = 1.1;

/** The part of what a worker has too many that moves with each check. */
const movedShare = 0.1;

interface RebalancerOptions {
  readonly distributor: ConnectionDistributor;
  /** Whether all workers can take connections. */
  readonly isComplete: () => boolean;
  readonly clock: Clock;
  readonly logger: Logger;
}

/**
 * Evens out the connections of workers. The distributor chooses for new ones only: a worker that has replaced another
 * would stay without connections until those of others end. The workers that have too many end some of them gracefully,
 * the oldest first, and their clients connect again, which leads them to the workers that have the fewest.
 */
export class Rebalancer {
  readonly #options: RebalancerOptions;
  #timer: Timer | undefined;
  /** Number of checks in a row that have found uneven connections. */
  #uneven = 0;

  constructor(options: RebalancerOptions) {
    this.#options = options;
  }

  start(): void {
    const { clock } = this.#options;
    this.#timer = clock.setTimeout(() => {
      this.#check();
      this.start();
    }, checkMs);
  }

  /** Idempotent. */
  stop(): void {
    this.#timer?.cancel();
  }

  #check(): void {
    const { distributor, isComplete, logger } = this.#options;
    const surpluses = isComplete() ? surplusesOf(distributor.counts()) : [];
    this.#uneven = surpluses.length === 0 ? 0 : this.#uneven + 1;
    if (this.#uneven < checksBefore) return;
    if (this.#uneven === checksBefore) {
      logger.info("the workers' connections are uneven; some are moved");
    }
    for (const [worker, surplus] of surpluses) {
      worker.drainOldest(Math.ceil(surplus * movedShare));
    }
  }
}

/** The workers that have too many connections, and how many each has above an equal part. */
function surplusesOf(
  counts: ReadonlyMap<ConnectionTaker, number>,
): readonly (readonly [ConnectionTaker, number])[] {
  const total = [...counts.values()].reduce((sum, count) => sum + count, 0);
  const equal = Math.ceil(total / counts.size);
  return [...counts].flatMap(([worker, count]) =>
    count > equal * maxShare ? [[worker, count - equal] as const] : [],
  );
}
