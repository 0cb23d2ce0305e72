import type { WatchOptions } from "../../../src/client/calls/options.ts";
import type { Client } from "../../../src/client/client.ts";
import type { AtomicBatch } from "../../../src/client/watch/batch-assembler.ts";

/** A client that knows what those who watch through it have taken in. */
export class ObservedClient {
  readonly #client: Client;
  /** Up to which revision each key's watch has been taken in. */
  readonly #taken = new Map<string, number>();
  /** How many initial states of each key have been taken in. */
  readonly #begun = new Map<string, number>();
  #wake = Promise.withResolvers<void>();

  constructor(client: Client) {
    this.#client = client;
  }

  readonly watch = (
    resource: string,
    options: WatchOptions = {},
  ): AsyncGenerator<AtomicBatch, void, void> => this.#watch(resource, options);

  /** Resolves once all up to `revision` that is of `key` has been taken in. */
  async untilTaken(key: string, revision: number): Promise<void> {
    while ((this.#taken.get(key) ?? 0) < revision) await this.#wake.promise;
  }

  /** Resolves once so many initial states of `key` have been taken in, whatever revisions they are at. */
  async untilBegun(key: string, times: number): Promise<void> {
    while ((this.#begun.get(key) ?? 0) < times) await this.#wake.promise;
  }

  async *#watch(resource: string, options: WatchOptions): AsyncGenerator<AtomicBatch, void, void> {
    const { scope = { prefix: "" } } = options;
    const key = "key" in scope ? scope.key : "";
    for await (const unit of this.#client.watch(resource, options)) {
      yield unit;
      // Whoever asks for the next unit is through with this one.
      this.#taken.set(key, unit.revision);
      if (unit.initial) this.#begun.set(key, (this.#begun.get(key) ?? 0) + 1);
      this.#wake.resolve();
      this.#wake = Promise.withResolvers();
    }
  }
}
