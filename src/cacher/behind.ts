import { WatchBatch, type WatchEvent } from "../storage/event.ts";
import type { Backlog } from "./backlog.ts";
import type { CacheWatcher } from "./cache-watcher.ts";
import type { HistoryNode } from "./history.ts";
import { slowConsumer } from "./stream-errors.ts";
import type { WatcherHost } from "./watcher-terms.ts";

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
   * Looks whether more is kept for it than may be. If so it either ends the watcher or returns what has to
   * be folded, so that less is.
   */
  checkWindow(): Backlog | undefined;
  /** It is no longer needed. Harmless when called twice. */
  drop(): void;
}

/**
 * How an EVERY_EVENT watcher catches up: it holds the last node of history that it has dealt with, and goes
 * on from there at its reader's pace, as long as history has what comes next.
 */
export class HistoryReader implements Behind {
  readonly #watcher: CacheWatcher;
  readonly #host: WatcherHost;
  /** Whether history is kept for it beyond the window, as it has not been level since it began. */
  readonly #owed: boolean;
  #cursor: HistoryNode;

  constructor(watcher: CacheWatcher, host: WatcherHost, cursor: HistoryNode, owed: boolean) {
    this.#watcher = watcher;
    this.#host = host;
    this.#cursor = cursor;
    this.#owed = owed;
  }

  next(): Taken | undefined {
    this.checkWindow();
    if (this.#watcher.state === "ended") return undefined;
    const { dispatcher } = this.#host;
    const level = dispatcher.position;
    if (this.#cursor.sequence > level.sequence) {
      dispatcher.awaitRound(this.#watcher);
      return undefined;
    }
    const events: WatchEvent[] = [];
    this.#collect(level, events);
    const { position } = this.#watcher;
    if (this.#cursor !== level) {
      const revision = Math.max(position, this.#cursor.revision);
      return { batch: new WatchBatch(revision, events), isLevel: false };
    }
    if (events.length === 0) return { batch: undefined, isLevel: true };
    const revision = Math.max(position, dispatcher.revision);
    return { batch: new WatchBatch(revision, events), isLevel: true };
  }

  checkWindow(): undefined {
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

  /** Gathers what matches, up to `level` or a bound. */
  #collect(level: HistoryNode, events: WatchEvent[]): void {
    const { batchBytes, scanEvents } = this.#host.bounds;
    const { filter } = this.#watcher;
    let node = this.#cursor;
    let bytes = 0;
    let scanned = 0;
    while (node !== level) {
      const { next } = node;
      if (next?.event === undefined) break;
      const full = bytes >= batchBytes || scanned >= scanEvents;
      if (full && next.revision !== node.revision) break;
      if (filter.includes(next.event.object.key)) {
        const event = filter.select(next);
        if (event !== undefined) {
          events.push(event);
          bytes += event.weight;
        }
      }
      node = next;
      scanned++;
    }
    this.#cursor = node;
  }
}
