import { upstreamUnavailable } from "../base/errors.ts";
import type { WatchBatch } from "../model/event.ts";
import type { WatchStream } from "../storage/storage.ts";

export interface WatchSessionDeps {
  readonly stream: WatchStream;
  /**
   * Awaited before the first batch is delivered, where it is given. It begins when that has come, so that the watch
   * stands: a store that is put back later breaks it, and one that was put back before is what is asked.
   */
  readonly confirm: ((signal: AbortSignal) => Promise<void>) | undefined;
  readonly deliver: (batch: WatchBatch) => void;
  /** Rejects with what else ends the watch, and resolves when the signal is aborted. */
  readonly guard: (signal: AbortSignal) => Promise<void>;
}

/** One watch of a Reflector, from when it is opened to its end. */
export class WatchSession {
  /** Rejects with why the watch broke; resolves if it was left. */
  readonly ended: Promise<void>;
  readonly #deps: WatchSessionDeps;
  readonly #ending = new AbortController();
  readonly #end = Promise.withResolvers<void>();
  #isConfirmed: boolean;

  constructor(deps: WatchSessionDeps) {
    this.#deps = deps;
    this.#isConfirmed = deps.confirm === undefined;
    this.ended = this.#end.promise.finally(() => this.#ending.abort());
    deps.stream.onReadable(() => this.#deliver());
    this.#deliver();
    deps.guard(this.#ending.signal).catch((error: unknown) => this.#fail(error));
  }

  /** Nothing is delivered after this. Harmless when called twice. */
  stop(): void {
    this.#ending.abort();
    this.#end.resolve();
    this.#deps.stream.close();
  }

  #deliver(): void {
    const { stream, deliver } = this.#deps;
    try {
      for (let batch = stream.read(); batch !== undefined; batch = stream.read()) {
        if (!this.#isConfirmed) {
          this.#confirm(batch);
          return;
        }
        deliver(batch);
      }
    } catch (error) {
      this.#fail(error);
      return;
    }
    if (stream.ended === undefined) return;
    // Nobody but us closes it, and then it has been left.
    this.#end.reject(stream.ended ?? upstreamUnavailable("The storage closed the watch."));
  }

  /** Nothing is read meanwhile, so that the storage holds back what comes. */
  #confirm(first: WatchBatch): void {
    const { confirm, deliver } = this.#deps;
    const { signal } = this.#ending;
    const goOn = (): void => {
      if (signal.aborted) return;
      this.#isConfirmed = true;
      deliver(first);
      this.#deliver();
    };
    confirm?.(signal)
      .then(goOn)
      .catch((error: unknown) => this.#fail(error));
  }

  #fail(error: unknown): void {
    this.#deps.stream.close();
    this.#end.reject(error);
  }
}
