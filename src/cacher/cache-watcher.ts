import type { WatchFanoutError } from "../errors.ts";
import { WatchBatch, type WatchEvent } from "../storage/event.ts";
import type { WatchStream } from "../storage/storage.ts";
import type { Filter } from "./filter.ts";
import type { HistoryNode } from "./history.ts";
import type { InitialState } from "./initial-state.ts";
import { slowConsumer } from "./stream-errors.ts";
import type { WatcherBounds, WatcherHost, WatcherState, WatcherWishes } from "./watcher-terms.ts";

/**
 * One watch on a Cacher: a bounded input between the dispatcher, which never waits, and a reader, who
 * may take as long as history lasts.
 *
 * While it is live it holds nothing but its input. When it is behind it holds one node of history, from
 * which it goes on at its reader's pace.
 */
export class CacheWatcher implements WatchStream {
  readonly filter: Filter;
  readonly wishes: WatcherWishes;
  readonly #host: WatcherHost;
  #state: WatcherState = "starting";
  readonly #input: WatchBatch[] = [];
  #inputBytes = 0;
  #initial: InitialState | undefined;
  /** While not live: the last node of history that has been dealt with. */
  #cursor: HistoryNode | undefined;
  /** Whether history is kept for it beyond the window, as it has not been level since it began. */
  #owed = false;
  #bookmarkWanted = false;
  #onEnd: (() => void) | undefined;
  #end: Error | null | undefined;
  #listener: (() => void) | undefined;
  /** Whether the reader has found nothing, or not looked yet, and is to be told of something new. */
  #armed = true;

  /** The resume point of the last batch that was put in or handed out; 0 before the first. */
  position = 0;
  /** Counts what the reader has taken. */
  taken = 0;
  /** The round of the dispatcher in which it became live, of which it has had everything. */
  joinedRound = 0;
  /** What the patrol saw on its last walk; see there. */
  seenPosition = 0;
  seenTaken = 0;
  movedAt: number;
  takenAt: number;
  deadlineBookmarked = false;

  constructor(filter: Filter, wishes: WatcherWishes, host: WatcherHost, now: number) {
    this.filter = filter;
    this.wishes = wishes;
    this.#host = host;
    this.movedAt = now;
    this.takenAt = now;
  }

  get state(): WatcherState {
    return this.#state;
  }

  /** Batches in the input. */
  get inputBatches(): number {
    return this.#input.length;
  }

  /** Weight of what is in the input, in bytes. */
  get inputBytes(): number {
    return this.#inputBytes;
  }

  get ended(): Error | null | undefined {
    return this.#input.length > 0 ? undefined : this.#end;
  }

