import type { Clock } from "../clock.ts";
import { Backlog } from "./backlog.ts";
import type { Dispatcher } from "./dispatcher.ts";
import type { Filter } from "./filter.ts";
import type { FoldedUnit } from "./folded-unit.ts";
import type { HistoryNode } from "./history.ts";
import type { KeptPieces } from "./kept-pieces.ts";

export interface FoldsParts {
  readonly clock: Clock;
  readonly dispatcher: Dispatcher;
  readonly kept: KeptPieces;
  /** About how large a piece of a unit is, in bytes. */
  readonly pieceBytes: number;
}

/** What folds take, and how many there have been. */
export interface FoldStats {
  /** Backlogs and the units that are being told, each counted once for all watchers that share it. */
  readonly held: number;
  /** The objects that they hold something of. */
  readonly objects: number;
  /** By weight. */
  readonly bytes: number;
  /** Units that were begun, counted once for each watcher. */
  readonly told: number;
}

/**
 * The backlogs of all LATEST_STATE watchers that are behind. Those with the same filter who stopped at the
 * same node find the same one.
 *
 * Each holds at the most one entry for every object that stood when it began or stands now, whose content
 * the cache mostly holds anyway. There are no more of them than watchers that are behind, and those are
 * ended when they take nothing for the stall timeout.
 */
export class Folds {
  readonly #parts: FoldsParts;
  /** By the node that they begin after, then by their filters' identity. */
  readonly #backlogs = new Map<number, Map<string, Backlog>>();
  /** How many watchers are amidst each of the units. */
  readonly #units = new Map<FoldedUnit, number>();
  #told = 0;

  constructor(parts: FoldsParts) {
    this.#parts = parts;
  }

  /** What came after `node`, for a watcher that has to release it. */
  hold(filter: Filter, node: HistoryNode): Backlog {
    let there = this.#backlogs.get(node.sequence);
    if (there === undefined) {
      there = new Map();
      this.#backlogs.set(node.sequence, there);
    }
    let backlog = there.get(filter.identity);
    if (backlog === undefined) {
      backlog = new Backlog(filter, node, this.#parts);
      there.set(filter.identity, backlog);
    }
    backlog.holders++;
    return backlog;
  }

  release(backlog: Backlog): void {
    backlog.holders--;
  }

  /** A watcher begins to tell the unit. It has to say when it is done. */
  begin(unit: FoldedUnit): void {
    this.#units.set(unit, (this.#units.get(unit) ?? 0) + 1);
    this.#told++;
  }

  done(unit: FoldedUnit): void {
    const tellers = this.#units.get(unit) ?? 0;
    if (tellers > 1) this.#units.set(unit, tellers - 1);
    else this.#units.delete(unit);
  }

  /** Lets go of backlogs that nobody is behind with and that are no longer shared. */
  expire(): void {
    for (const [after, there] of this.#backlogs) {
      for (const [identity, backlog] of there) if (backlog.isStale) there.delete(identity);
      if (there.size === 0) this.#backlogs.delete(after);
    }
  }

  /** Lets go of all: history has become another one. */
  clear(): void {
    this.#backlogs.clear();
  }

  stats(): FoldStats {
    const stats = { held: this.#units.size, objects: 0, bytes: 0, told: this.#told };
    for (const there of this.#backlogs.values()) {
      for (const backlog of there.values()) {
        stats.held++;
        stats.objects += backlog.objects;
        stats.bytes += backlog.bytes;
      }
    }
    for (const unit of this.#units.keys()) {
      stats.objects += unit.events.length;
      stats.bytes += unit.bytes;
    }
    return stats;
  }
}
