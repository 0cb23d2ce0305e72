import type { Clock } from "../../base/clock.ts";
import { EventLoopTurns, type TurnWorker } from "../../base/event-loop-turns.ts";
import { Condition } from "../../base/wait.ts";
import { memoryOverheadBytes, type WatchBatch, type WatchEvent } from "../../model/event.ts";
import { estimatedBytes, StoredObject } from "../../model/object.ts";
import type { ListedState, ReflectorTarget, ReplaceCause } from "../../reflector/reflector.ts";
import { DeletedFinalStateUnknown, DeltaFIFO, type KnownObjects } from "./delta-fifo/delta-fifo.ts";
import type { Arriving, IndexerUpdates } from "./indexer-updates.ts";

interface InformerPipelineOptions<T> {
  readonly known: KnownObjects<Arriving<T>>;
  readonly updates: IndexerUpdates<T>;
  readonly clock: Clock;
  readonly queueSize: number | undefined;
  readonly queueBytes: number;
  /** Maximum estimated bytes of the state. */
  readonly maxBytes: number;
  /** Called when a batch would exceed `maxBytes`. The batch was dropped, so the state must be listed again. */
  readonly onTooLarge: () => void;
  /** Called once, when the whole initial list is in the Indexer. */
  readonly onSynced: () => void;
  /** Called with an error that indicates a bug. The pipeline has stopped. */
  readonly onFault: (error: unknown) => void;
}

/**
 * Passes changes from a Reflector through a DeltaFIFO to an Indexer. Changes are decoded and applied in time
 * slices, so that a list of 100,000 objects does not block the event loop for longer than a slice.
 */
export class InformerPipeline<T> implements ReflectorTarget, TurnWorker {
  readonly #options: InformerPipelineOptions<T>;
  readonly #fifo: DeltaFIFO<Arriving<T>>;
  readonly #turns: EventLoopTurns;
  readonly #size = new StateSize();
  /** Whether there is anything to apply, even if it is only a newer revision. */
  #isPending = false;
  #hasSynced = false;
  /** Everything up to and including this revision has arrived. */
  #arrived = 0;
  #revision: number | undefined;
  /** Notified when nothing is pending any more. */
  readonly #drained = new Condition();

  constructor(options: InformerPipelineOptions<T>) {
    this.#options = options;
    this.#turns = EventLoopTurns.of(options.clock);
    this.#fifo = new DeltaFIFO({
      known: options.known,
      capacity: options.queueSize,
      capacityBytes: options.queueBytes,
      bytesOf: ownBytes,
    });
  }

  /** Number of keys whose changes are not in the Indexer yet. */
  get pendingKeys(): number {
    return this.#fifo.length;
  }

  /** Whether the whole initial list is in the Indexer. */
  get hasSynced(): boolean {
    return this.#hasSynced;
  }

  /** Everything up to this revision is in the Indexer; undefined before it has synced. */
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

  /** Notifies handlers of every object in the Indexer again. */
  resync(): void {
    this.#fifo.resync();
    this.#wake();
  }

  /** Resolves when everything that has arrived is in the Indexer. */
  drain(): Promise<void> {
    return this.#drained.until(() => !this.#isPending, {});
  }

  /** Drops everything that is not in the Indexer yet. */
  close(): void {
    this.#isPending = false;
    this.#fifo.clear();
    this.#drained.notify();
  }

  /** A DELETED event may carry only the key and the revision, so the last known value is taken from here. */
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
    this.#isPending = true;
    this.#turns.schedule(this);
  }

  /** For `EventLoopTurns`. */
  work(until: number): boolean {
    if (!this.#isPending) return false;
    const { clock, updates, onFault } = this.#options;
    try {
      while (this.#fifo.popNow((deltas, isInitial) => updates.apply(deltas, isInitial))) {
        if (clock.now() >= until) break;
      }
    } catch (error) {
      this.#isPending = false;
      onFault(error);
      return false;
    }
    if (!this.#hasSynced && this.#fifo.hasSynced) {
      this.#hasSynced = true;
      this.#options.onSynced();
    }
    if (this.#fifo.length > 0) return true;
    this.#isPending = false;
    this.#revision = this.#arrived;
    this.#drained.notify();
    return false;
  }
}

/** An object of the Indexer costs nothing more while it is queued. */
function ownBytes<T>(object: Arriving<T> | DeletedFinalStateUnknown<Arriving<T>>): number {
  const last = object instanceof DeletedFinalStateUnknown ? object.object : object;
  return last instanceof StoredObject ? heldBytes(last) : 0;
}

/** Counts the bytes of the latest state of all objects that have arrived, whether or not they are in the Indexer. */
class StateSize {
  readonly #sizes = new Map<string, number>();
  #bytes = 0;

  get bytes(): number {
    return this.#bytes;
  }

  replace(objects: readonly StoredObject[]): void {
    this.#sizes.clear();
    this.#bytes = 0;
    for (const object of objects) this.#set(object);
  }

  apply(events: readonly WatchEvent[]): void {
    for (const { type, object } of events) {
      if (type === "DELETED") this.#delete(object.key);
      else this.#set(object);
    }
  }

  /** Maximum size after these events, in bytes: deletions are not counted. */
  mostAfter(events: readonly WatchEvent[]): number {
    let bytes = this.#bytes;
    for (const { type, object } of events) {
      if (type !== "DELETED") bytes += heldBytes(object) - (this.#sizes.get(object.key) ?? 0);
    }
    return bytes;
  }

  #set(object: StoredObject): void {
    this.#delete(object.key);
    const bytes = heldBytes(object);
    this.#sizes.set(object.key, bytes);
    this.#bytes += bytes;
  }

  #delete(key: string): void {
    this.#bytes -= this.#sizes.get(key) ?? 0;
    this.#sizes.delete(key);
  }
}

/** The memory of an object, in bytes. */
function heldBytes(object: StoredObject): number {
  return estimatedBytes(object) + memoryOverheadBytes;
}
