import { hasReason, revisionTooOld, type WatchFanoutError } from "../../base/errors.ts";
import { WatchBatch, WatchEvent } from "../../model/event.ts";
import type { WatchScope, WatchStream } from "../../storage/storage.ts";
import type { ComponentContext } from "../state/component.ts";
import { EventNode } from "../state/event-node.ts";
import { cursorAfter } from "./cursor.ts";
import { costPerClockCheck } from "./event-window-cursor.ts";
import type { SourceContext, SourceReader, SourceResult, WatchSource } from "./watch-source.ts";

/** Maximum size of the batches of one read that wait for their client, in bytes; one batch may exceed it. */
const maxHeldBytes = 2 * 1024 * 1024;

interface DeepReadDeps {
  readonly component: Pick<ComponentContext, "source" | "cache">;
  readonly sources: SourceContext;
  readonly scope: WatchScope;
  /** The watch has everything up to this revision. */
  readonly after: number;
  /** Resolves to REVISION_TOO_OLD if no read may begin after this revision; undefined: the store decides. */
  readonly refuse: (after: number) => Promise<WatchFanoutError> | undefined;
  /** Rejects if the store's history is, or may be, another one than the cache's. */
  readonly confirmHistory: (signal: AbortSignal) => Promise<void>;
  /** Ends the watcher with an error. */
  readonly fail: (error: unknown) => void;
  /** Called once it is over. Idempotent. */
  readonly release: () => void;
}

/**
 * Catches up a watcher from before the event window: reads what it asks for from the store, with a watch of the store, and
 * continues from the window.
 *
 * It reads at the client's pace, up to the middle of the window, so that a client which takes as much as is written does not
 * find that the window has dropped its next event. If it has nevertheless, the store is read from there up to the middle of
 * the window of that time.
 *
 * It gets what the window would have given: both have the store's events with the object before each, and the same filter.
 * No batch is delivered before it is confirmed that the store has the cache's history, as it may have been restored.
 */
export class DeepRead implements WatchSource {
  readonly state = "catching up";
  readonly #watcher: SourceReader;
  readonly #deps: DeepReadDeps;
  readonly #stopping = new AbortController();
  readonly #opened = Promise.withResolvers<void>();
  /** Everything up to this revision has been read. */
  #position: number;
  /** The store is read up to this revision. */
  #upTo = 0;
  #stream: WatchStream | undefined;
  #isConfirming = false;
  /** The confirmed batch that is being delivered, and the index of its next event. */
  #batch: WatchBatch | undefined;
  #next = 0;
  /** Number of events scanned since a batch was returned. */
  #scanned = 0;
  #successor: WatchSource | undefined;

  constructor(watcher: SourceReader, deps: DeepReadDeps) {
    this.#watcher = watcher;
    this.#deps = deps;
    this.#position = deps.after;
  }

  get successor(): WatchSource | undefined {
    return this.#successor;
  }

  /** Begins to read. Resolves once the store has shown that it has what comes next. Ends the watcher if it has not. */
  begin(): Promise<void> {
    this.#open();
    return this.#opened.promise;
  }

