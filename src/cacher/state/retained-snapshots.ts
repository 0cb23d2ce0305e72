import type { EventNode } from "./event-node.ts";
import type { WatchCache } from "./watch-cache.ts";

/** Estimated size of the tree path that a change copies, in bytes. */
const treeBytesPerEvent = 1_024;
/** Estimated size of a whole tree per object, without the object itself, in bytes. */
const treeBytesPerObject = 32;

/** Position in the event window at which a snapshot was the current state, and the size of that state. */
export interface SnapshotMark {
  /** Of the newest node at that time: see EventNode. */
  readonly bytes: number;
  readonly sequence: number;
  /** Memory of the whole state, in bytes: a snapshot never keeps more than that alive. */
  readonly stateBytes: number;
}

/** Returns the mark of the state after `node`. Default: of the current state. */
export function markOf(
  cache: WatchCache,
  node: EventNode = cache.eventWindow.newest,
): SnapshotMark {
  const { bytes, sequence } = node;
  return { bytes, sequence, stateBytes: cache.objectBytes + cache.state.size * treeBytesPerObject };
}

/** A snapshot that is held after the state has changed. */
export interface RetainedSnapshot {
  readonly mark: SnapshotMark;
  /** Whether it is held for future requests only, and not for a stream that is reading it. */
  readonly isIdle: boolean;
  /** Releases the snapshot, and deletes it here: all snapshots together exceed `maxBytes` bytes. */
  evict(maxBytes: number): void;
}

/** Bounds of the memory that snapshots keep alive, in bytes. */
export interface RetainedBounds {
  /** Above this, idle snapshots are evicted. */
  readonly idleBytes: number;
  /** Above this, all snapshots are evicted, also those that streams are reading. */
  readonly bytes: number;
}

/** Number and size of the retained snapshots. */
export interface RetainedStats {
  readonly snapshots: number;
  /** Maximum memory that they keep alive beyond the current state, in bytes. */
  readonly bytes: number;
}

/**
 * Accounts for the memory that all snapshots of a cache keep alive: those retained for future pages, and those that
 * initial states are read from. A snapshot shares all objects with the next newer one but those that changed between
 * them. So each snapshot counts for the bytes of the events between it and the next newer one; the oldest is evicted
 * first, since no other shares the objects that only it holds.
 */
export class RetainedSnapshots {
  readonly #cache: WatchCache;
  readonly #bounds: RetainedBounds;
  readonly #snapshots = new Set<RetainedSnapshot>();

  constructor(cache: WatchCache, bounds: RetainedBounds) {
    this.#cache = cache;
    this.#bounds = bounds;
  }

  add(snapshot: RetainedSnapshot): void {
    this.#snapshots.add(snapshot);
  }

  /** Idempotent. */
  delete(snapshot: RetainedSnapshot): void {
    this.#snapshots.delete(snapshot);
  }

  stats(): RetainedStats {
    const { snapshots, bytes } = this.#account();
    return { snapshots: snapshots.length, bytes };
  }

  /** Evicts snapshots above the bounds. The watcher maintenance calls it periodically. */
  enforceLimits(): void {
    const { idleBytes } = this.#bounds;
    let account = this.#account();
    while (account.bytes > idleBytes) {
      const idle = account.snapshots.find(({ isIdle }) => isIdle);
      if (idle === undefined) break;
      idle.evict(idleBytes);
      account = this.#account();
    }
    let { bytes } = account;
    for (const [i, snapshot] of account.snapshots.entries()) {
      if (bytes <= this.#bounds.bytes) return;
      bytes -= account.shares[i] ?? 0;
      snapshot.evict(this.#bounds.bytes);
    }
  }

  /** The snapshots, the oldest first, with the bytes that each keeps alive beyond the next newer one. */
  #account(): { snapshots: RetainedSnapshot[]; shares: number[]; bytes: number } {
    const snapshots = [...this.#snapshots].sort((a, b) => a.mark.sequence - b.mark.sequence);
    const now = this.#cache.eventWindow.newest;
    const shares = snapshots.map(({ mark }, i) => {
      const next = snapshots[i + 1]?.mark ?? now;
      const changed = next.bytes - mark.bytes + (next.sequence - mark.sequence) * treeBytesPerEvent;
      return Math.max(0, Math.min(changed, mark.stateBytes));
    });
    return { snapshots, shares, bytes: shares.reduce((sum, share) => sum + share, 0) };
  }
}
