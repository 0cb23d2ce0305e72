import { WatchBatch, type WatchEvent } from "../../model/event.ts";
import { slowConsumer } from "../request/errors.ts";
import type { EventNode } from "../state/event-node.ts";
import type {
  CursorOrigin,
  SourceContext,
  SourceReader,
  SourceResult,
  WatchSource,
} from "./watch-source.ts";

/** Number of requirements evaluated between two reads of the clock. An event without a selector counts as one. */
export const costPerClockCheck = 256;

/**
 * Catches up an EVERY_EVENT watcher: holds the last event node that it has processed, and reads on from there at the
 * client's pace, while the event window has the next events. All such cursors share one time slice per turn of the
 * event loop; a watcher that finds it used up is notified in a later turn.
 */
export class EventWindowCursor implements WatchSource {
  readonly successor = undefined;
  readonly #watcher: SourceReader;
  readonly #context: SourceContext;
  /**
   * Whether events that the window drops are kept for it, up to `retainedEventBytes`. They are until a watcher is
   * first synced after its initial state, since the time which that takes depends on the size of the state.
   */
  readonly #retainsEvents: boolean;
  #state: WatchSource["state"];
  #cursor: EventNode;
  /** Number of events scanned since it last returned a batch. */
  #scanned = 0;

  constructor(
    watcher: SourceReader,
    context: SourceContext,
    cursor: EventNode,
    origin: CursorOrigin,
  ) {
    this.#watcher = watcher;
    this.#context = context;
    this.#cursor = cursor;
    this.#retainsEvents = origin === "initial";
    this.#state = origin === "live" ? "stalled" : "catching up";
  }

  get state(): WatchSource["state"] {
    return this.#state;
  }

  get unreadSince(): number | undefined {
    return this.#cursor.next?.arrivedAt;
  }

  next(): SourceResult | undefined {
    this.#state = "catching up";
    this.checkWindow();
    if (this.#watcher.state === "ended") return undefined;
    const { dispatcher, turns, bounds } = this.#context;
    const target = dispatcher.position;
    if (this.#cursor.sequence > target.sequence) {
      dispatcher.notifyAfterRound(this.#watcher);
      return undefined;
    }
    const events: WatchEvent[] = [];
    // A synced cursor has nothing to scan and needs no time slice.
    if (this.#cursor !== target) {
      if (turns.mayBegin()) this.#collect(target, events);
      if (this.#cursor !== target && events.length === 0 && this.#scanned < bounds.scanEvents) {
        turns.add(this.#watcher.options.owner ?? this.#watcher, this.#watcher);
        return undefined;
      }
      this.#scanned = 0;
    }
    const { position } = this.#watcher;
    if (this.#cursor !== target) {
      const revision = Math.max(position, this.#cursor.revision);
      return { batch: new WatchBatch(revision, events), isDone: false };
    }
    if (events.length === 0) return { batch: undefined, isDone: true };
    const revision = Math.max(position, dispatcher.revision);
    return { batch: new WatchBatch(revision, events), isDone: true };
  }

  checkWindow(): void {
    const { bounds, cache } = this.#context;
    const { eventWindow } = cache;
    if (eventWindow.covers(this.#cursor)) return;
    const retained = eventWindow.newest.bytes - this.#cursor.bytes;
    if (this.#retainsEvents && retained <= bounds.retainedEventBytes) return;
    this.#watcher.fail(
      slowConsumer(
        this.#retainsEvents
          ? `While the stream took its initial state, ${retained} bytes of events arrived: ` +
              `more than the ${bounds.retainedEventBytes} that are kept for it.`
          : "The stream fell behind by more than the event window: its next events are no longer kept.",
      ),
    );
  }

  drop(): void {}

  /** Appends matching events to `events`, up to `target`, `batchBytes`, `scanEvents`, or the end of the time slice. */
  #collect(target: EventNode, events: WatchEvent[]): void {
    const { turns, bounds } = this.#context;
    const { batchBytes, scanEvents } = bounds;
    const { filter } = this.#watcher;
    let node = this.#cursor;
    let bytes = 0;
    let sinceClockCheck = 0;
    let isFull = false;
    while (node !== target) {
      const { next } = node;
      if (next?.event === undefined) break;
      isFull ||= bytes >= batchBytes || this.#scanned >= scanEvents;
      // Reading the clock costs more than scanning most events.
      sinceClockCheck += filter.costOf(next);
      if (!isFull && sinceClockCheck >= costPerClockCheck) {
        isFull = turns.isOver;
        sinceClockCheck = 0;
      }
      if (isFull && next.revision !== node.revision) break;
      if (filter.includes(next.event.object.key)) {
        const event = filter.select(next);
        if (event !== undefined && filter.delivers(event)) {
          events.push(event);
          bytes += event.estimatedBytes;
        }
      }
      node = next;
      this.#scanned++;
    }
    this.#cursor = node;
  }
}
