import type { WatchBatch, WatchEvent } from "../model/event.ts";
import type { StoredObject } from "../model/object.ts";

/** What a cache of one resource was when it was last written to disk: equal to its storage at one revision. */
export interface KeptState {
  /** The history that the revision belongs to; empty: it was not known. */
  readonly historyId: string;
  readonly revision: number;
  /** In key order. */
  readonly objects: readonly StoredObject[];
  /** The newest events up to `revision`, in order, with `previous`: what streams may resume from. */
  readonly events: readonly WatchEvent[];
  /** All events after this revision are there. */
  readonly eventsAfter: number;
  /** When it was last known to be equal to the storage, in milliseconds since the epoch. */
  readonly syncedAt: number;
}

/**
 * Keeps the state of one cache on disk. What is on disk is always one state that the cache had, though perhaps not the last one.
 * Its methods never throw and never wait: a disk that is slow, full or broken leaves an older state behind, or none, and one line
 * in the log.
 */
export interface StateKeeper {
  /**
   * Reads what is kept; undefined: nothing, or nothing that can be used. Called once, before everything else. Rejects only
   * with the signal's reason.
   *
   * `current` returns the objects of the cache as they are at the time of the call, in key order; what it returns must not
   * change with the cache. It is called after an `append` or a `load`, to write the whole state again. Without it the keeper
   * reads its own files for that, which takes the memory of the whole state for that time.
   */
  load(signal: AbortSignal, current?: () => Iterable<StoredObject>): Promise<KeptState | undefined>;
  /** The cache has listed its storage. `objects`: in key order, immutable. */
  replace(state: ReplacedState): void;
  /**
   * The cache has applied a batch that follows on what `load` returned or `replace` got; also one without events. Its events
   * have `previous`, or there are no `events` to be kept.
   */
  append(batch: WatchBatch): void;
  /** The history is known by this id from now on. */
  identify(historyId: string): void;
  /** The cache is not what its storage is any more: nothing is kept until the next `replace`. */
  invalidate(): void;
  /** Number of times that the state could not be read or written. Default: not known. */
  readonly failures?: number;
  /** Writes what it has, for up to some seconds. Idempotent. */
  close(): Promise<void>;
}

export interface ReplacedState {
  readonly historyId: string;
  readonly revision: number;
  readonly objects: readonly StoredObject[];
}
