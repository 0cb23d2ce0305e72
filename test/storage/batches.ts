import type { WatchBatch } from "../../src/model/event.ts";
import type { WatchStream } from "../../src/storage/storage.ts";

/**
 * Returns the stream as an async iterable, for readers that may wait. It finishes when the stream is closed or `signal`
 * is aborted, throws the error that ended the stream otherwise, and closes the stream when the loop is left.
 */
export async function* batches(
  stream: WatchStream,
  signal?: AbortSignal,
): AsyncGenerator<WatchBatch, void, void> {
  let wake: (() => void) | undefined;
  const onReadable = (): void => wake?.();
  stream.onReadable(onReadable);
  signal?.addEventListener("abort", onReadable);
  try {
    while (signal?.aborted !== true) {
      const batch = stream.read();
      if (batch !== undefined) {
        yield batch;
        continue;
      }
      if (stream.ended instanceof Error) throw stream.ended;
      if (stream.ended === null) return;
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
      wake = undefined;
    }
  } finally {
    signal?.removeEventListener("abort", onReadable);
    stream.close();
  }
}
