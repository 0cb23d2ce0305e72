import type { WatchOptions } from "../../../src/client/calls/options.ts";
import type { Client } from "../../../src/client/client.ts";
import type { AtomicBatch, ClientCalls } from "../../../src/client/watch/client-calls.ts";

/** A client that records which batches the readers of its watches have processed. */
export class ObservedClient {
  readonly #client: Client;
  /** What opens the watches. */
  #calls: Pick<ClientCalls, "watch">;
  /** The revision up to which each key's watch was processed. */
  readonly #taken = new Map<string, number>();
  /** How many initial states of each key were processed. */
  readonly #begun = new Map<string, number>();
  #wake = Promise.withResolvers<void>();

  constructor(client: Client) {
    this.#client = client;
    this.#calls = client;
  }

  subscribe(): this {
    this.#calls = this.#client.subscribe();
    return this;
  }

  readonly watch = (
    resource: string,
    options: WatchOptions = {},
  ): AsyncGenerator<AtomicBatch, void, void> => this.#watch(resource, options);

  /** Resolves when every batch of `key` up to `revision` was processed. */
  async untilTaken(key: string, revision: number): Promise<void> {
    while ((this.#taken.get(key) ?? 0) < revision) await this.#wake.promise;
  }

  /** Resolves when this many initial states of `key` were processed, at any revision. */
  async untilBegun(key: string, times: number): Promise<void> {
    while ((this.#begun.get(key) ?? 0) < times) await this.#wake.promise;
  }

  async *#watch(resource: string, options: WatchOptions): AsyncGenerator<AtomicBatch, void, void> {
    const { scope = { prefix: "" } } = options;
    const key = "key" in scope ? scope.key : "";
    for await (const unit of this.#calls.watch(resource, options)) {
      yield unit;
      // A reader that requests the next batch has processed this one.
      this.#taken.set(key, unit.revision);
      if (unit.initial) this.#begun.set(key, (this.#begun.get(key) ?? 0) + 1);
      this.#wake.resolve();
      this.#wake = Promise.withResolvers();
    }
  }
}
