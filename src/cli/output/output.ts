import type { Writable } from "node:stream";

/** Whoever read the output has closed it, as `head` does: there is no more to do, and nothing failed. */
export class OutputClosed extends Error {
  override readonly name = "OutputClosed";
}

/**
 * Standard output, written no faster than it is read. After a failure everything rejects with it:
 * OutputClosed where the reader went away.
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

  /** Aborted, with the failure as its reason, as soon as nothing can be written any more. */
  get failed(): AbortSignal {
    return this.#failed.signal;
  }

  /** Resolves when there is room for more. */
  async write(chunk: string | Uint8Array): Promise<void> {
    this.#failed.signal.throwIfAborted();
    if (chunk.length === 0 || this.#stream.write(chunk)) return;
    await this.#until((done) => {
      this.#stream.once("drain", done);
      return () => this.#stream.off("drain", done);
    });
  }

  /** Resolves when everything has been handed over. */
  async flush(): Promise<void> {
    await this.#until((done) => {
      this.#stream.write("", () => done());
      return () => {};
    });
  }

  #until(subscribe: (done: () => void) => () => void): Promise<void> {
    return new Promise((resolve, reject) => {
      const { signal } = this.#failed;
      if (signal.aborted) return reject(signal.reason);
      const fail = (): void => {
        unsubscribe();
        reject(signal.reason);
      };
      const unsubscribe = subscribe(() => {
        signal.removeEventListener("abort", fail);
        resolve();
      });
      signal.addEventListener("abort", fail);
    });
  }
}
