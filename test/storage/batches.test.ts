import { describe, expect, test } from "vitest";
import { WatchFanoutError } from "../../src/base/errors.ts";
import { WatchBatch } from "../../src/model/event.ts";
import type { WatchStream } from "../../src/storage/storage.ts";
import { batches } from "./batches.ts";

/** A stream that a test fills. */
class HandStream implements WatchStream {
  readonly queue: WatchBatch[] = [];
  end: Error | null | undefined;
  closed = 0;
  #listener: () => void = () => {};

  get ended(): Error | null | undefined {
    return this.queue.length > 0 ? undefined : this.end;
  }

  read(): WatchBatch | undefined {
    return this.queue.shift();
  }

  onReadable(listener: () => void): void {
    this.#listener = listener;
  }

  tell(): void {
    this.#listener();
  }

  close(): void {
    this.closed++;
    this.end ??= null;
  }
}

describe("batches", () => {
  test("yields waiting batches, waits for more, and finishes when the stream is closed", async () => {
    const stream = new HandStream();
    stream.queue.push(new WatchBatch(1, []), new WatchBatch(2, []));
    const loop = batches(stream);
    expect((await loop.next()).value?.revision).toBe(1);
    expect((await loop.next()).value?.revision).toBe(2);
    const third = loop.next();
    stream.queue.push(new WatchBatch(3, []));
    stream.tell();
    expect((await third).value?.revision).toBe(3);
    const last = loop.next();
    stream.end = null;
    stream.tell();
    expect(await last).toEqual({ done: true, value: undefined });
  });

  test("yields all batches before an error, then throws it, and closes the stream", async () => {
    const stream = new HandStream();
    stream.queue.push(new WatchBatch(1, []));
    stream.end = new WatchFanoutError("HISTORY_LOST", "Gone.");
    const loop = batches(stream);
    expect((await loop.next()).value?.revision).toBe(1);
    await expect(loop.next()).rejects.toBe(stream.end);
    expect(stream.closed).toBe(1);
  });

  test("closes the stream when the loop is left", async () => {
    const stream = new HandStream();
    stream.queue.push(new WatchBatch(1, []), new WatchBatch(2, []));
    for await (const _ of batches(stream)) break;
    expect(stream.closed).toBe(1);
  });

  test("closes the stream when the loop's body throws", async () => {
    const stream = new HandStream();
    stream.queue.push(new WatchBatch(1, []));
    const loop = (async () => {
      for await (const batch of batches(stream)) throw new Error(`at ${batch.revision}`);
    })();
    await expect(loop).rejects.toThrow("at 1");
    expect(stream.closed).toBe(1);
  });

  test("finishes and closes the stream when the signal is aborted while it waits", async () => {
    const stream = new HandStream();
    const abort = new AbortController();
    const waiting = batches(stream, abort.signal).next();
    abort.abort();
    expect((await waiting).done).toBe(true);
    expect(stream.closed).toBe(1);
  });

  test("yields nothing if the signal was aborted before", async () => {
    const stream = new HandStream();
    stream.queue.push(new WatchBatch(1, []));
    expect((await batches(stream, AbortSignal.abort()).next()).done).toBe(true);
    expect(stream.closed).toBe(1);
  });
});
