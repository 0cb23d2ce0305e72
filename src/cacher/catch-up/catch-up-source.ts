import type { TimeSliceQueue } from "../../base/time-slice-queue.ts";
import type { WatchBatch } from "../../model/event.ts";
import type { DispatchTarget } from "../dispatch/dispatch-target.ts";
import type { Dispatcher } from "../dispatch/dispatcher.ts";
import type { WatcherBounds } from "../dispatch/watcher-bounds.ts";
import type { WatcherState } from "../dispatch/watcher-state.ts";
import type { EventWindow } from "../state/event-window.ts";
import type { BacklogReader } from "./coalesced-backlog.ts";
import type { CoalescedBacklogs } from "./coalesced-backlogs.ts";

/** What a watcher takes of what it is behind with. */
export interface CatchUpResult {
  /** The next batch; undefined if there is none. */
  readonly batch: WatchBatch | undefined;
  /** Whether it has now had everything up to where the dispatcher is, and may become live. */
  readonly isSynced: boolean;
}

/** What a watcher that is not live has not been sent yet, and how it comes by that. */
export interface CatchUpSource {
  /** What comes next; undefined if that takes a while: then the watcher is poked when it is there. */
  next(): CatchUpResult | undefined;
  /**
   * Looks whether more is kept for it than may be. If so it either ends the watcher or has it folded, so that
   * less is.
   */
  checkWindow(): void;
  /** It is no longer needed. Harmless when called twice. */
  drop(): void;
}

/** What a catch-up source needs of its watcher. */
export interface CatchUpReader extends DispatchTarget, BacklogReader {
  readonly state: WatcherState;
}

/** What a catch-up source needs of the Cacher. */
export interface CatchUpContext {
  readonly bounds: WatcherBounds;
  readonly dispatcher: Dispatcher;
  readonly eventWindow: EventWindow;
  readonly coalescedBacklogs: CoalescedBacklogs;
  /** Shared by everyone who catches up. */
  readonly timeSlices: TimeSliceQueue;
}
