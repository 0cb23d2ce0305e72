/**
 * The store's current revision, asked for as seldom as is right: callers share an answer, but never
 * one that was asked for before their call began, as a write that completed in between would be missing
 * from it.
 */
export class SharedRevision {
  readonly #ask: () => Promise<number>;
  #asking = false;
  /** The question not yet asked, which whoever calls now may share. */
  #next: PromiseWithResolvers<number> | undefined;
  #newest = 0;

  constructor(ask: () => Promise<number>) {
    this.#ask = ask;
  }

  /** The newest revision that the store is known to have had. */
  get newest(): number {
    return this.#newest;
  }

  /** The store's history has become another one, in which revisions may be lower. */
  forget(): void {
    this.#newest = 0;
  }

  /** Rejects as the store's own answer does. */
  current(): Promise<number> {
    this.#next ??= Promise.withResolvers<number>();
    const { promise } = this.#next;
    if (!this.#asking) this.#askNext();
    return promise;
  }

  #askNext(): void {
    const question = this.#next;
    if (question === undefined) return;
    this.#next = undefined;
    this.#asking = true;
    this.#ask().then(
      (revision) => {
        this.#newest = Math.max(this.#newest, revision);
        this.#done();
        question.resolve(revision);
      },
      (error: unknown) => {
        this.#done();
        question.reject(error);
      },
    );
  }

  #done(): void {
    this.#asking = false;
    this.#askNext();
  }
}
