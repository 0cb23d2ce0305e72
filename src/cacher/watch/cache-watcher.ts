import type { WatchFanoutError } from "../../base/errors.ts";
import type { LatencySampler } from "../../base/latency-sampler.ts";
import { WatchBatch } from "../../model/event.ts";
import type { RoundReader, WatchScope, WatchStatus, WatchStream } from "../../storage/storage.ts";
import { cursorAfter } from "../catch-up/cursor.ts";
import type { SourceContext, SourceReader, WatchSource } from "../catch-up/watch-source.ts";
import type { WatcherState } from "../dispatch/dispatch-target.ts";
import { type BufferBounds, WatcherBuffer } from "../dispatch/watcher-buffer.ts";
import type { Delivery } from "../request/request.ts";
import type { EventNode } from "../state/event-node.ts";
import type { Filter } from "../state/filter.ts";

/** The parts of the Cacher that a watcher uses. */
export interface WatcherContext extends SourceContext {
  /** Gets each batch of events that a client reads from the buffer of its watcher. */
  readonly deliveryLatency: LatencySampler;
  /** Called once when a watcher has ended: with its error, or null if the client closed it. */
  forget(watcher: CacheWatcher, end: Error | null): void;
  /** Returns the error for the client of a stream that `error` ends: INTERNAL for a bug, which it logs. */
  toStreamError(error: unknown): WatchFanoutError;
}

/** What a watch requests besides its filter: see CacheWatchRequest. */
export interface WatcherOptions {
  readonly delivery: Delivery;
  readonly bookmarkIntervalMs: number;
  readonly deadline: number | undefined;
  readonly expiresAt: number | undefined;
  readonly eagerBookmarks: boolean;
  /** Whose time it catches up in; undefined: its own. */
  readonly owner: object | undefined;
}

/** One watcher as the last pass of the maintenance saw it. Times are by the clock, in milliseconds. */
export class MaintenanceRecord {
  /** Its resume point, and when that moved. */
  position = 0;
  movedAt: number;
  /** Its count of consumed batches, and when that grew or nothing was pending. */
  consumed = 0;
  consumedAt: number;
  /** Whether the bookmark before its deadline was sent. */
  isDeadlineBookmarked = false;

  constructor(openedAt: number) {
    this.movedAt = openedAt;
    this.consumedAt = openedAt;
  }
}

const noSelectors = { label: "", field: "" };

/**
 * One watch on a Cacher. Its client reads batches from a bounded buffer first, then from its current source.
 *
 * A watcher without a source is live: the dispatcher, which never waits, fills the buffer. When the buffer is full, the
 * watcher stalls: it gets a source that starts after the last buffered event, and is live again when the client has
 * read that to its end. So an idle live watcher holds only its buffer, and an unsynced one holds one event node or a
 * shared coalesced backlog.
 */
export class CacheWatcher implements WatchStream, WatchStatus, SourceReader {
  readonly filter: Filter;
  readonly options: WatcherOptions;
  /** For `WatcherMaintenance`. */
  readonly maintenance: MaintenanceRecord;
  readonly #context: WatcherContext;
  readonly #buffer = new WatcherBuffer();
  /** What is read when the buffer is empty; undefined while live, and after the end. */
  #source: WatchSource | undefined;
  /** Why it ended: null if the client closed it, undefined before the end. */
  #end: Error | null | undefined;
  #position = 0;
  #consumed = 0;
  #isBookmarkRequested = false;
  #onEnd: (() => void) | undefined;
  #listener: (() => void) | undefined;
  /** Whether the listener is called for the next batch: the client has read everything, or nothing yet. */
  #needsNotify = true;

  /** It is "starting" for as long as `source` is. `openedAt`: when it was requested, in the clock's milliseconds. */
  constructor(
    filter: Filter,
    options: WatcherOptions,
    context: WatcherContext,
    source: WatchSource,
    openedAt: number,
  ) {
    this.filter = filter;
    this.options = options;
    this.maintenance = new MaintenanceRecord(openedAt);
    this.#context = context;
    this.#source = source;
  }

  get state(): WatcherState {
    if (this.#end !== undefined) return "ended";
    return this.#source?.state ?? "live";
  }

  get #isLive(): boolean {
    return this.#source === undefined && this.#end === undefined;
  }

  /** Resume point of the last batch that was buffered or read; 0 before the first. */
  get position(): number {
    return this.#position;
  }

