/**
 * Lets the fills of several resources over one store take turns, piece by piece, so that all together cost
 * the store no more than one does.
 */
export class BackfillQueue {
  #last: Promise<void> = Promise.resolve();

  /** Does `work` after everyone's work that was given before it. */
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
