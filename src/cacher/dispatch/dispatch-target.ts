import type { Notifiable } from "../../base/time-slice-queue.ts";
import type { WatchBatch } from "../../model/event.ts";
import type { EventNode } from "../state/event-node.ts";
import type { Filter } from "../state/filter.ts";

/** What the dispatcher needs of a live watcher. */
export interface DispatchTarget extends Notifiable {
  readonly filter: Filter;
  readonly options: { readonly eagerBookmarks: boolean };
  /** The resume point of the last batch that was accepted. */
  readonly position: number;
  /** The round in which it became live, whose events it has. Kept by the dispatcher. */
  joinedRound: number;
  /** Whether it is found by key or field value. Kept by the dispatcher. */
  isIndexed: boolean;
  /** Takes a batch, or returns false if its buffer is full. */
  offer(batch: WatchBatch): boolean;
  /** Its buffer was full: it has to catch up from `node`. */
  stall(node: EventNode): void;
  /** Sends a bookmark as soon as the buffer has room. */
  requestBookmark(bookmark: WatchBatch): void;
}
