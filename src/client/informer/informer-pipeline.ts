import type { Clock, Timer } from "../../base/clock.ts";
import type { WatchBatch } from "../../model/event.ts";
import { StoredObject } from "../../model/object.ts";
import type { ListedState, ReflectorTarget, ReplaceCause } from "../../reflector/reflector.ts";
import { DeletedFinalStateUnknown } from "./delta-fifo/delta.ts";
import { DeltaFIFO, type KnownObjects } from "./delta-fifo/delta-fifo.ts";
import type { Arriving, IndexerUpdates } from "./indexer-updates.ts";
import { heldBytes, StateSize } from "./state-size.ts";

/** For how long changes are taken in until the event loop gets its turn, in milliseconds. */
const sliceMs = 5;

export interface InformerPipelineOptions<T> {
  readonly known: KnownObjects<Arriving<T>>;
  readonly updates: IndexerUpdates<T>;
  readonly clock: Clock;
  readonly queueSize: number | undefined;
  readonly queueBytes: number;
  /** How many bytes of objects may arrive in all. */
  readonly maxBytes: number;
  /** Called when more than that would have: it was not taken in, and the state has to be listed anew. */
  readonly onTooLarge: () => void;
  /** Called once, when all of the first state is in the Indexer. */
  readonly onSynced: () => void;
  /** Called with a fault of ours, which nothing can go on after. */
  readonly onFault: (error: unknown) => void;
}

/**
 * From a Reflector to an Indexer, by way of a DeltaFIFO: what arrives waits there, and is taken in slices, so
 * that 100,000 objects to decode hold nobody up for longer than a slice.
 */
export class InformerPipeline<T> implements ReflectorTarget {
  readonly #options: InformerPipelineOptions<T>;
  readonly #fifo: DeltaFIFO<Arriving<T>>;
  readonly #size = new StateSize();
  #slice: Timer | undefined;
  #hasSynced = false;
  /** Everything up to here has arrived. */
  #arrived = 0;
  #revision: number | undefined;
  readonly #drained: (() => void)[] = [];

  constructor(options: InformerPipelineOptions<T>) {
    this.#options = options;
    this.#fifo = new DeltaFIFO({
      known: options.known,
      capacity: options.queueSize,
      capacityBytes: options.queueBytes,
      bytesOf: ownBytes,
    });
  }

  /** How many keys wait. */
  get pendingKeys(): number {
    return this.#fifo.length;
  }

  /** Whether all of the first state is in the Indexer. */
  get hasSynced(): boolean {
    return this.#hasSynced;
  }

  /** Everything up to this revision is in the Indexer; undefined before the first state is. */
  get revision(): number | undefined {
    return this.#revision;
  }

  replace({ objects, revision }: ListedState, cause: ReplaceCause): void {
    if (cause === "history changed") this.#options.updates.recheck(objects);
    this.#size.replace(objects);
    this.#fifo.replace(objects);
    this.#arrive(revision);
  }

  apply({ events, revision }: WatchBatch): void {
    if (this.#size.mostAfter(events) > this.#options.maxBytes) {
      this.#options.onTooLarge();
      return;
    }
    this.#size.apply(events);
    for (const { type, object } of events) {
      if (type === "DELETED") this.#delete(object);
      else if (type === "ADDED") this.#fifo.add(object);
      else this.#fifo.update(object);
    }
    this.#arrive(revision ?? this.#arrived);
  }

  /** Hands out all that is in the Indexer again. */
  resync(): void {
    this.#fifo.resync();
    this.#wake();
  }

  /** Resolves when nothing waits any more. */
  drain(): Promise<void> {
    if (this.#slice === undefined) return Promise.resolve();
    return new Promise((resolve) => this.#drained.push(resolve));
  }

  /** Drops what waits. */
  close(): void {
    this.#slice?.cancel();
    this.#slice = undefined;
    this.#fifo.clear();
    for (const resolve of this.#drained.splice(0)) resolve();
  }

  /** A watch for who keeps the state tells only the key and the revision of what is deleted. */
  #delete({ key, modRevision }: StoredObject): void {
    const last = this.#fifo.get(key);
    if (last === undefined) return;
    this.#fifo.delete(
      last instanceof StoredObject ? last.deletedAt(modRevision) : { ...last, modRevision },
    );
  }

  #arrive(revision: number): void {
    this.#arrived = revision;
    this.#wake();
  }

  #wake(): void {
    this.#slice ??= this.#options.clock.setImmediate(() => this.#takeSlice());
  }

  #takeSlice(): void {
    const { clock, updates, onFault } = this.#options;
    this.#slice = undefined;
    const until = clock.now() + sliceMs;
    try {
      while (this.#fifo.popNow((deltas, isInitial) => updates.apply(deltas, isInitial))) {
        if (clock.now() >= until) break;
      }
    } catch (error) {
      onFault(error);
      return;
    }
    if (!this.#hasSynced && this.#fifo.hasSynced) {
      this.#hasSynced = true;
      this.#options.onSynced();
    }
    if (this.#fifo.length > 0) {
      this.#wake();
      return;
    }
    this.#revision = this.#arrived;
    for (const resolve of this.#drained.splice(0)) resolve();
  }
}

/** What is from the Indexer is there anyway. */
function ownBytes<T>(object: Arriving<T> | DeletedFinalStateUnknown<Arriving<T>>): number {
  const last = object instanceof DeletedFinalStateUnknown ? object.object : object;
  return last instanceof StoredObject ? heldBytes(last) : 0;
}
