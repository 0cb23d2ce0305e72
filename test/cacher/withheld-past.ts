import { upstreamUnavailable } from "../../src/base/errors.ts";
import { WatchBatch, type WatchEvent } from "../../src/model/event.ts";
import { MemoryStorage } from "../../src/storage/memory/memory-storage.ts";
import type { WatchRequest, WatchStream } from "../../src/storage/storage.ts";

/**
 * The embedded store, whose watches of past events deliver nothing until they are released. A watch from `startedAt`
 * or later, which delivers new events, is not withheld.
 */
export class HeldPast extends MemoryStorage {
  startedAt = 0;
  /** The revisions that the watches of past events begin after, in the order of opening. */
  readonly asked: number[] = [];
  /** The histories that they name. */
  readonly histories = new Set<string | undefined>();
  #held: PastWatch[] = [];
  #live: WatchStream[] = [];
  #releasedFrom = Infinity;
  #failures = 0;
  #forge: (event: WatchEvent) => WatchEvent | undefined = (event) => event;

  override watch(request: WatchRequest): WatchStream {
    const stream = super.watch(request);
    const { afterRevision = 0 } = request;
    if (request.upTo === undefined && afterRevision >= this.startedAt) {
      const live = new PastWatch(stream, afterRevision, this.#forge);
      live.release();
      this.#live.push(live);
      return live;
    }
    this.asked.push(afterRevision);
    this.histories.add(request.historyId);
    const past = new PastWatch(stream, afterRevision, this.#forge);
    if (this.#failures > 0) {
      this.#failures--;
      past.fail();
    } else if (afterRevision >= this.#releasedFrom) {
      past.release();
    } else {
      this.#held.push(past);
    }
    return past;
  }

  /** Releases all that begin at or after this revision, also later ones. */
  releaseFrom(revision: number): void {
    this.#releasedFrom = revision;
    const released = this.#held.filter(({ after }) => after >= revision);
    this.#held = this.#held.filter(({ after }) => after < revision);
    for (const each of released) each.release();
  }

  /** Makes the withheld watch fail, and the next ones, `times` in all. */
  failPast(times: number): void {
    this.#failures = times - this.#held.length;
    for (const each of this.#held.splice(0)) each.fail();
  }

  /** Breaks all watches that are not of past events. */
  failUpstream(): void {
    for (const each of this.#live.splice(0)) if (each instanceof PastWatch) each.fail();
  }

  /** Makes watches of past events that are opened from now on deliver other events. */
  forge(change: (event: WatchEvent) => WatchEvent | undefined): void {
    this.#forge = change;
    for (const each of this.#held) each.change = change;
  }
}

class PastWatch implements WatchStream {
  readonly after: number;
  change: (event: WatchEvent) => WatchEvent | undefined;
  readonly #stream: WatchStream;
  #isReleased = false;
  #failure: Error | undefined;
  #listener = (): void => {};

  constructor(stream: WatchStream, after: number, change: PastWatch["change"]) {
    this.#stream = stream;
    this.after = after;
    this.change = change;
    stream.onReadable(() => {
      if (this.#isReleased && this.#failure === undefined) this.#listener();
    });
  }

  release(): void {
    this.#isReleased = true;
    this.#listener();
  }

  fail(): void {
    this.#failure = upstreamUnavailable("The store is away.");
    this.#stream.close();
    this.#listener();
  }

  read(): WatchBatch | undefined {
    if (!this.#isReleased || this.#failure !== undefined) return undefined;
    const batch = this.#stream.read();
    if (batch === undefined || batch.events.length === 0) return batch;
    return new WatchBatch(
      batch.revision,
      batch.events.flatMap((event) => this.change(event) ?? []),
    );
  }

  get ended(): Error | null | undefined {
    if (this.#failure !== undefined) return this.#failure;
    return this.#isReleased ? this.#stream.ended : undefined;
  }

  onReadable(listener: () => void): void {
    this.#listener = listener;
  }

  close(): void {
    this.#stream.close();
  }
}