  /** Whether its reader could take something. */
  get waits(): boolean {
    if (this.#input.length > 0) return true;
    if (this.#armed && this.taken > 0) return false;
    return this.#state === "initial" || this.#state === "catching up" || this.#state === "stalled";
  }

  onReadable(listener: () => void): void {
    this.#listener = listener;
  }

  read(): WatchBatch | undefined {
    this.#armed = false;
    const batch = this.#input.shift() ?? this.#make();
    if (batch === undefined) {
      this.#armed = true;
      return undefined;
    }
    this.taken++;
    if (this.#input.length > 0 || this.#inputBytes > 0) this.#recount(batch);
    return batch;
  }

  close(): void {
    this.#finish(null);
    this.#clearInput();
    this.#notify();
  }

  /** Ends the stream with `error` once the reader has taken what is in the input. */
  fail(error: WatchFanoutError): void {
    if (this.#state === "ended") return;
    this.#finish(error);
    this.#notify();
  }

  /**
   * Ends the stream with `error` and drops what the reader has not taken. Tells the reader in any case:
   * it may be stuck with what it took last, and has to know that there will be no more.
   */
  abandon(error: WatchFanoutError): void {
    this.#clearInput();
    this.#armed = true;
    if (this.#state === "ended") this.#notify();
    else this.fail(error);
  }

  /** Puts `batch` in front of all else: the answer that a watch begins with. */
  open(batch: WatchBatch): void {
    if (this.#state !== "ended") this.#put(batch);
  }

  /** Begins with the state. What comes after it is set by `follow`, before or after it is complete. */
  beginInitial(initial: InitialState): void {
    if (this.#state === "ended") return;
    this.#initial = initial;
    this.#owed = true;
    this.#state = "initial";
    this.#notify();
  }

  /** Goes on after `node`, everything up to which the reader has or did not ask for. */
  follow(node: HistoryNode): void {
    if (this.#state === "ended") return;
    this.#cursor = node;
    if (this.#initial !== undefined) return;
    this.#state = "catching up";
    this.#notify();
  }

  /** Has `listener` called when the stream ends, after those before it; at once if it has. */
  whenEnded(listener: () => void): void {
    if (this.#state === "ended") {
      listener();
      return;
    }
    const before = this.#onEnd;
    this.#onEnd =
      before === undefined
        ? listener
        : () => {
            before();
            listener();
          };
  }

  /** Is called when there may be more to take: a page of the state, a round of the dispatcher. */
  poke(): void {
    this.#notify();
  }

  /** Takes a batch, unless the input is full. Only when live. */
  offer(batch: WatchBatch): boolean {
    // Its reader may have closed it when it was told of the batch before.
    if (this.#state !== "live") return false;
    const { inputBatches, inputBytes } = this.#host.bounds;
    const count = this.#input.length;
    if (count >= inputBatches) return false;
    if (count > 0 && this.#inputBytes + batch.weight > inputBytes) return false;
    this.#put(batch);
    return true;
  }

  /** The input was full: what comes after `node` is to be taken from history. */
  stall(node: HistoryNode): void {
    if (this.#state !== "live") return;
    this.#state = "stalled";
    this.#cursor = node;
  }

  /**
   * Moves the resume point to that of `bookmark`. Only what is live and has room gets one: whoever is
   * behind will have its resume point moved by what it is behind with.
   */
  bookmark(bookmark: WatchBatch): boolean {
    const { revision } = bookmark;
    if (this.#state !== "live" || revision === undefined || revision < this.position) return false;
    const last = this.#input.length - 1;
    if (last >= 0 && this.#input[last]?.events.length === 0) {
      // One bookmark that has not been taken yet is as good as two.
      this.#input[last] = bookmark;
      this.position = revision;
      return true;
    }
    return this.offer(bookmark);
  }

  /** As `bookmark`; where the watcher is behind or its input full, once it no longer is. */
  requestBookmark(bookmark: WatchBatch): void {
    if (!this.bookmark(bookmark)) this.#bookmarkWanted = true;
  }

  /** Ends the stream if it is further behind than is kept for it. */
  checkWindow(): void {
    const cursor = this.#cursor;
    if (cursor === undefined || this.#state === "ended") return;
    const { history, bounds } = this.#host;
    if (history.holdsAfter(cursor)) return;
    const owed = history.newest.bytes - cursor.bytes;
    if (this.#owed && owed <= bounds.owedBytes) return;
    this.fail(
      slowConsumer(
        this.#owed
          ? `Taking the initial state took so long that ${owed} bytes of events came meanwhile, ` +
              `more than the ${bounds.owedBytes} that are kept.`
          : "The stream fell so far behind that the events it was owed are no longer kept.",
      ),
    );
  }

  #make(): WatchBatch | undefined {
    if (this.#initial !== undefined && this.#state === "initial") {
      const batch = this.#initial.next();
      if (batch?.initialEventsEnd === true) {
        this.#initial = undefined;
        this.#state = this.#cursor === undefined ? "starting" : "catching up";
      }
      if (batch?.revision !== undefined) this.position = batch.revision;
      return batch;
    }
    if (this.#state === "stalled") this.#state = "catching up";
    if (this.#state === "live" && this.#bookmarkWanted) return this.#lateBookmark();
    return this.#state === "catching up" ? this.#catchUp() : undefined;
  }

  /** The bookmark that the input had no room for. */
  #lateBookmark(): WatchBatch | undefined {
    const { bookmark, settledRevision } = this.#host.dispatcher;
    this.#bookmarkWanted = false;
    if (settledRevision < this.position) return undefined;
    this.position = settledRevision;
    return bookmark;
  }

  /** The next batch out of history; becomes live where history so far ends. */
  #catchUp(): WatchBatch | undefined {
    this.checkWindow();
    const from = this.#cursor;
    if (from === undefined || this.#state !== "catching up") return undefined;
    const { dispatcher, bounds } = this.#host;
    const level = dispatcher.position;
    if (from.sequence > level.sequence) {
      dispatcher.awaitRound(this);
      return undefined;
    }
    const events: WatchEvent[] = [];
    const reached = this.#collect(from, level, events, bounds);
    this.#cursor = reached;
    if (reached !== level) {
      this.position = Math.max(this.position, reached.revision);
      return new WatchBatch(this.position, events);
    }
    this.#join();
    const news = dispatcher.revision > this.position && this.wishes.eagerBookmarks;
    const wanted = dispatcher.revision >= this.position && this.#bookmarkWanted;
    if (events.length === 0 && !news && !wanted) return undefined;
    this.#bookmarkWanted = false;
    this.position = Math.max(this.position, dispatcher.revision);
    return new WatchBatch(this.position, events);
  }

  /** Gathers what matches after `from`, up to `level` or a bound, and returns how far it came. */
  #collect(
    from: HistoryNode,
    level: HistoryNode,
    events: WatchEvent[],
    bounds: WatcherBounds,
  ): HistoryNode {
    let node = from;
    let bytes = 0;
    let scanned = 0;
    while (node !== level) {
      const { next } = node;
      if (next?.event === undefined) break;
      const full = bytes >= bounds.batchBytes || scanned >= bounds.scanEvents;
      if (full && next.revision !== node.revision) break;
      if (this.filter.includes(next.event.object.key)) {
        const event = this.filter.select(next);
        if (event !== undefined) {
          events.push(event);
          bytes += event.weight;
        }
      }
      node = next;
      scanned++;
    }
    return node;
  }

  #join(): void {
    this.#state = "live";
    this.#cursor = undefined;
    this.#owed = false;
    this.#host.dispatcher.join(this);
  }

  #put(batch: WatchBatch): void {
    this.#input.push(batch);
    this.#inputBytes += batch.weight;
    if (batch.revision !== undefined) this.position = batch.revision;
    this.#notify();
  }

  #recount(taken: WatchBatch): void {
    this.#inputBytes = this.#input.length === 0 ? 0 : this.#inputBytes - taken.weight;
  }

  #clearInput(): void {
    this.#input.length = 0;
    this.#inputBytes = 0;
  }

  #finish(end: Error | null): void {
    if (this.#state === "ended") return;
    this.#state = "ended";
    this.#end = end;
    this.#cursor = undefined;
    this.#initial = undefined;
    this.#host.forget(this, end);
    this.#onEnd?.();
  }

  #notify(): void {
    if (!this.#armed || this.#listener === undefined) return;
    this.#armed = false;
    try {
      this.#listener();
    } catch (error) {
      // The fault of one reader must not reach the dispatcher, and with it all the others.
      this.#clearInput();
      this.#finish(this.#host.listenerFailed(error));
    }
  }
}
