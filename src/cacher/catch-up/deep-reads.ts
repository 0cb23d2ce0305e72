import type { Clock } from "../../base/clock.ts";
import type { WatchFanoutError } from "../../base/errors.ts";
import { groupOf } from "../../base/fair-queue.ts";
import { Gate } from "../../base/gate.ts";
import { waitFor } from "../../base/wait.ts";
import { resumeLimited } from "../request/errors.ts";

/** Bounds of the deep reads of a process. */
export interface DeepReadBounds {
  /** Maximum number at once, of all owners together; 0: such a watch is REVISION_TOO_OLD. */
  readonly concurrent: number;
  /** The same of one group of owners, which is a caller. */
  readonly concurrentPerGroup: number;
  /** Maximum number of watches that wait for their turn. */
  readonly queued: number;
  /** Maximum time that one waits for it, in milliseconds. */
  readonly maxWaitMs: number;
  /** Maximum time of one read, in milliseconds. */
  readonly maxMs: number;
  /**
   * Maximum number of revisions from the first one of a read to the current one; 0: no limit. A watch from further back is
   * REVISION_TOO_OLD. For each 1,000 revisions with events etcd reads all of them in one pass, in which it accepts no
   * write: 100,000 take it 0.2 s.
   */
  readonly maxRevisions: number;
}

export const defaultDeepReadBounds: DeepReadBounds = {
  concurrent: 16,
  concurrentPerGroup: 4,
  queued: 1_000,
  maxWaitMs: 10_000,
  maxMs: 5 * 60_000,
  maxRevisions: 100_000,
};

/** What has refused or ended a watch, as metrics name it. */
export const deepReadLimits = ["concurrent", "per_identity", "time"] as const;

type DeepReadLimit = (typeof deepReadLimits)[number];

/** Numbers of deep reads. */
export interface DeepReadStats {
  readonly active: number;
  readonly waiting: number;
  /** Those that have had their turn so far. */
  readonly begun: number;
  /** Watches refused or ended so far, by limit. */
  readonly refused: ReadonlyMap<DeepReadLimit, number>;
}

/**
 * Bounds the deep reads of a process: the reads of the store by watches that resume from before the event window. Each holds
 * a watch of the store, and some memory, for as long as its client takes. Callers take turns.
 */
export class DeepReads {
  readonly #clock: Clock;
  readonly #bounds: DeepReadBounds;
  readonly #gate: Gate;
  readonly #refused = new Map<DeepReadLimit, number>(deepReadLimits.map((limit) => [limit, 0]));
  #begun = 0;

  constructor(clock: Clock, bounds: Partial<DeepReadBounds> = {}) {
    this.#clock = clock;
    this.#bounds = { ...defaultDeepReadBounds, ...bounds };
    const { concurrent, concurrentPerGroup, queued } = this.#bounds;
    this.#gate = new Gate({ concurrent, concurrentPerGroup, queued });
  }

  stats(): DeepReadStats {
    const { size: active, queued: waiting } = this.#gate;
    return { active, waiting, begun: this.#begun, refused: this.#refused };
  }

  /** The smallest revision that one may begin after while the store is at `current`; infinite: at none. */
  oldest(current: number): number {
    const { concurrent, maxRevisions } = this.#bounds;
    if (concurrent === 0) return Infinity;
    // Revision 1 is that of an empty store.
    return maxRevisions === 0 ? 1 : Math.max(1, current - maxRevisions);
  }

  /**
   * Waits for a turn of the owner. Resolves to what ends the read, which is idempotent; `onTimeout` is called if that does not
   * happen in time. Rejects with RESUME_LIMITED if the turn does not come in time, or with the signal's reason.
   */
  async enter(
    owner: object,
    signal: AbortSignal,
    onTimeout: (error: WatchFanoutError) => void,
  ): Promise<() => void> {
    const { maxWaitMs } = this.#bounds;
    const expire = (): never => {
      throw this.#noTurn(owner);
    };
    await waitFor<void>(
      (enter, reject) => {
        const refuse = (): void => reject(this.#noTurn(owner));
        return this.#gate.queue(owner, { bytes: 0, enter, refuse });
      },
      { signal, deadline: { clock: this.#clock, ms: maxWaitMs, expire } },
    );
    return this.#begin(owner, onTimeout);
  }

  #begin(owner: object, onTimeout: (error: WatchFanoutError) => void): () => void {
    this.#begun++;
    let isOver = false;
    const { maxMs } = this.#bounds;
    const timer = this.#clock.setTimeout(() => onTimeout(this.#tookTooLong()), maxMs);
    return () => {
      if (isOver) return;
      isOver = true;
      timer.cancel();
      this.#gate.leave(owner);
    };
  }

  #noTurn(owner: object): WatchFanoutError {
    const { concurrent, concurrentPerGroup } = this.#bounds;
    // The bound of all may be reached by one caller.
    const isBounded = concurrentPerGroup < concurrent;
    const isOwn = isBounded && this.#gate.sizeOf(groupOf(owner)) >= concurrentPerGroup;
    const [whose, limit] = isOwn
      ? ["This caller has", concurrentPerGroup]
      : ["All callers together have", concurrent];
    const option = isOwn ? "deep-reads-per-identity" : "deep-reads";
    this.#count(isOwn ? "per_identity" : "concurrent");
    const why = `${whose} ${limit} watches that read events from before the event window, the maximum (--${option}).`;
    return resumeLimited(why, option, limit);
  }

  #tookTooLong(): WatchFanoutError {
    const { maxMs } = this.#bounds;
    this.#count("time");
    const why = `This watch has read events from before the event window for ${maxMs / 1_000} s, the maximum (--deep-read-timeout).`;
    return resumeLimited(why, "deep-read-timeout", maxMs);
  }

  #count(limit: DeepReadLimit): void {
    this.#refused.set(limit, (this.#refused.get(limit) ?? 0) + 1);
  }
}
