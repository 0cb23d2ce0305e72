import type { Writable } from "node:stream";

import { waitFor } from "../../base/wait.ts";

/** The reader of the output has closed it, as `head` does. The command ends, and did not fail. */
export class OutputClosed extends Error {
  override readonly name = "OutputClosed";
}

/**
 * Standard output with backpressure. After a failure every method rejects with its error; OutputClosed if the reader has
 * closed the stream.
 */
export class Output {
  readonly #stream: Writable;
  readonly #failed = new AbortController();

  constructor(stream: Writable) {
    this.#stream = stream;
    stream.on("error", (error: NodeJS.ErrnoException) => {
      const gone = error.code === "EPIPE" || error.code === "ERR_STREAM_DESTROYED";
      this.#failed.abort(gone ? new OutputClosed(error.message) : error);
    });
  }

  /** Aborted after a failure, with its error as the reason. */
  get failed(): AbortSignal {
    return this.#failed.signal;
  }

  /** Writes a chunk. Resolves when there is room for more. */
  async write(chunk: string | Uint8Array): Promise<void> {
    this.#failed.signal.throwIfAborted();
    if (chunk.length === 0 || this.#stream.write(chunk)) return;
    await this.#until((done) => {
      this.#stream.once("drain", done);
      return () => this.#stream.off("drain", done);
    });
  }

  /** Resolves when everything has been written. */
  async flush(): Promise<void> {
    await this.#until((done) => {
      this.#stream.write("", () => done());
      return () => {};
    });
  }

  #until(subscribe: (done: () => void) => () => void): Promise<void> {
    return waitFor<void>((resolve) => subscribe(resolve), { signal: this.#failed.signal });
  }
}
