import type { Task, Turns } from "../../base/turns.ts";
import type { WatchBatch } from "../../model/event.ts";
import type { DispatchTarget, WatcherState } from "../dispatch/dispatch-target.ts";
import type { Dispatcher } from "../dispatch/dispatcher.ts";
import type { WatcherBounds } from "../dispatch/watcher-bounds.ts";
import type { Delivery } from "../request/request.ts";
import type { WatchCache } from "../state/watch-cache.ts";
import type { BacklogReader } from "./coalesced-backlog.ts";
import type { CoalescedBacklogs } from "./coalesced-backlogs.ts";

/** One read of a source: a batch, the end of the source, or both. */
export type SourceResult =
  | { readonly batch: WatchBatch; readonly isDone: boolean }
  | { readonly batch: undefined; readonly isDone: true };

/**
 * Where an unsynced watcher reads its next batch from: an initial state, the event window, or a coalesced backlog.
 * Sources form a chain: when one is done, the watcher reads its successor, and is live after the last.
 */
export interface WatchSource {
  /** The state of a watcher that reads this source. */
  readonly state: Exclude<WatcherState, "live" | "ended">;
  /**
   * When the oldest event that it has yet to deliver arrived, in the clock's milliseconds; undefined or absent: all are
   * delivered, or the time is not known.
   */
  readonly unreadSince?: number | undefined;
  /** The source to read when this one is done; undefined if the watcher is synced then. */
  readonly successor: WatchSource | undefined;
  /**
   * Reads on. Undefined if nothing is available yet, in which case the watcher is notified when to read again, or if
   * reading has ended the watcher.
   *
   * A source reads no further than the dispatcher's position, and is done only there: a watcher that joins is offered
   * all later events. It moves the resume point to the revision of the last node that it has read, if that is the last
   * of its revision, and at the position up to the dispatcher's revision; never back. A batch that leaves out older
   * events is atomic, since frames of others have a resume point each. A relist links the old window to the new one by
   * a node without an event; resume points before it are no longer accepted.
   */
  next(): SourceResult | undefined;
  /**
   * Frees or bounds what is kept for the watcher beyond the event window: coalesces it, or ends the watcher with
   * SLOW_CONSUMER if it is too much.
   */
  checkWindow(): void;
  /** Releases what the source holds, but not its successor. It is not read any more. Idempotent. */
  drop(): void;
}

/** What a watcher did before it reads a cursor: it was opened at a revision, took its initial state, or was live. */
export type CursorOrigin = "resumed" | "initial" | "live";

/** The watcher that reads a source. */
export interface SourceReader extends DispatchTarget, BacklogReader, Task {
  readonly state: WatcherState;
  readonly options: DispatchTarget["options"] & {
    readonly delivery: Delivery;
    readonly owner: object | undefined;
  };
}

/** The parts of the Cacher that sources use. */
export interface SourceContext {
  readonly bounds: WatcherBounds;
  readonly cache: WatchCache;
  readonly dispatcher: Dispatcher;
  readonly coalescedBacklogs: CoalescedBacklogs;
  /** Of all watchers that catch up. */
  readonly turns: Turns;
}

const done: SourceResult = { batch: undefined, isDone: true };

/** Stands in for a source that is not known yet: the cache has not reached the revision that it begins after. */
export class PendingSource implements WatchSource {
  #successor: WatchSource | undefined;

  get state(): WatchSource["state"] {
    return this.#successor?.state ?? "starting";
  }

  get successor(): WatchSource | undefined {
    return this.#successor;
  }

  /** Sets the source that is read in place of this one. The caller notifies the watcher. */
  resolve(source: WatchSource): void {
    this.#successor = source;
  }

  next(): SourceResult | undefined {
    return this.#successor === undefined ? undefined : done;
  }

  checkWindow(): void {}

  drop(): void {}
}
