import type { KeptState, ReplacedState, StateKeeper } from "../../src/cache-files/kept-state.ts";
import type { WatchBatch, WatchEvent } from "../../src/model/event.ts";
import { compareKeys } from "../../src/model/key-order.ts";
import type { StoredObject } from "../../src/model/object.ts";

/** What the keepers of one cache keep, in memory: it outlives them, as a disk does. */
export class MemoryDisk {
  readonly #timeOfDay: () => number;
  #base: (ReplacedState & { readonly at: number }) | undefined;
  #batches: { readonly batch: WatchBatch; readonly at: number }[] = [];
  #historyId = "";

  /** `timeOfDay`: in milliseconds since the epoch. */
  constructor(timeOfDay: () => number) {
    this.#timeOfDay = timeOfDay;
  }

  /** The keeper of a process. */
  keeper(): StateKeeper {
    return {
      load: async () => this.state,
      replace: (state) => {
        this.#base = { ...state, at: this.#timeOfDay() };
        this.#historyId = state.historyId;
        this.#batches = [];
      },
      append: (batch) => {
        if (this.#base !== undefined) this.#batches.push({ batch, at: this.#timeOfDay() });
      },
      identify: (historyId) => {
        this.#historyId = historyId;
      },
      invalidate: () => {
        this.#base = undefined;
        this.#batches = [];
      },
      close: async () => {},
    };
  }

  /** Another disk, with what this one has now. */
  copy(): MemoryDisk {
    const copy = new MemoryDisk(this.#timeOfDay);
    copy.#base = this.#base;
    copy.#batches = [...this.#batches];
    copy.#historyId = this.#historyId;
    return copy;
  }

  /** Loses the newest batches, as a crash does: what remains is an older state. */
  lose(batches: number): void {
    this.#batches.splice(Math.max(0, this.#batches.length - batches));
  }

  get state(): KeptState | undefined {
    const base = this.#base;
    if (base === undefined) return undefined;
    const objects = new Map<string, StoredObject>();
    for (const object of base.objects) objects.set(object.key, object);
    const events: WatchEvent[] = [];
    let { revision } = base;
    for (const { batch } of this.#batches) {
      for (const event of batch.events) {
        checkPrevious(event, objects.get(event.object.key));
        if (event.type === "DELETED") objects.delete(event.object.key);
        else objects.set(event.object.key, event.object);
        events.push(event);
      }
      revision = Math.max(revision, batch.revision ?? 0);
    }
    return {
      historyId: this.#historyId,
      revision,
      objects: [...objects.values()].sort((a, b) => compareKeys(a.key, b.key)),
      events,
      eventsAfter: base.revision,
      syncedAt: this.#batches.at(-1)?.at ?? base.at,
    };
  }
}

function checkPrevious({ object, previous }: WatchEvent, known: StoredObject | undefined): void {
  if (previous?.modRevision === known?.modRevision) return;
  const text = `${JSON.stringify(object.key)} at ${object.modRevision}`;
  throw new Error(`The event of ${text} was kept without the object before it.`);
}
