import type { WatchBatch } from "../../model/event.ts";
import type { EventNode } from "../state/event-node.ts";
import type { Filter } from "../state/filter.ts";
import type { BufferBounds } from "./watcher-buffer.ts";

/** A watcher as the dispatcher sees it. */
export interface DispatchTarget {
  /** There may be something to read. */
  notify(): void;
  readonly filter: Filter;
  readonly options: { readonly eagerBookmarks: boolean };
  /** Resume point of the last batch that it accepted. */
  readonly position: number;
  /** Puts a batch into its buffer, or returns false if the buffer is full by `bounds`. */
  offer(batch: WatchBatch, bounds: BufferBounds): boolean;
  /** Its buffer was full, and it has left the dispatcher: it has to catch up from after `node`. */
  stall(node: EventNode): void;
  /** Buffers a bookmark. Returns false if it is unsynced, ahead of the bookmark, or full by `bounds`. */
  bookmark(bookmark: WatchBatch, bounds: BufferBounds): boolean;
  /** As `bookmark`. If that fails, gets one once it is live and its buffer has been read. */
  requestBookmark(bookmark: WatchBatch, bounds: BufferBounds): void;
}

/**
 * The state of a watcher.
 *
 * - `starting`: waits for the cache to reach the revision that it begins after. Next: initial, or catching up.
 * - `initial`: its client reads the initial state. Next: catching up, or starting.
 * - `catching up`: its client reads missed events, or the backlog of them. Next: live, at the dispatcher's position.
 * - `live`: synced. The dispatcher puts batches into its buffer. Next: stalled, when that is full, or at a relist with
 *   known changes.
 * - `stalled`: unsynced. Its client still reads the buffer, without the events after it. Next: catching up.
 * - `ended`: receives no more. Its client can still read the buffer.
 */
export type WatcherState = "starting" | "initial" | "catching up" | "live" | "stalled" | "ended";
