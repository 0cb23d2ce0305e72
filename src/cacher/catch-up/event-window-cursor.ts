import { WatchBatch, type WatchEvent } from "../../model/event.ts";
import { slowConsumer } from "../request/errors.ts";
import type { EventNode } from "../state/event-node.ts";
import type {
  CatchUpContext,
  CatchUpReader,
  CatchUpResult,
  CatchUpSource,
} from "./catch-up-source.ts";

/** How many requirements events are held against between two looks at the clock: one for an event without. */
const costPerClockCheck = 256;

/**
 * How an EVERY_EVENT watcher catches up: it holds the last node of history that it has dealt with, and goes
 * on from there at its reader's pace, as long as history has what comes next. All who do so share one slice of
 * each turn of the event loop; for whom there is no time left in it is poked in another.
 */
export class EventWindowCursor implements CatchUpSource {
  readonly #watcher: CatchUpReader;
  readonly #context: CatchUpContext;
  /** Whether history is kept for it beyond the window, as it has not been level since it began. */
  readonly #retainsEvents: boolean;
  #cursor: EventNode;
  /** How many events have been looked at since it last had something to tell. */
  #scanned = 0;

  constructor(
    watcher: CatchUpReader,
    context: CatchUpContext,
    cursor: EventNode,
    retained: boolean,
  ) {
    this.#watcher = watcher;
    this.#context = context;
    this.#cursor = cursor;
    this.#retainsEvents = retained;
  }

  next(): CatchUpResult | undefined {
    this.checkWindow();
    if (this.#watcher.state === "ended") return undefined;
    const { dispatcher, timeSlices, bounds } = this.#context;
    const target = dispatcher.position;
    if (this.#cursor.sequence > target.sequence) {
      dispatcher.notifyAfterRound(this.#watcher);
      return undefined;
    }
    const events: WatchEvent[] = [];
    // Who is level has nothing to look at, which takes no time.
    if (this.#cursor !== target) {
      if (timeSlices.mayBegin()) this.#collect(target, events);
      if (this.#cursor !== target && events.length === 0 && this.#scanned < bounds.scanEvents) {
        timeSlices.enqueue(this.#watcher);
        return undefined;
      }
      this.#scanned = 0;
    }
    const { position } = this.#watcher;
    if (this.#cursor !== target) {
      const revision = Math.max(position, this.#cursor.revision);
      return { batch: new WatchBatch(revision, events), isSynced: false };
    }
    if (events.length === 0) return { batch: undefined, isSynced: true };
    const revision = Math.max(position, dispatcher.revision);
    return { batch: new WatchBatch(revision, events), isSynced: true };
  }

  checkWindow(): void {
    if (this.#watcher.state === "ended") return;
    const { eventWindow, bounds } = this.#context;
    if (eventWindow.covers(this.#cursor)) return;
    const retained = eventWindow.newest.bytes - this.#cursor.bytes;
    if (this.#retainsEvents && retained <= bounds.retainedEventBytes) return;
    this.#watcher.fail(
      slowConsumer(
        this.#retainsEvents
          ? `Taking the initial state took so long that ${retained} bytes of events came meanwhile, ` +
              `more than the ${bounds.retainedEventBytes} that are kept.`
          : "The stream fell so far behind that the events it was owed are no longer kept.",
      ),
    );
  }

  drop(): void {}

  /** Gathers what matches, up to `target`, a bound, or the end of the slice. */
  #collect(target: EventNode, events: WatchEvent[]): void {
    const { timeSlices, bounds } = this.#context;
    const { batchBytes, scanEvents } = bounds;
    const { filter } = this.#watcher;
    let node = this.#cursor;
    let bytes = 0;
    let sinceClockCheck = 0;
    let full = false;
    while (node !== target) {
      const { next } = node;
      if (next?.event === undefined) break;
      full ||= bytes >= batchBytes || this.#scanned >= scanEvents;
      // A look at the clock costs more than most events do.
      sinceClockCheck += filter.cost;
      if (!full && sinceClockCheck >= costPerClockCheck) {
        full = timeSlices.isOver;
        sinceClockCheck = 0;
      }
      if (full && next.revision !== node.revision) break;
      if (filter.includes(next.event.object.key)) {
        const event = filter.select(next);
        if (event !== undefined) {
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