  next(): SourceResult | undefined {
    const batch = this.#batch;
    if (batch === undefined) return undefined;
    const { turns, bounds } = this.#deps.sources;
    const events: WatchEvent[] = [];
    if (turns.mayBegin()) this.#collect(batch, events);
    if (this.#batch === undefined && this.#position >= this.#upTo && this.#join()) {
      return { batch: new WatchBatch(this.#position, events), isDone: true };
    }
    if (events.length > 0 || this.#scanned >= bounds.scanEvents) {
      this.#scanned = 0;
      return { batch: new WatchBatch(this.#position, events), isDone: false };
    }
    if (this.#batch !== undefined) turns.add(this.#owner, this.#watcher);
    return undefined;
  }

  checkWindow(): void {}

  drop(): void {
    this.#stopping.abort();
    const stream = this.#stream;
    this.#stream = undefined;
    this.#batch = undefined;
    stream?.close();
    this.#deps.release();
  }

  get #owner(): object {
    return this.#watcher.options.owner ?? this.#watcher;
  }

  /** Reads the store from the position up to the middle of the window. */
  #open(): void {
    const { component, scope, refuse, fail } = this.#deps;
    const { source, cache } = component;
    this.#stream?.close();
    const refusal = refuse(this.#position);
    if (refusal !== undefined) {
      void refusal.then(fail);
      return;
    }
    this.#upTo = cache.eventWindow.middle.revision;
    const stream = source.watch({
      ...{ scope, afterRevision: this.#position, historyId: cache.historyId },
      ...{ upTo: this.#upTo, maxHeldBytes, withPrevious: true },
    });
    this.#stream = stream;
    stream.onReadable(() => {
      if (stream === this.#stream) this.#take();
    });
    // Without events, only progress shows how far the store is.
    source.requestProgress();
    this.#take();
  }

  /** Takes the next batch of the store, unless one is being delivered. */
  #take(): void {
    const stream = this.#stream;
    if (stream === undefined || this.#batch !== undefined || this.#isConfirming) return;
    const batch = stream.read();
    if (batch !== undefined) void this.#confirm(stream, batch);
    else if (stream.ended instanceof Error) this.#deps.fail(this.#reported(stream.ended));
  }

  /** What the store has compacted may still be in the window, which counts for the smallest revision that is accepted. */
  #reported(error: Error): Error {
    if (!hasReason(error, "REVISION_TOO_OLD")) return error;
    const { floor } = this.#deps.component.cache.eventWindow;
    const oldest = Number(error.metadata["oldest_revision"] ?? Infinity);
    return revisionTooOld(this.#position, Math.min(oldest, floor.revision));
  }

  async #confirm(stream: WatchStream, batch: WatchBatch): Promise<void> {
    this.#isConfirming = true;
    const { signal } = this.#stopping;
    try {
      await this.#deps.confirmHistory(signal);
    } catch (error) {
      if (!signal.aborted) this.#deps.fail(error);
      return;
    }
    if (stream !== this.#stream) return;
    this.#isConfirming = false;
    this.#batch = batch;
    this.#next = 0;
    this.#opened.resolve();
    this.#watcher.notify();
  }

  /**
   * Appends matching events to `events`, up to `batchBytes`, `scanEvents`, the end of the time slice, or of the batch. Stops
   * between two revisions.
   */
  #collect({ events: all, revision }: WatchBatch, events: WatchEvent[]): void {
    const { turns, bounds } = this.#deps.sources;
    const { batchBytes, scanEvents } = bounds;
    const { filter } = this.#watcher;
    let reached = this.#position;
    let bytes = 0;
    let sinceClockCheck = 0;
    let isFull = false;
    let next = this.#next;
    for (; next < all.length; next++) {
      const event = all[next];
      if (event === undefined || event.revision > this.#upTo) break;
      isFull ||= bytes >= batchBytes || this.#scanned >= scanEvents;
      sinceClockCheck += filter.costOf({ event });
      if (!isFull && sinceClockCheck >= costPerClockCheck) {
        isFull = turns.isOver;
        sinceClockCheck = 0;
      }
      if (isFull && event.revision !== reached && next > this.#next) {
        this.#position = reached;
        this.#next = next;
        return;
      }
      reached = event.revision;
      this.#scanned++;
      const selected = this.#select(event);
      if (selected === undefined) continue;
      events.push(selected);
      bytes += selected.estimatedBytes;
    }
    this.#batch = undefined;
    this.#position = Math.max(this.#position, Math.min(revision ?? reached, this.#upTo));
    if (this.#position < this.#upTo) this.#take();
  }

  /** The event as the watcher's filter delivers it. */
  #select({ type, object, previous }: WatchEvent): WatchEvent | undefined {
    const { filter } = this.#watcher;
    if (!filter.includes(object.key)) return undefined;
    const event = new WatchEvent(type, object, undefined);
    const node = new EventNode(event, previous, object.modRevision, 0, 0, 0);
    const selected = filter.select(node);
    return selected !== undefined && filter.delivers(selected) ? selected : undefined;
  }

  /** Continues from the window. Returns false if that has dropped the next events: then the store is read on. */
  #join(): boolean {
    const { component, sources } = this.#deps;
    const node = component.cache.eventWindow.find(this.#position);
    if (node === undefined) {
      this.#open();
      return false;
    }
    this.#successor = cursorAfter(node, this.#watcher, sources, "resumed");
    return true;
  }
}
