import type { WatchBatch, WatchEvent } from "../model/event.ts";
import { encodeWatchResponse, eventSize, maxHeadSize } from "./encode.ts";

/** Sizes of responses, in bytes. */
export interface FrameBounds {
  /** A response with several revisions is closed at this size, which a slow client receives in time. */
  readonly comfortable: number;
  /** Maximum size, except for a single event that is larger. */
  readonly largest: number;
}

/** `largest` is just below 4 MiB, the default maximum of gRPC clients. */
const defaultBounds: FrameBounds = { comfortable: 1024 ** 2, largest: 4 * 1024 ** 2 - 64 };

/**
 * Returns a batch as frames, each an encoded WatchResponse with gRPC's prefix. They are encoded once and cached in the
 * batch for all streams that get it.
 *
 * A batch above the size of one response is split between revisions, and each response has the last revision that is
 * complete with it. A revision above that size, an initial state and a coalesced backlog are atomic batches of several
 * responses, of which only the last one has a revision.
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

/** Returns the index after the last event with the revision of the one at `start`. */
function endOfRevision(events: readonly WatchEvent[], start: number): number {
  const revision = events[start]?.revision;
  let end = start + 1;
  while (end < events.length && events[end]?.revision === revision) end++;
  return end;
}

/** Collects events and closes a response when the next event would not fit. */
class Frames {
  readonly #bounds: FrameBounds;
  readonly #done: Uint8Array[] = [];
  #events: WatchEvent[] = [];
  #size = 0;
  /** The revision of the response if it is closed now. */
  #revision: number | undefined;

  constructor(bounds: FrameBounds) {
    this.#bounds = bounds;
  }

  /** Adds an event of an atomic batch that stays open. */
  addToAtomicBatch(event: WatchEvent): void {
    const size = eventSize(event);
    if (this.#events.length > 0 && !this.#fits(size, this.#bounds.comfortable)) this.#close();
    this.#take(event, size);
  }

  /** Adds all events of one revision. */
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
