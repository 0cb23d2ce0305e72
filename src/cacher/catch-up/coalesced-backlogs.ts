import type { Clock } from "../../base/clock.ts";
import type { SlicedQueue } from "../../base/time-slice-queue.ts";
import type { Dispatcher } from "../dispatch/dispatcher.ts";
import { slowConsumer } from "../request/errors.ts";
import type { KeptPieces } from "../state/chunk-cache.ts";
import type { HistoryNode } from "../state/event-node.ts";
import type { Filter } from "../state/filter.ts";
import type { WatchCache } from "../state/watch-cache.ts";
import { Backlog, type BacklogParts, type BacklogReader } from "./coalesced-backlog.ts";
import type { FoldedUnit } from "./coalesced-batch.ts";

export interface FoldsParts {
  readonly clock: Clock;
  readonly cache: WatchCache;
  readonly dispatcher: Dispatcher;
  readonly kept: KeptPieces;
  /** Where it is folded, one backlog at a time. */
  readonly queue: SlicedQueue;
  /** About how large a piece of a unit is, in bytes. */
  readonly pieceBytes: number;
  /** How many bytes may be held, all folds together. */
  readonly maxBytes: number;
}

/** What folds take, and how many there have been. */
export interface FoldStats {
  /** Backlogs and the units that are being told, each counted once for all watchers that share it. */
  readonly held: number;
  /** The objects that they hold something of. */
  readonly objects: number;
  /** By weight, with what is kept of history until it is folded. */
  readonly bytes: number;
  /** Units that were begun, counted once for each watcher. */
  readonly told: number;
  /** Streams that were ended, as all folds together took more than they may. */
  readonly ended: number;
}

/** What a fold takes, and whose it is. */
interface Share {
  readonly bytes: number;
  readonly holders: ReadonlySet<BacklogReader>;
}

/**
 * The backlogs of all LATEST_STATE watchers that are behind. Those with the same filter who stopped at the
 * same node find the same one.
 *
 * Each holds at the most one entry for every object that stood when it began or stands now. There are no
 * more of them than watchers that are behind, and those are ended when they take nothing for the stall
 * timeout. Still that can be many times what the cache itself holds, so all together are bounded: above
 * that, those end whose fold takes the most.
 */
export class Folds {
  readonly #parts: BacklogParts;
  /** By the node that they begin after, then by their filters' identity. */
  readonly #backlogs = new Map<number, Map<string, Backlog>>();
  /** Who is amidst each of the units. */
  readonly #units = new Map<FoldedUnit, Set<BacklogReader>>();
  #told = 0;
  #ended = 0;

  constructor(parts: FoldsParts) {
    this.#parts = { ...parts, onFolded: () => this.#limit() };
  }

  /** What came after `node`, for a watcher that has to release it. */
  hold(filter: Filter, node: HistoryNode, by: BacklogReader): Backlog {
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
    backlog.held(by);
    return backlog;
  }

  /** A watcher begins to be told the unit. It has to say when it is done. */
  begin(unit: FoldedUnit, by: BacklogReader): void {
    const holders = this.#units.get(unit);
    if (holders === undefined) this.#units.set(unit, new Set([by]));
    else holders.add(by);
    this.#told++;
  }

  done(unit: FoldedUnit, by: BacklogReader): void {
    const holders = this.#units.get(unit);
    holders?.delete(by);
    if (holders?.size === 0) this.#units.delete(unit);
  }

  /** Lets go of backlogs that nobody is behind with and that are no longer shared, and of what is too much. */
  expire(): void {
    this.#drop((backlog) => backlog.isStale);
    this.#limit();
  }

  /** Lets go of all: nothing leads on from what was. */
  clear(): void {
    this.#backlogs.clear();
    this.#parts.queue.clear();
  }

  stats(): FoldStats {
    const stats = { held: this.#units.size, objects: 0, bytes: 0, told: this.#told };
    for (const backlog of this.#all()) {
      stats.held++;
      stats.objects += backlog.objects;
    }
    for (const unit of this.#units.keys()) stats.objects += unit.events.length;
    return { ...stats, bytes: this.#bytes, ended: this.#ended };
  }

  *#all(): Generator<Backlog, void, void> {
    for (const there of this.#backlogs.values()) yield* there.values();
  }

  get #bytes(): number {
    let bytes = 0;
    let unfolded = 0;
    for (const backlog of this.#all()) {
      bytes += backlog.bytes;
      unfolded = Math.max(unfolded, this.#unfolded(backlog));
    }
    for (const unit of this.#units.keys()) bytes += unit.bytes;
    // The one that is furthest behind keeps for all what history has let go of.
    return bytes + unfolded;
  }

  /** How much is kept for it that history has let go of, in bytes. */
  #unfolded({ reached, holders }: Backlog): number {
    if (holders.size === 0) return 0;
    return Math.max(0, this.#parts.cache.history.floor.bytes - reached.bytes);
  }

  #limit(): void {
    const { maxBytes } = this.#parts;
    if (this.#bytes <= maxBytes) return;
    this.#drop(({ holders }) => holders.size === 0);
    while (this.#bytes > maxBytes) {
      const largest = this.#largest();
      if (largest === undefined) return;
      const error = slowConsumer(
        "What is kept for all LATEST_STATE streams that are behind came to more than the " +
          `${maxBytes} bytes that it may, and this one's share of it, ${largest.bytes} bytes, was the largest.`,
      );
      this.#ended += largest.holders.size;
      // They let go of it as they end.
      for (const holder of [...largest.holders]) holder.fail(error);
      this.#drop(({ holders }) => holders.size === 0);
    }
  }

  #largest(): Share | undefined {
    let largest: Share | undefined;
    for (const backlog of this.#all()) {
      const bytes = backlog.bytes + this.#unfolded(backlog);
      if (bytes > (largest?.bytes ?? 0)) largest = { bytes, holders: backlog.holders };
    }
    for (const [{ bytes }, holders] of this.#units) {
      if (bytes > (largest?.bytes ?? 0)) largest = { bytes, holders };
    }
    return largest;
  }

  #drop(isNeedless: (backlog: Backlog) => boolean): void {
    for (const [after, there] of this.#backlogs) {
      for (const [identity, backlog] of there) if (isNeedless(backlog)) there.delete(identity);
      if (there.size === 0) this.#backlogs.delete(after);
    }
  }
}
