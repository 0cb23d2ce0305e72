import { expect } from "vitest";
import type { WatchBatch, WatchEvent } from "../../../src/model/event.ts";
import type { Storage, WatchRequest, WatchStream } from "../../../src/storage/storage.ts";
import { type PlainEvent, plainEvent } from "./model.ts";

/**
 * Reads one stream as its contract says: it waits only for the listener's call. Checks the guarantees of each batch:
 * revisions never decrease, and no resume point splits a revision.
 */
export class StreamReader {
  readonly stream: WatchStream;
  readonly #storage: Storage;
  readonly #withPrevious: boolean;
  readonly #events: WatchEvent[] = [];
  #resumePoint: number;
  #wake: () => void = () => {};

  constructor(storage: Storage, request: WatchRequest) {
    this.#storage = storage;
    this.#withPrevious = request.withPrevious;
    this.#resumePoint = request.afterRevision ?? 0;
    this.stream = storage.watch(request);
    this.stream.onReadable(() => this.#wake());
  }

  /** All batches so far. */
  get events(): PlainEvent[] {
    return this.#events.map((event) => plainEvent(event, this.#withPrevious));
  }

  /** The resume point of the last batch. */
  get resumePoint(): number {
    return this.#resumePoint;
  }

  /** The next batch once it is there; undefined when the stream has ended. */
  async next(): Promise<WatchBatch | undefined> {
    for (;;) {
      const batch = this.stream.read();
      if (batch !== undefined) {
        this.#take(batch);
        return batch;
      }
      if (this.stream.ended !== undefined) return undefined;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  /** Reads until everything up to `revision` has been delivered, and returns all events of the stream. */
  async through(revision: number): Promise<PlainEvent[]> {
    if (this.#resumePoint < revision) this.#storage.requestProgress();
    while (this.#resumePoint < revision) {
      if ((await this.next()) === undefined) {
        throw new Error(`The stream ended before revision ${revision}.`, {
          cause: this.stream.ended,
        });
      }
    }
    return this.events;
  }

  /** Reads until a resume point comes, after which the watch is known to be open. */
  async begun(): Promise<number> {
    await this.through(await this.#storage.currentRevision());
    return this.#resumePoint;
  }

  /** Reads until the stream ends, and returns why. */
  async end(): Promise<Error | null | undefined> {
    while ((await this.next()) !== undefined);
    return this.stream.ended;
  }

  #take(batch: WatchBatch): void {
    let last = this.#events.at(-1)?.revision ?? 0;
    for (const event of batch.events) {
      expect(event.revision, "an event above what was delivered whole").toBeGreaterThan(
        this.#resumePoint,
      );
      expect(event.revision, "the order of revisions").toBeGreaterThanOrEqual(last);
      last = event.revision;
      this.#events.push(event);
    }
    if (batch.revision === undefined) return;
    expect(batch.revision, "a resume point at or above its events").toBeGreaterThanOrEqual(last);
    expect(batch.revision, "resume points never go back").toBeGreaterThanOrEqual(this.#resumePoint);
    this.#resumePoint = batch.revision;
  }
}
