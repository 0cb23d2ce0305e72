import type { WatchFanoutError } from "../../base/errors.ts";
import { WatchBatch } from "../../model/event.ts";
import type { WatchStream } from "../../storage/storage.ts";
import type { CatchUpReader, CatchUpSource } from "../catch-up/catch-up-source.ts";
import { CoalescedCursor } from "../catch-up/coalesced-cursor.ts";
import { EventWindowCursor } from "../catch-up/event-window-cursor.ts";
import type { InitialState } from "../catch-up/initial-state.ts";
import type { BufferBounds } from "../dispatch/buffer-sizing.ts";
import { WatcherBuffer } from "../dispatch/watcher-buffer.ts";
import type { WatcherState } from "../dispatch/watcher-state.ts";
import type { EventNode } from "../state/event-node.ts";
import type { Filter } from "../state/filter.ts";
import type { WatcherContext, WatcherOptions } from "./watcher-context.ts";

/**
 * One watch on a Cacher: a bounded input between the dispatcher, which never waits, and a reader, who
 * may take as long as history lasts.
 *
 * While it is live it holds nothing but its input. When it is behind it holds one node of history or, of
 * LATEST_STATE, the fold of what came after one, from which it goes on at its reader's pace.
 */
export class CacheWatcher implements WatchStream, CatchUpReader {
  readonly filter: Filter;
  readonly options: WatcherOptions;
  readonly #context: WatcherContext<CacheWatcher>;
  #state: WatcherState = "starting";
  readonly #buffer = new WatcherBuffer();
  #initial: InitialState | undefined;
  /** While not live: what has still to be dealt with. */
  #source: CatchUpSource | undefined;
  /** Whether history is kept for it beyond the window, as it has not been level since it began. */
  #retainsEvents = false;
  #bookmarkWanted = false;
  #onEnd: (() => void) | undefined;
  #end: Error | null | undefined;
  #listener: (() => void) | undefined;
  /** Whether the reader has found nothing, or not looked yet, and is to be told of something new. */
  #needsNotify = true;

  /** The resume point of the last batch that was put in or handed out; 0 before the first. */
  position = 0;
  /** Grows with what the reader takes and passes on. */
  consumed = 0;

  constructor(filter: Filter, options: WatcherOptions, context: WatcherContext<CacheWatcher>) {
    this.filter = filter;
    this.options = options;
    this.#context = context;
  }

  get state(): WatcherState {
    return this.#state;
  }

  /** How much waits for its reader: in batches, and in bytes by weight. */
  get buffer(): Pick<WatcherBuffer, "length" | "bytes"> {
    return this.#buffer;
  }

  get ended(): Error | null | undefined {
    return this.#buffer.length > 0 ? undefined : this.#end;
  }

