import { upstreamUnavailable } from "../base/errors.ts";
import type { WatchBatch } from "../model/event.ts";
import type { WatchStream } from "../storage/storage.ts";

interface WatchSessionDeps {
  readonly stream: WatchStream;
  /**
   * Awaited before the first batch is delivered, if it is defined. Begins when that batch has come, so that the watch
   * exists: a later restore of the store breaks the watch, and an earlier one is what this checks.
   */
  readonly confirm: ((signal: AbortSignal) => Promise<void>) | undefined;
  readonly deliver: (batch: WatchBatch) => void;
  /** Rejects with another reason to end the watch, and resolves when the signal is aborted. */
  readonly guard: (signal: AbortSignal) => Promise<void>;
}

/** One watch of a Reflector. */
export class WatchSession {
  /** Rejects with why the watch broke; resolves after `stop`. */
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

  /** Nothing is delivered after this. Idempotent. */
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
    // `null` means closed, which only `stop` does, after it has resolved `ended`.
    this.#end.reject(stream.ended ?? upstreamUnavailable("The storage closed the watch."));
  }

  /** Reads nothing until the check is done, so that the storage exerts back-pressure. */
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