  /**
   * The revision up to which the client has read everything, whether or not there were events; undefined while it has
   * something to read, or is not live.
   */
  get syncedRevision(): number | undefined {
    if (!this.#isLive || this.#buffer.length > 0) return undefined;
    return Math.max(this.#position, this.#context.dispatcher.settledRevision);
  }

  /** Increases with each batch that the client reads or accepts. */
  get consumed(): number {
    return this.#consumed;
  }

  /** Size of the buffer: in batches, and in estimated bytes. */
  get buffer(): Pick<WatcherBuffer, "length" | "bytes"> {
    return this.#buffer;
  }

  get status(): WatchStatus {
    return this;
  }

  get scope(): WatchScope {
    return this.filter.scope;
  }

  get selectors(): WatchStatus["selectors"] {
    return this.filter.selection?.texts ?? noSelectors;
  }

  get lagRevisions(): number | undefined {
    const reached = this.syncedRevision ?? this.#position;
    if (reached === 0) return undefined;
    return Math.max(0, this.#context.cache.revision - reached);
  }

  get bufferFill(): number {
    const bounds = this.#context.dispatcher.bufferBounds(this);
    const fill = Math.max(this.#buffer.length / bounds.batches, this.#buffer.bytes / bounds.bytes);
    // It exceeds its bounds if these have shrunk, or if it holds a single large batch.
    return Math.min(1, fill);
  }

  get unreadSince(): number | undefined {
    return this.#buffer.arrivedAt ?? this.#source?.unreadSince;
  }

  /** Memory of the batches that wait to be read, in bytes, estimated. */
  get heldBytes(): number {
    return this.#buffer.bytes;
  }

  /** The error that it ended with, or null if the client closed it. Undefined until the buffer has been read. */
  get ended(): Error | null | undefined {
    return this.#buffer.length > 0 ? undefined : this.#end;
  }

  /** Whether the client could read something now. */
  get hasPending(): boolean {
    if (this.#buffer.length > 0) return true;
    if (this.#needsNotify && this.#consumed > 0) return false;
    return this.#source !== undefined && this.#source.state !== "starting";
  }

  onReadable(listener: () => void): void {
    this.#listener = listener;
  }

  readAfterOffers(reader: RoundReader): void {
    this.#context.dispatcher.readAfterOffers(reader);
  }

  read(): WatchBatch | undefined {
    this.#needsNotify = false;
    const batch = this.#buffer.take() ?? this.#readSource();
    if (batch === undefined) {
      this.#needsNotify = true;
      return undefined;
    }
    this.#consumed++;
    const { arrivedAt } = batch;
    if (arrivedAt !== undefined) this.#context.deliveryLatency.reached(arrivedAt);
    return batch;
  }

  accepted(): void {
    this.#consumed++;
  }

  close(): void {
    this.#finish(null);
    this.#buffer.clear();
    this.#notify();
  }

  /** Ends the stream with `error` after the client has read the buffer; with INTERNAL if `error` is a bug. */
  fail(error: unknown): void {
    if (this.#end !== undefined) return;
    this.#finish(this.#context.toStreamError(error));
    this.#notify();
  }

  /** As `fail`, but the client learns of it only when the caller notifies it. */
  endSilently(error: WatchFanoutError): void {
    this.#finish(error);
  }

  /**
   * Ends the stream with `error` and discards the buffer. Notifies the client in any case: it may be blocked on the last
   * batch that it read, and has to learn that no more will come.
   */
  endAndDiscard(error: WatchFanoutError): void {
    this.#buffer.clear();
    this.#needsNotify = true;
    this.#finish(error);
    this.#notify();
  }

  /** Buffers `batch`, the first response of a watch, ahead of its source. */
  open(batch: WatchBatch): void {
    if (this.#end === undefined) this.#put(batch);
  }

  /** Calls `listener` when the stream ends, after earlier listeners; at once if it has ended. */
  whenEnded(listener: () => void): void {
    const before = this.#onEnd;
    this.#onEnd = () => {
      before?.();
      listener();
    };
    if (this.#end !== undefined) listener();
  }

  /** The source may have more: a chunk of the initial state, or events of a dispatch round. */
  notify(): void {
    this.#notify();
  }

  /** Its turn to catch up. The client reads, and the source asks for the next turn. */
  step(): boolean {
    this.#notify();
    return false;
  }

  /** Buffers a batch. Returns false if the watcher is not live or the buffer is full by `bounds`. */
  offer(batch: WatchBatch, bounds: BufferBounds): boolean {
    // The client may have closed it when it was notified of the batch before.
    if (!this.#isLive || !this.#buffer.hasRoom(batch, bounds)) return false;
    this.#put(batch);
    return true;
  }

  /** The dispatcher stops offering: the client catches up from after `node` when it has read the buffer. */
  stall(node: EventNode): void {
    if (this.#isLive) this.#source = cursorAfter(node, this, this.#context, "live");
  }

  /**
   * Moves the resume point to that of `bookmark`, in place of a bookmark that is last in the buffer. Returns false if
   * the watcher is not live, is ahead of it, or has a full buffer. The source of an unsynced watcher moves its resume
   * point.
   */
  bookmark(bookmark: WatchBatch, bounds: BufferBounds): boolean {
    const { revision } = bookmark;
    if (!this.#isLive || revision === undefined || revision < this.#position) return false;
    if (!this.#buffer.replaceBookmark(bookmark)) return this.offer(bookmark, bounds);
    this.#position = revision;
    return true;
  }

  /** As `bookmark`. If that fails, gets one once it is live and its buffer has been read. */
  requestBookmark(bookmark: WatchBatch, bounds: BufferBounds): void {
    if (!this.bookmark(bookmark, bounds)) this.#isBookmarkRequested = true;
  }

  /** Bounds what its sources keep beyond the event window: see `WatchSource`. */
  checkWindow(): void {
    for (let source = this.#source; source !== undefined; source = source.successor) {
      source.checkWindow();
    }
  }

  /** The next batch of the current source or of its successors; goes live after the last. */
  #readSource(): WatchBatch | undefined {
    if (this.#end !== undefined) return undefined;
    for (let source = this.#source; source !== undefined; source = this.#source) {
      const result = source.next();
      if (result === undefined) return undefined;
      if (result.isDone) {
        source.drop();
        this.#source = source.successor;
        if (this.#source === undefined) return this.#goLive(result.batch);
      }
      if (result.batch !== undefined) return this.#deliver(result.batch);
    }
    return this.#lateBookmark();
  }

  /** Joins the dispatcher, with `batch` as the last one of its sources. */
  #goLive(batch: WatchBatch | undefined): WatchBatch | undefined {
    this.#context.dispatcher.join(this);
    const last = batch ?? this.#joinBookmark();
    if (last !== undefined) this.#deliver(last);
    // The last batch may be of a coalesced backlog that was finished a moment ago, and be behind the dispatcher.
    const isOlder = this.#position < this.#context.dispatcher.revision;
    this.#isBookmarkRequested =
      isOlder && (this.#isBookmarkRequested || this.options.eagerBookmarks);
    return last;
  }

  /** The dispatcher's position as a bookmark, if one was requested or is new to a watcher with eager bookmarks. */
  #joinBookmark(): WatchBatch | undefined {
    const { revision } = this.#context.dispatcher;
    const isNew = this.options.eagerBookmarks && revision > this.#position;
    const isRequested = this.#isBookmarkRequested && revision >= this.#position;
    return isNew || isRequested ? new WatchBatch(revision, []) : undefined;
  }

  /** The requested bookmark that the buffer had no room for. */
  #lateBookmark(): WatchBatch | undefined {
    if (!this.#isBookmarkRequested) return undefined;
    const { bookmark, settledRevision } = this.#context.dispatcher;
    this.#isBookmarkRequested = false;
    return settledRevision < this.#position ? undefined : this.#deliver(bookmark);
  }

  #put(batch: WatchBatch): void {
    this.#buffer.put(this.#deliver(batch));
    this.#notify();
  }

  /** Moves the resume point to that of the batch. */
  #deliver(batch: WatchBatch): WatchBatch {
    if (batch.revision !== undefined) this.#position = batch.revision;
    return batch;
  }

  #finish(end: Error | null): void {
    if (this.#end !== undefined) return;
    this.#end = end;
    for (let source = this.#source; source !== undefined; source = source.successor) source.drop();
    this.#source = undefined;
    this.#context.forget(this, end);
    this.#onEnd?.();
  }

  #notify(): void {
    if (!this.#needsNotify || this.#listener === undefined) return;
    this.#needsNotify = false;
    try {
      this.#listener();
    } catch (error) {
      // A fault of one reader must not reach the dispatcher and thereby all others.
      this.#buffer.clear();
      this.#finish(this.#context.toStreamError(error));
    }
  }
}
