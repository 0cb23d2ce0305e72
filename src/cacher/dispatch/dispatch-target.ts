import type { Notifiable } from "../../base/time-slice-queue.ts";
import type { WatchBatch } from "../../model/event.ts";
import type { EventNode } from "../state/event-node.ts";
import type { Filter } from "../state/filter.ts";
import type { BufferBounds } from "./buffer-sizing.ts";

/** What the dispatcher needs of a live watcher. */
export interface DispatchTarget extends Notifiable {
  readonly filter: Filter;
  readonly options: { readonly eagerBookmarks: boolean };
  /** The resume point of the last batch that was accepted. */
  readonly position: number;
  /** Puts a batch into its buffer, or returns false if the buffer is full by `bounds`. */
  offer(batch: WatchBatch, bounds: BufferBounds): boolean;
  /** Its buffer was full: it has to catch up from `node`. */
  stall(node: EventNode): void;
  /** Sends a bookmark. Returns false if it is unsynced, ahead of the bookmark, or full by `bounds`. */
  bookmark(bookmark: WatchBatch, bounds: BufferBounds): boolean;
  /** Sends a bookmark as soon as the buffer has room, by `bounds` if that is now. */
  requestBookmark(bookmark: WatchBatch, bounds: BufferBounds): void;
}
