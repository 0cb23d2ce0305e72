/**
 * A fault of a test service. With `using` it ends with the block:
 *
 *     using held = service.holdWatches("pods");
 */
export class Fault {
  /** Resolves when the fault has had an effect for the first time: a call has failed, or waits. */
  readonly happened: Promise<void>;
  readonly #happened = Promise.withResolvers<void>();
  readonly #onEnd: () => void;
  #isOver = false;

  /** @internal */
  constructor(onEnd: () => void) {
    this.#onEnd = onEnd;
    this.happened = this.#happened.promise;
  }

  /** @internal */
  happens(): void {
    this.#happened.resolve();
  }

  /** Ends the fault, and releases what it holds. Idempotent; has no effect after a fault that happens once. */
  end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#onEnd();
  }

  /** The same as `end`, for `using`. */
  [Symbol.dispose](): void {
    this.end();
  }
}
