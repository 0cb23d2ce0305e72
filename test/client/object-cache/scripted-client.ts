import type { WatchOptions } from "../../../src/client/calls/options.ts";
import type { AtomicBatch } from "../../../src/client/watch/client-calls.ts";
import { type EventType, WatchEvent } from "../../../src/model/event.ts";
import { StoredObject } from "../../../src/model/object.ts";

export function objectAt(key: string, modRevision: number, value: string): StoredObject {
  return new StoredObject(key, Buffer.from(value), 1, modRevision, 1, 0n);
}

/** One watch whose batches a test scripts. */
export class ScriptedWatch {
  readonly key: string;
  readonly options: WatchOptions;
  /** Whether it has neither failed nor been cancelled by its reader. */
  open = true;
  /** The promise that delays its end. */
  lastRites: Promise<void> | undefined;
  readonly #units: AtomicBatch[] = [];
  #failure: Error | undefined;
  #wake: () => void = () => {};

  constructor(options: WatchOptions) {
    const { scope = { prefix: "" } } = options;
    this.key = "key" in scope ? scope.key : "";
    this.options = options;
    options.signal?.addEventListener("abort", () => {
      this.open = false;
      this.#wake();
    });
  }

  /** The whole state at a revision: the object with this value, or no object. */
  initial(revision: number, value?: string): void {
    const object = value === undefined ? [] : [objectAt(this.key, revision, value)];
    const events = object.map((each) => new WatchEvent("ADDED", each, undefined));
    this.#push({ revision, events, initial: true, historyId: "h" });
  }

  change(type: EventType, revision: number, value = ""): void {
    const events = [new WatchEvent(type, objectAt(this.key, revision, value), undefined)];
    this.#push({ revision, events, initial: false, historyId: "h" });
  }

  /** Several changes in one batch: the value after each; undefined for a deletion. */
  changes(revision: number, ...values: readonly (string | undefined)[]): void {
    const events = values.map((value, n) => {
      const type = value === undefined ? "DELETED" : "MODIFIED";
      return new WatchEvent(type, objectAt(this.key, revision + n, value ?? ""), undefined);
    });
    this.#push({ revision: revision + values.length, events, initial: false, historyId: "h" });
  }

  bookmark(revision: number): void {
    this.#push({ revision, events: [], initial: false, historyId: "h" });
  }

  fail(error: Error): void {
    this.#failure = error;
    this.open = false;
    this.#wake();
  }

  /** Ends without an error, which a watch must not do. */
  finish(): void {
    this.open = false;
    this.#wake();
  }

  async *units(): AsyncGenerator<AtomicBatch, void, void> {
    try {
      for (;;) {
        const next = this.#units.shift();
        if (next !== undefined) yield next;
        else if (this.#failure !== undefined) throw this.#failure;
        else if (!this.open) return;
        else {
          await new Promise<void>((resolve) => {
            this.#wake = resolve;
          });
        }
      }
    } finally {
      this.open = false;
      await this.lastRites;
    }
  }

  #push(unit: AtomicBatch): void {
    this.#units.push(unit);
    this.#wake();
  }
}

/** A client with scripted watches. */
export class ScriptedClient {
  readonly watches: ScriptedWatch[] = [];
  /** Called for each watch that is opened. */
  onWatch: (watch: ScriptedWatch) => void = () => {};

  readonly watch = (
    _resource: string,
    options: WatchOptions = {},
  ): AsyncGenerator<AtomicBatch, void, void> => {
    const watch = new ScriptedWatch(options);
    this.watches.push(watch);
    this.onWatch(watch);
    return watch.units();
  };

  /** The latest watch of `key`. */
  of(key: string): ScriptedWatch {
    const watch = this.watches.findLast((each) => each.key === key);
    if (watch === undefined) throw new Error(`No watch of ${key}.`);
    return watch;
  }

  /** The keys of the open watches, in order; one that is watched twice is listed twice. */
  get open(): string[] {
    return this.watches
      .filter(({ open }) => open)
      .map(({ key }) => key)
      .sort();
  }
}