  /** Whether its reader could take something. */
  get hasPending(): boolean {
    if (this.#buffer.length > 0) return true;
    if (this.#needsNotify && this.consumed > 0) return false;
    return this.#state === "initial" || this.#state === "catching up" || this.#state === "stalled";
  }

  onReadable(listener: () => void): void {
    this.#listener = listener;
  }

  read(): WatchBatch | undefined {
    this.#needsNotify = false;
    const batch = this.#buffer.take() ?? this.#nextBatch();
    if (batch === undefined) this.#needsNotify = true;
    else this.consumed++;
    return batch;
  }

  accepted(): void {
    this.consumed++;
  }

  close(): void {
    this.#finish(null);
    this.#buffer.clear();
    this.#notify();
  }

  /** Ends the stream with `error` once the reader has taken what is in the input. */
  fail(error: WatchFanoutError): void {
    if (this.#state === "ended") return;
    this.#finish(error);
    this.#notify();
  }

  /** As `fail`, but for its reader, who hears of it when it is poked. */
  endSilently(error: WatchFanoutError): void {
    this.#finish(error);
  }

  /**
   * Ends the stream with `error` and drops what the reader has not taken. Tells the reader in any case:
   * it may be stuck with what it took last, and has to know that there will be no more.
   */
  endAndDiscard(error: WatchFanoutError): void {
    this.#buffer.clear();
    this.#needsNotify = true;
    this.#finish(error);
    this.#notify();
  }

  /** Puts `batch` in front of all else: the answer that a watch begins with. */
  open(batch: WatchBatch): void {
    if (this.#state !== "ended") this.#put(batch);
  }

  /** Begins with the state. What comes after it is set by `follow`, before or after it is complete. */
  beginInitialState(initial: InitialState): void {
    if (this.#state === "ended") return;
    this.#initial = initial;
    this.#retainsEvents = true;
    this.#state = "initial";
    this.#notify();
  }

  /** Goes on after `node`, everything up to which the reader has or did not ask for. */
  resumeAfter(node: EventNode): void {
    if (this.#state === "ended") return;
    this.#catchUpFrom(node);
    if (this.#initial !== undefined) return;
    this.#state = "catching up";
    this.#notify();
  }

  /** Has `listener` called when the stream ends, after those before it; at once if it has. */
  whenEnded(listener: () => void): void {
    const before = this.#onEnd;
    this.#onEnd = () => {
      before?.();
      listener();
    };
    if (this.#state === "ended") listener();
  }

  /** Is called when there may be more to take: a page of the state, a round of the dispatcher. */
  notify(): void {
    this.#notify();
  }

  /** Takes a batch, unless the input is full. Only when live. */
  offer(batch: WatchBatch, bounds: BufferBounds): boolean {
    // Its reader may have closed it when it was told of the batch before.
    if (this.#state !== "live") return false;
    if (!this.#buffer.hasRoom(batch, bounds)) return false;
    this.#put(batch);
    return true;
  }

  /** The input was full, or there is more to it than a batch: what comes after `node` is to be fetched. */
  stall(node: EventNode): void {
    if (this.#state !== "live") return;
    this.#state = "stalled";
    this.#catchUpFrom(node);
  }

  /**
   * Moves the resume point to that of `bookmark`. Only what is live and has room gets one: whoever is
   * behind will have its resume point moved by what it is behind with.
   */
  bookmark(bookmark: WatchBatch, bounds: BufferBounds): boolean {
    const { revision } = bookmark;
    if (this.#state !== "live" || revision === undefined || revision < this.position) return false;
    if (!this.#buffer.replaceBookmark(bookmark)) return this.offer(bookmark, bounds);
    this.position = revision;
    return true;
  }

  /** As `bookmark`; where the watcher is behind or its input full, once it no longer is. */
  requestBookmark(bookmark: WatchBatch, bounds: BufferBounds): void {
    if (!this.bookmark(bookmark, bounds)) this.#bookmarkWanted = true;
  }

  /**
   * Ends the stream if it is further behind than is kept for it. One of LATEST_STATE is not ended: what it has
   * missed is folded, so that history can let go of it.
   */
  checkWindow(): void {
    this.#source?.checkWindow();
  }

  #nextBatch(): WatchBatch | undefined {
    if (this.#initial !== undefined && this.#state === "initial") {
      const batch = this.#initial.next();
      if (batch?.initialEventsEnd === true) {
        this.#initial = undefined;
        this.#state = this.#source === undefined ? "starting" : "catching up";
      }
      if (batch?.revision !== undefined) this.position = batch.revision;
      return batch;
    }
    if (this.#state === "stalled") this.#state = "catching up";
    if (this.#state === "live") return this.#lateBookmark();
    return this.#state === "catching up" ? this.#catchUp() : undefined;
  }

  /** The bookmark that the input had no room for. */
  #lateBookmark(): WatchBatch | undefined {
    if (!this.#bookmarkWanted) return undefined;
    const { bookmark, settledRevision } = this.#context.dispatcher;
    this.#bookmarkWanted = false;
    if (settledRevision < this.position) return undefined;
    this.position = settledRevision;
    return bookmark;
  }

  /** The next batch of what it is behind with; becomes live where there is no more. */
  #catchUp(): WatchBatch | undefined {
    const consumed = this.#source?.next();
    if (consumed === undefined) return undefined;
    if (consumed.isSynced) this.#join();
    const batch = consumed.batch ?? (consumed.isSynced ? this.#joinBookmark() : undefined);
    if (batch?.revision !== undefined) this.position = batch.revision;
    if (consumed.isSynced) this.#checkJoinBookmark();
    return batch;
  }

  /** How far it has come by becoming live, if it wants to know. */
  #joinBookmark(): WatchBatch | undefined {
    const { revision } = this.#context.dispatcher;
    const news = this.options.eagerBookmarks && revision > this.position;
    const wanted = this.#bookmarkWanted && revision >= this.position;
    return news || wanted ? new WatchBatch(revision, []) : undefined;
  }

  /** What it has been told on becoming live may be of a moment ago. */
  #checkJoinBookmark(): void {
    const isUnsynced = this.position < this.#context.dispatcher.revision;
    this.#bookmarkWanted = isUnsynced && (this.#bookmarkWanted || this.options.eagerBookmarks);
  }

  #join(): void {
    this.#state = "live";
    this.#source?.drop();
    this.#source = undefined;
    this.#retainsEvents = false;
    this.#context.dispatcher.join(this);
  }

  /** Has to deal with what comes after `node` by itself. */
  #catchUpFrom(node: EventNode): void {
    this.#source =
      this.options.delivery === "LATEST_STATE"
        ? new CoalescedCursor(this, this.#context, node)
        : new EventWindowCursor(this, this.#context, node, this.#retainsEvents);
  }

  #put(batch: WatchBatch): void {
    this.#buffer.put(batch);
    if (batch.revision !== undefined) this.position = batch.revision;
    this.#notify();
  }

  #finish(end: Error | null): void {
    if (this.#state === "ended") return;
    this.#state = "ended";
    this.#end = end;
    this.#source?.drop();
    this.#source = undefined;
    this.#initial?.drop?.();
    this.#initial = undefined;
    this.#context.forget(this, end);
    this.#onEnd?.();
  }

  #notify(): void {
    if (!this.#needsNotify || this.#listener === undefined) return;
    this.#needsNotify = false;
    try {
      this.#listener();
    } catch (error) {
      // The fault of one reader must not reach the dispatcher, and with it all the others.
      this.#buffer.clear();
      this.#finish(this.#context.listenerFailed(error));
    }
  }
}
