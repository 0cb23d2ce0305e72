import type { WatchBatch, WatchEvent } from "../model/event.ts";
import { encodeWatchResponse, eventSize, maxHeadSize } from "./encode.ts";

/** How large responses become, in bytes. */
export interface FrameBounds {
  /** One that holds several revisions is closed when it gets here: a slow client takes it in time. */
  readonly comfortable: number;
  /** None is larger than this, unless a single event is. */
  readonly largest: number;
}

/** `largest` is just below 4 MiB, the most that a gRPC client takes by default. */
const defaultBounds: FrameBounds = { comfortable: 1024 ** 2, largest: 4 * 1024 ** 2 - 64 };

/**
 * A batch as frames, each an encoded WatchResponse with gRPC's prefix, made once and kept with the batch for all streams that get it.
 *
 * A batch that does not fit one response is split between revisions, and each response then carries the
 * last revision that is whole with it. A revision that does not fit one response, an initial state and a fold
 * are units of several responses without a revision until the last.
 */
export function framesOf(
  batch: WatchBatch,
  bounds: FrameBounds = defaultBounds,
): readonly Uint8Array[] {
  batch.frames ??= encodeFrames(batch, bounds);
  return batch.frames;
}

function encodeFrames(batch: WatchBatch, bounds: FrameBounds): readonly Uint8Array[] {
  const frames = new Frames(bounds);
  const { events, revision, initialEventsEnd, isAtomic } = batch;
  if (isAtomic) {
    for (const event of events) frames.addToAtomicBatch(event);
  } else {
    for (let start = 0; start < events.length; ) {
      const end = endOfRevision(events, start);
      frames.addRevision(events.slice(start, end));
      start = end;
    }
  }
  return frames.finish(revision, initialEventsEnd);
}

/** The index after the last event that has the revision of the one at `start`. */
function endOfRevision(events: readonly WatchEvent[], start: number): number {
  const revision = events[start]?.revision;
  let end = start + 1;
  while (end < events.length && events[end]?.revision === revision) end++;
  return end;
}

/** Gathers events and closes a response when the next one would not fit. */
class Frames {
  readonly #bounds: FrameBounds;
  readonly #done: Uint8Array[] = [];
  #events: WatchEvent[] = [];
  #size = 0;
  /** What the response that is being gathered may carry if it is closed now. */
  #revision: number | undefined;

  constructor(bounds: FrameBounds) {
    this.#bounds = bounds;
  }

  /** Part of a unit that stays open. */
  addToAtomicBatch(event: WatchEvent): void {
    const size = eventSize(event);
    if (this.#events.length > 0 && !this.#fits(size, this.#bounds.comfortable)) this.#close();
    this.#take(event, size);
  }

  /** All events of one revision. */
  addRevision(events: readonly WatchEvent[]): void {
    const sizes = events.map(eventSize);
    const total = sizes.reduce((sum, size) => sum + size, 0);
    if (this.#events.length > 0 && !this.#fits(total, this.#bounds.comfortable)) this.#close();
    this.#revision = undefined;
    events.forEach((event, i) => {
      const size = sizes[i] ?? 0;
      if (this.#events.length > 0 && !this.#fits(size, this.#bounds.largest)) this.#close();
      this.#take(event, size);
    });
    this.#revision = events[0]?.revision;
  }

  finish(revision: number | undefined, initialEventsEnd: boolean): readonly Uint8Array[] {
    this.#done.push(encodeWatchResponse({ revision, initialEventsEnd }, this.#events, this.#size));
    return this.#done;
  }

  #fits(more: number, bound: number): boolean {
    return this.#size + more + maxHeadSize <= bound;
  }

  #take(event: WatchEvent, size: number): void {
    this.#events.push(event);
    this.#size += size;
  }

  #close(): void {
    const head = { revision: this.#revision, initialEventsEnd: false };
    this.#done.push(encodeWatchResponse(head, this.#events, this.#size));
    this.#events = [];
    this.#size = 0;
    this.#revision = undefined;
  }
}
