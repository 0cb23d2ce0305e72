import type { TimeSlicedWork } from "../../base/event-loop-turns.ts";
import type { Turns } from "../../base/turns.ts";
import { WatchBatch, WatchEvent } from "../../model/event.ts";
import type { ListResult } from "../../storage/storage.ts";
import type { ListChunk } from "../list/list-chunk.ts";
import type { SnapshotReader, StateSnapshot } from "./state-snapshot.ts";
import type { SourceResult, WatchSource } from "./watch-source.ts";

/**
 * A last chunk above this size, in bytes, is sent unchanged to all watchers and followed by a closing batch. A smaller
 * one is built again for each revision that closes it, which costs less than one more message.
 */
const maxClosingBytes = 16 * 1024;

interface SnapshotInitialStateOptions {
  /** The watcher that takes the state. */
  readonly reader: SnapshotReader;
  readonly scheduler: Turns;
  /** Whose share of the time slices building chunks counts against, such as a connection. */
  readonly owner: object;
  /** Aborted when the watcher has ended. */
  readonly signal: AbortSignal;
  /** Called when the requested chunk is available, or with the reason why it never is. Not called within `next`. */
  readonly onReady: (failure?: unknown) => void;
  readonly successor: WatchSource;
}

/** An initial state from a snapshot of the cache. */
export class SnapshotInitialState implements WatchSource {
  readonly state = "initial";
  /** Undefined after the last batch or `drop`. */
  #snapshot: StateSnapshot | undefined;
  readonly #deps: SnapshotInitialStateOptions;
  #startAfter: string | undefined;
  /** The chunk that was built on its request. */
  #built: ListChunk | undefined;
  #isBuilding = false;
  /** Whether `next` is running. */
  #isReading = false;
  /** Whether only the closing batch remains. */
  #isClosing = false;

  constructor(snapshot: StateSnapshot, deps: SnapshotInitialStateOptions) {
    this.#snapshot = snapshot;
    this.#deps = deps;
    snapshot.hold(deps.reader);
  }

  get successor(): WatchSource {
    return this.#deps.successor;
  }

  next(): SourceResult | undefined {
    const snapshot = this.#snapshot;
    if (snapshot === undefined) return undefined;
    if (this.#isClosing) {
      this.drop();
      return { batch: snapshot.closing, isDone: true };
    }
    // Waits for the chunk that it requested even if another watcher has built it since, to send it once only.
    if (this.#isBuilding) return undefined;
    const chunk = this.#built ?? snapshot.find(this.#startAfter) ?? this.#build(snapshot);
    if (chunk === undefined) return undefined;
    this.#built = undefined;
    this.#startAfter = chunk.last;
    this.#isClosing = chunk.last === undefined && chunk.estimatedBytes > maxClosingBytes;
    if (chunk.last !== undefined || this.#isClosing)
      return { batch: batchOf(chunk), isDone: false };
    this.drop();
    return { batch: closingOf(chunk, snapshot), isDone: true };
  }

  checkWindow(): void {}

  drop(): void {
    this.#snapshot?.release(this.#deps.reader);
    this.#snapshot = undefined;
    this.#built = undefined;
  }

  /** Requests the next chunk. Returns it if it was built within this time slice. */
  #build(snapshot: StateSnapshot): ListChunk | undefined {
    const { scheduler, owner, signal, onReady } = this.#deps;
    this.#isBuilding = true;
    this.#isReading = true;
    scheduler
      .run(owner, this.#buildNext(snapshot), signal)
      .catch((error: unknown) => onReady(error));
    this.#isReading = false;
    return this.#built;
  }

  *#buildNext(snapshot: StateSnapshot): TimeSlicedWork<void> {
    this.#built = yield* snapshot.chunk(this.#startAfter);
    this.#isBuilding = false;
    // Called within the owner's time slice, so that sending the chunk counts against the owner, too.
    if (!this.#isReading) this.#deps.onReady();
  }
}

function batchOf(chunk: ListChunk): WatchBatch {
  chunk.batch ??= new WatchBatch(undefined, added(chunk));
  return chunk.batch;
}

/** The last chunk with the revision that closes the state. */
function closingOf(chunk: ListChunk, { revision }: StateSnapshot): WatchBatch {
  if (chunk.batch?.revision !== revision) {
    chunk.batch = new WatchBatch(revision, added(chunk), true);
  }
  return chunk.batch;
}

function added({ items }: ListChunk): WatchEvent[] {
  return items.map((object) => new WatchEvent("ADDED", object, undefined));
}

/**
 * An initial state read from the storage page by page, used if the cache does not reach the required revision in
 * time. The next page is requested when the one before has been taken.
 */
export class PagedInitialState implements WatchSource {
  readonly state = "initial";
  readonly successor: WatchSource;
  readonly #list: (startAfter: string) => Promise<ListResult>;
  readonly #onReady: (failure?: unknown) => void;
  #page: ListResult | undefined;

  /**
   * `first` is the first page, `list` reads those after it. `onReady` is called when a page has arrived, or with the
   * reason why none will.
   */
  constructor(
    first: ListResult,
    list: (startAfter: string) => Promise<ListResult>,
    onReady: (failure?: unknown) => void,
    successor: WatchSource,
  ) {
    this.#page = first;
    this.#list = list;
    this.#onReady = onReady;
    this.successor = successor;
  }

  next(): SourceResult | undefined {
    const page = this.#page;
    if (page === undefined) return undefined;
    this.#page = undefined;
    const events = page.items.map((object) => new WatchEvent("ADDED", object, undefined));
    if (page.next === undefined) {
      return { batch: new WatchBatch(page.revision, events, true), isDone: true };
    }
    this.#list(page.next).then(
      (following) => {
        this.#page = following;
        this.#onReady();
      },
      (error: unknown) => this.#onReady(error),
    );
    return { batch: new WatchBatch(undefined, events), isDone: false };
  }

  checkWindow(): void {}

  drop(): void {}
}
