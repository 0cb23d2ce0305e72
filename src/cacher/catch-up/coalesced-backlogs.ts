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

/** Size and number of coalesced backlogs. */
export interface CoalescingStats {
  /** Backlogs and batches in delivery. One that several watchers share counts once. */
  readonly held: number;
  /** Objects with an entry in them. */
  readonly objects: number;
  /** Estimated, with the events that are kept beyond the event window until they are coalesced. */
  readonly bytes: number;
  /** Batches whose delivery began, counted once per watcher. */
  readonly delivered: number;
  /** Streams ended because all backlogs together exceeded their bound. */
  readonly ended: number;
}

/** The size of a backlog or batch, in bytes, and the watchers that share it. */
interface BacklogShare {
  readonly bytes: number;
  readonly holders: ReadonlySet<BacklogReader>;
}

/**
 * The backlogs of all unsynced LATEST_STATE watchers. Watchers with the same filter that stopped at the same event
 * node share one.
 *
 * A backlog has at most one entry per object that existed when it began or exists now. There are at most as many
 * backlogs as unsynced watchers, and a watcher that takes nothing ends after the stall timeout. That can still be many
 * times the size of the cache, so all backlogs together are bounded by `maxBytes`: above it, the watchers of the
 * largest backlog end with SLOW_CONSUMER.
 */
export class CoalescedBacklogs {
  readonly #deps: CoalescedBacklogDeps;
  /** By the sequence of the node that they begin after, then by the identity of their filter. */
  readonly #backlogs = new Map<number, Map<string, CoalescedBacklog>>();
  /** The watchers that each batch is being delivered to. */
  readonly #batches = new Map<CoalescedBatch, Set<BacklogReader>>();
  #delivered = 0;
  #ended = 0;

  constructor(deps: CoalescedBacklogsDeps) {
    this.#deps = { ...deps, onCoalesced: () => this.#limit() };
  }

  /** Returns the backlog of everything after `node`. The watcher has to release it. */
  hold(filter: Filter, node: EventNode, holder: BacklogReader): CoalescedBacklog {
    let byFilter = this.#backlogs.get(node.sequence);
    if (byFilter === undefined) {
      byFilter = new Map();
      this.#backlogs.set(node.sequence, byFilter);
    }
    let backlog = byFilter.get(filter.identity);
    if (backlog === undefined) {
      backlog = new CoalescedBacklog(filter, node, this.#deps);
      byFilter.set(filter.identity, backlog);
    }
    backlog.addHolder(holder);
    return backlog;
  }

  /** Counts the batch as held by the watcher, until `endDelivery`. */
  startDelivery(coalesced: CoalescedBatch, holder: BacklogReader): void {
    const holders = this.#batches.get(coalesced);
    if (holders === undefined) this.#batches.set(coalesced, new Set([holder]));
    else holders.add(holder);
    this.#delivered++;
  }

  endDelivery(coalesced: CoalescedBatch, holder: BacklogReader): void {
    const holders = this.#batches.get(coalesced);
    holders?.delete(holder);
    if (holders?.size === 0) this.#batches.delete(coalesced);
  }

  /** Drops backlogs that have no holder and are no longer shared, and enforces the bound. */
  expire(): void {
    this.#drop((backlog) => backlog.isStale);
    this.#limit();
  }

  /** Drops all backlogs: the cache has a new history, whose events do not follow theirs. */
  clear(): void {
    this.#backlogs.clear();
    this.#deps.turns.clear();
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
    for (const byFilter of this.#backlogs.values()) yield* byFilter.values();
  }

  get #bytes(): number {
    let bytes = 0;
    let retained = 0;
    for (const backlog of this.#all()) {
      bytes += backlog.bytes;
      retained = Math.max(retained, this.#retainedEventBytes(backlog));
    }
    for (const coalesced of this.#batches.keys()) bytes += coalesced.bytes;
    // The events beyond the window are shared: the backlog that is furthest behind keeps those of all others.
    return bytes + retained;
  }

  /** Size of the events that it keeps beyond the event window, in bytes. */
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
        `The backlogs of all LATEST_STATE streams exceeded ${maxBytes} bytes together, ` +
          `and that of this stream, ${largest.bytes} bytes, was the largest.`,
      );
      this.#ended += largest.holders.size;
      // A watcher releases its backlog when it ends.
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

  #drop(isUnneeded: (backlog: CoalescedBacklog) => boolean): void {
    for (const [after, byFilter] of this.#backlogs) {
      for (const [identity, backlog] of byFilter)
        if (isUnneeded(backlog)) byFilter.delete(identity);
      if (byFilter.size === 0) this.#backlogs.delete(after);
    }
  }
}
