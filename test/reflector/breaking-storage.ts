import { upstreamUnavailable } from "../../src/base/errors.ts";
import { MemoryStorage } from "../../src/storage/memory/memory-storage.ts";
import type { WatchRequest, WatchStream } from "../../src/storage/storage.ts";

/** The embedded store, with streams that a test can break, which drops their unread batches. */
export class BreakingStorage extends MemoryStorage {
  #breaks: (() => void)[] = [];

  override watch(request: WatchRequest): WatchStream {
    const stream = super.watch(request);
    let broken: Error | undefined;
    let listener = (): void => {};
    stream.onReadable(() => {
      if (broken === undefined) listener();
    });
    this.#breaks.push(() => {
      broken = upstreamUnavailable("The stream was broken.");
      stream.close();
      listener();
    });
    return {
      read: () => (broken === undefined ? stream.read() : undefined),
      get ended() {
        return broken ?? stream.ended;
      },
      onReadable: (notify) => {
        listener = notify;
      },
      close: () => stream.close(),
    };
  }

  /** Breaks all open streams. */
  break(): void {
    const breaks = this.#breaks;
    this.#breaks = [];
    for (const each of breaks) each();
  }
}
