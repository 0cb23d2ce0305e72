import type { BackoffBounds } from "../base/backoff.ts";
import type { Clock } from "../base/clock.ts";
import type { WatchFanoutError } from "../base/errors.ts";
import type { Logger } from "../base/logger.ts";
import type { KeptState } from "../cache-files/kept-state.ts";
import type { WatchBatch } from "../model/event.ts";
import type { StoredObject } from "../model/object.ts";
import type { Scope, Storage } from "../storage/storage.ts";

/** The whole state at one revision, as a Reflector delivers it. */
export interface ListedState {
  /** In key order. */
  readonly objects: readonly StoredObject[];
  readonly revision: number;
  /** The id of the history that the revision belongs to; empty if it can't be read. */
  readonly historyId: string;
  /** The store's own revision when the list began. Above `revision` if later events follow. */
  readonly current: number;
  /** Where the state comes from if it was not listed: it was kept when an earlier process ended. */
  readonly kept?: KeptState | undefined;
}

/**
 * Why a Reflector delivers the whole state: it is the first list; the events after the resume point are lost to
 * compaction; or the store's history has changed.
 */
export type ReplaceCause = "start" | "history lost" | "history changed";

/** What a Reflector writes into. */
export interface ReflectorTarget {
  /**
   * Whether a state that was listed after the cause "history lost" contradicts the target's state, so that it belongs
   * to another history. Default: false.
   */
  conflictsWith?(state: Pick<ListedState, "objects" | "revision">): boolean;
  /** Whether the state has an object with this key. Absent: that can't be asked. */
  has?(key: string): boolean;
  /**
   * Does the slow part of processing listed objects before `replace`, which is synchronous. Rejects with the signal's
   * reason when it is aborted.
   */
  prepare?(objects: readonly StoredObject[], signal: AbortSignal): Promise<void>;
  replace(state: ListedState, cause: ReplaceCause): void;
  /** The target's state belongs to a history that the store no longer has. `replace` follows after the next list. */
  invalidate?(): void;
  /** The id of the target's history has become known. */
  identify?(historyId: string): void;
  /** Whole revisions that follow the delivered ones, without gap or repetition. */
  apply(batch: WatchBatch): void;
}

/** What failed, and what the Reflector does next. */
export interface ReflectorFailure {
  readonly error: WatchFanoutError;
  /** The next step: resume the watch after the last delivered revision, or list the whole state again. */
  readonly next: "resume" | "list";
  /** Pause before the next step, in milliseconds. */
  readonly pauseMs: number;
  /** The resume point of the watch; undefined if a list failed. */
  readonly revision: number | undefined;
}

export interface ReflectorOptions {
  readonly storage: Storage;
  readonly target: ReflectorTarget;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Returns numbers from 0 up to 1. Default: Math.random. */
  readonly random?: (() => number) | undefined;
  /** Keys to reflect. Default: all. */
  readonly scope?: Scope | undefined;
  /**
   * Objects per page of a list; 0: no limit. Default: no limit, since a storage reads ahead within a page, and not from
   * one to the next; 50,000 with `maxBytes`, which is checked after each page.
   */
  readonly pageSize?: number | undefined;
  /**
   * Maximum size of a list in bytes: estimated bytes and memory overhead of its objects. A larger list fails with
   * INVALID_REQUEST and is retried. Default: no limit.
   */
  readonly maxBytes?: number | undefined;
  /**
   * Loads the target's state that an earlier process has kept, before the first list; resolves to undefined if nothing is
   * kept. Rejects only with the signal's reason. Default: nothing is kept.
   */
  readonly loadKept?: ((signal: AbortSignal) => Promise<KeptState | undefined>) | undefined;
  /**
   * Whether the first list may be of what another server has cached, if that can't reach its own source: for targets that say
   * how old their state is. Default false: then the first list waits.
   */
  readonly startsFromCached?: boolean | undefined;
  readonly backoff?: BackoffBounds | undefined;
  /** Called on each failure, once the next step is decided. If it throws, `run` rejects with that error. */
  readonly onFailure?: ((failure: ReflectorFailure) => void) | undefined;
  /** Called after the first delivery that follows failures. If it throws, `run` rejects with that error. */
  readonly onRecovered?: (() => void) | undefined;
}
