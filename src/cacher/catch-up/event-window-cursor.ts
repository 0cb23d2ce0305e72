import { WatchBatch, type WatchEvent } from "../../model/event.ts";
import { slowConsumer } from "../request/errors.ts";
import type { HistoryNode } from "../state/event-node.ts";
import type { CacheWatcher } from "../watch/cache-watcher.ts";
import type { WatcherHost } from "../watch/watcher-context.ts";

/** What a watcher takes of what it is behind with. */
export interface Taken {
  /** The next batch; undefined if there is none. */
  readonly batch: WatchBatch | undefined;
  /** Whether it has now had everything up to where the dispatcher is, and may become live. */
  readonly isLevel: boolean;
}

/** What a watcher that is not live has not been sent yet, and how it comes by that. */
export interface Behind {
  /** What comes next; undefined if that takes a while: then the watcher is poked when it is there. */
  next(): Taken | undefined;
  /**
   * Looks whether more is kept for it than may be. If so it either ends the watcher or has it folded, so that
   * less is.
   */
  checkWindow(): void;
  /** It is no longer needed. Harmless when called twice. */
  drop(): void;
}

/** How many requirements events are held against between two looks at the clock: one for an event without. */
const costPerLook = 256;

/**
 * How an EVERY_EVENT watcher catches up: it holds the last node of history that it has dealt with, and goes
 * on from there at its reader's pace, as long as history has what comes next. All who do so share one slice of
 * each turn of the event loop; for whom there is no time left in it is poked in another.
 */
export class HistoryReader implements Behind {
  readonly #watcher: CacheWatcher;
  readonly #host: WatcherHost;
  /** Whether history is kept for it beyond the window, as it has not been level since it began. */
  readonly #owed: boolean;
  #cursor: HistoryNode;
  /** How many events have been looked at since it last had something to tell. */
  #scanned = 0;

  constructor(watcher: CacheWatcher, host: WatcherHost, cursor: HistoryNode, owed: boolean) {
    this.#watcher = watcher;
    this.#host = host;
    this.#cursor = cursor;
    this.#owed = owed;
  }

  next(): Taken | undefined {
    this.checkWindow();
    if (this.#watcher.state === "ended") return undefined;
    const { dispatcher, queue, bounds } = this.#host;
    const level = dispatcher.position;
    if (this.#cursor.sequence > level.sequence) {
      dispatcher.awaitRound(this.#watcher);
      return undefined;
    }
    const events: WatchEvent[] = [];
    // Who is level has nothing to look at, which takes no time.
    if (this.#cursor !== level) {
      if (queue.mayBegin()) this.#collect(level, events);
      if (this.#cursor !== level && events.length === 0 && this.#scanned < bounds.scanEvents) {
        queue.awaitTurn(this.#watcher);
        return undefined;
      }
      this.#scanned = 0;
    }
    const { position } = this.#watcher;
    if (this.#cursor !== level) {
      const revision = Math.max(position, this.#cursor.revision);
      return { batch: new WatchBatch(revision, events), isLevel: false };
    }
    if (events.length === 0) return { batch: undefined, isLevel: true };
    const revision = Math.max(position, dispatcher.revision);
    return { batch: new WatchBatch(revision, events), isLevel: true };
  }

  checkWindow(): void {
    if (this.#watcher.state === "ended") return;
    const { history, bounds } = this.#host;
    if (history.holdsAfter(this.#cursor)) return;
    const owed = history.newest.bytes - this.#cursor.bytes;
    if (this.#owed && owed <= bounds.owedBytes) return;
    this.#watcher.fail(
      slowConsumer(
        this.#owed
          ? `Taking the initial state took so long that ${owed} bytes of events came meanwhile, ` +
              `more than the ${bounds.owedBytes} that are kept.`
          : "The stream fell so far behind that the events it was owed are no longer kept.",
      ),
    );
  }

  drop(): void {}

  /** Gathers what matches, up to `level`, a bound, or the end of the slice. */
  #collect(level: HistoryNode, events: WatchEvent[]): void {
    const { queue, bounds } = this.#host;
    const { batchBytes, scanEvents } = bounds;
    const { filter } = this.#watcher;
    let node = this.#cursor;
    let bytes = 0;
    let sinceLook = 0;
    let full = false;
    while (node !== level) {
      const { next } = node;
      if (next?.event === undefined) break;
      full ||= bytes >= batchBytes || this.#scanned >= scanEvents;
      // A look at the clock costs more than most events do.
      sinceLook += filter.cost;
      if (!full && sinceLook >= costPerLook) {
        full = queue.isOver;
        sinceLook = 0;
      }
      if (full && next.revision !== node.revision) break;
      if (filter.includes(next.event.object.key)) {
        const event = filter.select(next);
        if (event !== undefined) {
          events.push(event);
          bytes += event.weight;
        }
      }
      node = next;
      this.#scanned++;
    }
    this.#cursor = node;
  }
}
