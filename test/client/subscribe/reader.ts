import type { WatchOptions } from "../../../src/client/calls/options.ts";
import type { AtomicBatch, ClientCalls } from "../../../src/client/watch/client-calls.ts";
import { requiresRelist } from "../../../src/client/watch/resuming-watch.ts";
import type { WatchEvent } from "../../../src/model/event.ts";

/** Reads a watch, batch by batch, as fast as its test lets it. Starts again when it must be relisted. */
export class Reader {
  readonly batches: AtomicBatch[] = [];
  /** How often it has started again. */
  relists = 0;
  /** Why it has ended; undefined: its signal was aborted, or it has not. */
  failure: unknown;
  readonly ended: Promise<void>;
  #gate: PromiseWithResolvers<void> | undefined;

  constructor(calls: Pick<ClientCalls, "watch">, resource: string, options: WatchOptions) {
    this.ended = this.#read(calls, resource, options).catch((error: unknown) => {
      this.failure = error;
    });
  }

  /** The last resume point; 0: none. */
  get revision(): number {
    return this.batches.at(-1)?.revision ?? 0;
  }

  /** The events in their order, in a line each. */
  get events(): string[] {
    return this.batches.flatMap(({ events }) => events.map(lineOf));
  }

  /** The objects that the events since the last initial state lead to. */
  get state(): Record<string, string> {
    const from = this.batches.findLastIndex(({ initial }) => initial);
    const state = new Map<string, string>();
    for (const { events } of this.batches.slice(Math.max(0, from))) {
      for (const { type, object } of events) {
        if (type === "DELETED") state.delete(object.key);
        else state.set(object.key, `${object.modRevision} ${Buffer.from(object.value)}`);
      }
    }
    return Object.fromEntries([...state].sort());
  }

  /** Stays with the batch that it has, or takes none, until `resume`. */
  pause(): void {
    this.#gate ??= Promise.withResolvers();
  }

  resume(): void {
    this.#gate?.resolve();
    this.#gate = undefined;
  }

  async #read(
    calls: Pick<ClientCalls, "watch">,
    resource: string,
    options: WatchOptions,
  ): Promise<void> {
    let current = options;
    for (;;) {
      try {
        for await (const batch of calls.watch(resource, current)) {
          this.batches.push(batch);
          while (this.#gate !== undefined) await this.#gate.promise;
        }
        return;
      } catch (error) {
        if (!requiresRelist(error)) throw error;
        this.relists++;
        const { afterRevision: _, historyId: __, ...rest } = options;
        current = { ...rest, sendInitialEvents: true };
      }
    }
  }
}

function lineOf({ type, object, previous, revision }: WatchEvent): string {
  const before = previous === undefined ? "" : ` after ${Buffer.from(previous.value)}`;
  return `${revision} ${type} ${object.key} ${Buffer.from(object.value)}${before}`;
}
