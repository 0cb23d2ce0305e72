/**
 * Serializes the backfills of several resources of one store, chunk by chunk, so that all together cost the store no
 * more than one of them.
 */
export class BackfillQueue {
  #last: Promise<void> = Promise.resolve();

  /** Runs `work` after all work that was queued before it. */
  async run<T>(work: () => Promise<T>): Promise<T> {
    const before = this.#last;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#last = promise;
    await before;
    try {
      return await work();
    } finally {
      resolve();
    }
  }
}
