import type { Clock } from "../../base/clock.ts";
import { EventLoopTurns, type TurnWorker } from "../../base/event-loop-turns.ts";
import { Condition, type WaitBounds } from "../../base/wait.ts";
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
  #arrived: number | undefined;
  #revision: number | undefined;
  /**
   * Once this many keys were applied in all, everything up to `#markedRevision` is in the Indexer. So the revision also
   * advances while keys arrive as fast as they are applied, and the queue is never empty.
   */
  #markedKeys = 0;
  #markedRevision: number | undefined;
  /** Number of keys that were applied. */
  #appliedKeys = 0;
  /**
   * Once this many keys were applied in all, the state is that of the server. It is not before, if it was kept on disk:
   * infinite until the server has confirmed or replaced it.
   */
  #confirmedKeys = 0;
  #historyId = "";
  #historyChanges = 0;
  /** When something was received last, by the clock; undefined before. */
  #receivedAt: number | undefined;
  /** Notified when the revision or the history changes, and when nothing is pending any more. */
  readonly #progress = new Condition();

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

  /** Everything up to this revision is in the Indexer; undefined before the first list of a history is. */
  get revision(): number | undefined {
    return this.#confirmedKeys === Infinity ? undefined : this.#revision;
  }

  /** The history that the revision belongs to; empty if it is not known. */
  get historyId(): string {
    return this.#historyId;
  }

  /** Number of times that the history has changed. */
  get historyChanges(): number {
    return this.#historyChanges;
  }

  /** Time since something was received, in milliseconds; undefined before. */
  get silentMs(): number | undefined {
    return this.#receivedAt === undefined
      ? undefined
      : this.#options.clock.now() - this.#receivedAt;
  }

  /** Whether a state fits the bound. */
  fits(objects: readonly StoredObject[]): boolean {
    const bytes = objects.reduce((sum, object) => sum + heldBytes(object), 0);
    return bytes <= this.#options.maxBytes;
  }

  replace({ objects, revision, historyId, kept }: ListedState, cause: ReplaceCause): void {
    this.#historyId = historyId;
    this.#size.replace(objects);
    this.#fifo.replace(objects);
    if (kept === undefined) this.#confirm();
    else this.#confirmedKeys = Infinity;
    this.#arrive(revision);
    if (cause !== "history changed") return;
    this.#options.updates.recheck(objects);
    this.#revision = undefined;
    this.#historyChanges++;
    this.#mark();
    this.#progress.notify();
  }

  identify(historyId: string): void {
    this.#historyId = historyId;
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
    this.#confirm();
    this.#arrive(revision ?? this.#arrived);
  }

  /** Notifies handlers of every object in the Indexer again. */
  resync(): void {
    this.#fifo.resync();
    this.#wake();
  }

  /** Resolves when everything that has arrived is in the Indexer. */
  drain(): Promise<void> {
    return this.#progress.until(() => !this.#isPending, {});
  }

  /** Resolves once `isTrue`, which may depend on the revision and the history, and at the deadline. */
  until(isTrue: () => boolean, bounds: WaitBounds<void>): Promise<void> {
    return this.#progress.until(isTrue, bounds);
  }

  /** Drops everything that is not in the Indexer yet. */
  close(): void {
    this.#isPending = false;
    this.#fifo.clear();
    this.#progress.notify();
  }

  /** A DELETED event may carry only the key and the revision, so the last known value is taken from here. */
  #delete({ key, modRevision }: StoredObject): void {
    const last = this.#fifo.get(key);
    if (last === undefined) return;
    this.#fifo.delete(
      last instanceof StoredObject ? last.deletedAt(modRevision) : { ...last, modRevision },
    );
  }

  #arrive(revision: number | undefined): void {
    this.#arrived = revision;
    this.#receivedAt = this.#options.clock.now();
    this.#wake();
  }

  /** What has arrived until now is from the server. */
  #confirm(): void {
    if (this.#confirmedKeys !== Infinity) return;
    this.#confirmedKeys = this.#appliedKeys + this.#fifo.length;
  }

  /** What has arrived until now is the next that the revision advances to. */
  #mark(): void {
    this.#markedKeys = this.#appliedKeys + this.#fifo.length;
    this.#markedRevision = this.#arrived;
  }

  #wake(): void {
    if (!this.#isPending) this.#mark();
    this.#isPending = true;
    this.#turns.schedule(this);
  }

  /** For `EventLoopTurns`. */
  work(until: number): boolean {
    if (!this.#isPending) return false;
    const { clock, updates, onFault } = this.#options;
    try {
      while (this.#fifo.popNow((deltas, isInitial) => updates.apply(deltas, isInitial))) {
        this.#appliedKeys++;
        if (clock.now() >= until) break;
      }
    } catch (error) {
      this.#isPending = false;
      onFault(error);
      return false;
    }
    const isConfirmed = this.#appliedKeys >= this.#confirmedKeys;
    if (!this.#hasSynced && isConfirmed && this.#fifo.hasSynced) {
      this.#hasSynced = true;
      this.#options.onSynced();
    }
    this.#isPending = this.#fifo.length > 0;
    if (this.#isPending && this.#appliedKeys < this.#markedKeys) return true;
    this.#revision = this.#isPending ? this.#markedRevision : this.#arrived;
    this.#mark();
    this.#progress.notify();
    return this.#isPending;
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
