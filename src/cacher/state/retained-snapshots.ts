import type { EventNode } from "./event-node.ts";
import type { WatchCache } from "./watch-cache.ts";

/** About what a change copies of the tree that a state and the one after it share, in bytes. */
const treeBytesPerEvent = 1_024;
/** About what a whole tree takes for each object, beside the object itself, in bytes. */
const treeBytesPerObject = 32;

/** How far history was when a state was the current one, and how large that was. */
export interface SnapshotMark {
  /** As of the newest node of history then. */
  readonly bytes: number;
  readonly sequence: number;
  /** What the whole state takes, in bytes: it never keeps more than that alive. */
  readonly stateBytes: number;
}

/** The mark of the current state or, with a node of history, of the state after that. */
export function markOf(
  cache: WatchCache,
  node: EventNode = cache.eventWindow.newest,
): SnapshotMark {
  const { bytes, sequence } = node;
  return { bytes, sequence, stateBytes: cache.objectBytes + cache.state.size * treeBytesPerObject };
}

/** A state that somebody keeps although it is no longer the current one. */
export interface RetainedSnapshot {
  readonly mark: SnapshotMark;
  /** Whether it is kept for who may come, and not for a stream that is amidst it. */
  readonly isIdle: boolean;
  /** All together take more than `maxBytes`: lets go of it, and deletes it here. */
  evict(maxBytes: number): void;
}

/** In bytes. */
export interface RetainedBounds {
  /** Above this, spare states are evicted. */
  readonly idleBytes: number;
  /** Above this, all are, whoever is amidst them. */
  readonly bytes: number;
}

/** What old states take. */
export interface RetainedStats {
  readonly snapshots: number;
  /** What they keep alive that the current state does not, at the most. */
  readonly bytes: number;
}

/**
 * One account of what all old states of a cache keep alive: those kept for pages to come, and those that streams
 * begin with. Each shares all with the current state but what has changed since, and with the next newer one all
 * but what changed between them. So what they keep is counted once, from each to the next, by the bytes of the
 * events in between; the oldest is evicted first, as none of the others shares what only it holds.
 */
export class RetainedSnapshots {
  readonly #cache: WatchCache;
  readonly #bounds: RetainedBounds;
  readonly #snapshots = new Set<RetainedSnapshot>();

  constructor(cache: WatchCache, bounds: RetainedBounds) {
    this.#cache = cache;
    this.#bounds = bounds;
  }

  add(state: RetainedSnapshot): void {
    this.#snapshots.add(state);
  }

  /** Harmless if it is not there. */
  delete(state: RetainedSnapshot): void {
    this.#snapshots.delete(state);
  }

  stats(): RetainedStats {
    const { states, bytes } = this.#account();
    return { snapshots: states.length, bytes };
  }

  /** Evicts what is too much. To be called now and then. */
  enforceLimits(): void {
    const { idleBytes } = this.#bounds;
    let account = this.#account();
    while (account.bytes > idleBytes) {
      const idle = account.states.find(({ isIdle }) => isIdle);
      if (idle === undefined) break;
      idle.evict(idleBytes);
      account = this.#account();
    }
    let { bytes } = account;
    for (const [i, state] of account.states.entries()) {
      if (bytes <= this.#bounds.bytes) return;
      bytes -= account.shares[i] ?? 0;
      state.evict(this.#bounds.bytes);
    }
  }

  /** The states, the oldest first, with what each of them keeps that the next newer one does not. */
  #account(): { states: RetainedSnapshot[]; shares: number[]; bytes: number } {
    const states = [...this.#snapshots].sort((a, b) => a.mark.sequence - b.mark.sequence);
    const now = this.#cache.eventWindow.newest;
    const shares = states.map(({ mark }, i) => {
      const next = states[i + 1]?.mark ?? now;
      const changed = next.bytes - mark.bytes + (next.sequence - mark.sequence) * treeBytesPerEvent;
      return Math.max(0, Math.min(changed, mark.stateBytes));
    });
    return { states, shares, bytes: shares.reduce((sum, share) => sum + share, 0) };
  }
}
