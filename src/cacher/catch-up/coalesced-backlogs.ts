import { slowConsumer } from "../request/errors.ts";
import type { EventNode } from "../state/event-node.ts";
import type { Filter } from "../state/filter.ts";
import {
  type BacklogReader,
  CoalescedBacklog,
  type CoalescedBacklogDeps,
  type CoalescedBacklogsDeps,
} from "./coalesced-backlog.ts";
import type { CoalescedBatch } from "./coalesced-batch.ts";

/** What folds take, and how many there have been. */
export interface CoalescingStats {
  /** Backlogs and the units that are being told, each counted once for all watchers that share it. */
  readonly held: number;
  /** The objects that they hold something of. */
  readonly objects: number;
  /** By weight, with what is kept of history until it is folded. */
  readonly bytes: number;
  /** Units that were begun, counted once for each watcher. */
  readonly delivered: number;
  /** Streams that were ended, as all folds together took more than they may. */
  readonly ended: number;
}

/** What a fold takes, and whose it is. */
interface BacklogShare {
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
export class CoalescedBacklogs {
  readonly #deps: CoalescedBacklogDeps;
  /** By the node that they begin after, then by their filters' identity. */
  readonly #backlogs = new Map<number, Map<string, CoalescedBacklog>>();
  /** Who is amidst each of the units. */
  readonly #batches = new Map<CoalescedBatch, Set<BacklogReader>>();
  #delivered = 0;
  #ended = 0;

  constructor(deps: CoalescedBacklogsDeps) {
    this.#deps = { ...deps, onCoalesced: () => this.#limit() };
  }

  /** What came after `node`, for a watcher that has to release it. */
  hold(filter: Filter, node: EventNode, by: BacklogReader): CoalescedBacklog {
    let there = this.#backlogs.get(node.sequence);
    if (there === undefined) {
      there = new Map();
      this.#backlogs.set(node.sequence, there);
    }
    let backlog = there.get(filter.identity);
    if (backlog === undefined) {
      backlog = new CoalescedBacklog(filter, node, this.#deps);
      there.set(filter.identity, backlog);
    }
    backlog.addHolder(by);
    return backlog;
  }

  /** A watcher begins to be told the unit. It has to say when it is done. */
  startDelivery(coalesced: CoalescedBatch, by: BacklogReader): void {
    const holders = this.#batches.get(coalesced);
    if (holders === undefined) this.#batches.set(coalesced, new Set([by]));
    else holders.add(by);
    this.#delivered++;
  }

  endDelivery(coalesced: CoalescedBatch, by: BacklogReader): void {
    const holders = this.#batches.get(coalesced);
    holders?.delete(by);
    if (holders?.size === 0) this.#batches.delete(coalesced);
  }

  /** Lets go of backlogs that nobody is behind with and that are no longer shared, and of what is too much. */
  expire(): void {
    this.#drop((backlog) => backlog.isStale);
    this.#limit();
  }

  /** Lets go of all: nothing leads on from what was. */
  clear(): void {
    this.#backlogs.clear();
    this.#deps.timeSlices.clear();
  }

  stats(): CoalescingStats {
    const stats = { held: this.#batches.size, objects: 0, bytes: 0, delivered: this.#delivered };
    for (const backlog of this.#all()) {
      stats.held++;
      stats.objects += backlog.objects;
    }
    for (const coalesced of this.#batches.keys()) stats.objects += coalesced.events.length;
    return { ...stats, bytes: this.#bytes, ended: this.#ended };
  }

  *#all(): Generator<CoalescedBacklog, void, void> {
    for (const there of this.#backlogs.values()) yield* there.values();
  }

  get #bytes(): number {
    let bytes = 0;
    let retained = 0;
    for (const backlog of this.#all()) {
      bytes += backlog.bytes;
      retained = Math.max(retained, this.#retainedEventBytes(backlog));
    }
    for (const coalesced of this.#batches.keys()) bytes += coalesced.bytes;
    // The one that is furthest behind keeps for all what history has let go of.
    return bytes + retained;
  }

  /** How much is kept for it that history has let go of, in bytes. */
  #retainedEventBytes({ reached, holders }: CoalescedBacklog): number {
    if (holders.size === 0) return 0;
    return Math.max(0, this.#deps.cache.eventWindow.floor.bytes - reached.bytes);
  }

  #limit(): void {
    const { maxBytes } = this.#deps;
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

  #largest(): BacklogShare | undefined {
    let largest: BacklogShare | undefined;
    for (const backlog of this.#all()) {
      const bytes = backlog.bytes + this.#retainedEventBytes(backlog);
      if (bytes > (largest?.bytes ?? 0)) largest = { bytes, holders: backlog.holders };
    }
    for (const [{ bytes }, holders] of this.#batches) {
      if (bytes > (largest?.bytes ?? 0)) largest = { bytes, holders };
    }
    return largest;
  }

  #drop(isNeedless: (backlog: CoalescedBacklog) => boolean): void {
    for (const [after, there] of this.#backlogs) {
      for (const [identity, backlog] of there) if (isNeedless(backlog)) there.delete(identity);
      if (there.size === 0) this.#backlogs.delete(after);
    }
  }
}
