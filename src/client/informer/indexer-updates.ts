import { estimatedBytes, StoredObject } from "../../model/object.ts";
import type { TypedObject } from "../values/typed-object.ts";
import { DeletedFinalStateUnknown, type Delta, type Deltas } from "./delta-fifo/delta.ts";
import { Notification } from "./handlers/handler-queue.ts";
import type { RejectedObjectError } from "./handlers/informer-errors.ts";
import type { Indexer } from "./indexer/indexer.ts";
import { IndexError } from "./indexer/object-index.ts";
import type { ObjectDecoder } from "./object-decoder.ts";

/** An object on its way into the Indexer: as it came, or as it is there already. */
export type Arriving<T> = StoredObject | TypedObject<T>;

export interface UpdateListener<T> {
  /** What the Indexer has become. `isSync`: nothing has changed, someone wants to look at all there is. */
  onChange(notification: Notification<T>, isSync: boolean): void;
  /** An object could not be taken in, and what was there before stays. Must not throw. */
  onRejected(error: RejectedObjectError): void;
}

/** Makes deltas into changes of an Indexer, and says what changed. */
export class IndexerUpdates<T> {
  readonly #indexer: Indexer<TypedObject<T>>;
  readonly #decoder: ObjectDecoder<T>;
  readonly #listener: UpdateListener<T>;
  /** The keys of listed objects which may have changed although their revisions have not. */
  readonly #keysToRecheck = new Set<string>();
  /** The sizes of the objects in the Indexer, as they are stored, in bytes: what a notification of them keeps. */
  readonly #sizes = new Map<string, number>();

  constructor(
    indexer: Indexer<TypedObject<T>>,
    intake: ObjectDecoder<T>,
    listener: UpdateListener<T>,
  ) {
    this.#indexer = indexer;
    this.#decoder = intake;
    this.#listener = listener;
  }

  /** Says that these come from another history, where the same revision does not mean the same object. */
  recheck(objects: Iterable<StoredObject>): void {
    for (const { key } of objects) this.#keysToRecheck.add(key);
  }

  /** All of one key. */
  apply(deltas: Deltas<Arriving<T>>, isInInitialList: boolean): void {
    for (const delta of deltas) {
      if (delta.type === "Deleted") this.#delete(delta.object);
      else this.#put(delta, isInInitialList);
    }
    const [first] = deltas;
    if (first !== undefined) this.#keysToRecheck.delete(first.object.key);
  }

  #put({ type, object }: Delta<Arriving<T>> & { object: Arriving<T> }, isInitial: boolean): void {
    const before = this.#indexer.get(object.key);
    if (!(object instanceof StoredObject)) {
      // It is from the Indexer itself, and in there still unless something else became of it.
      if (before === undefined) return;
      const bytes = this.#sizes.get(before.key) ?? 0;
      this.#listener.onChange(Notification.updated(before, before, bytes), true);
      return;
    }
    if (type === "Replaced" && before !== undefined && this.#isSame(before, object)) return;
    const after = this.#take(object);
    if (after === undefined) return;
    const bytes = estimatedBytes(object);
    this.#listener.onChange(
      before === undefined
        ? Notification.added(after, isInitial, bytes)
        : Notification.updated(before, after, bytes),
      false,
    );
  }

  /** The object as it is in the Indexer from now on; undefined if it can't be. */
  #take(stored: StoredObject): TypedObject<T> | undefined {
    const taken = this.#decoder.decode(stored);
    if (taken instanceof Error) {
      this.#listener.onRejected(taken);
      return undefined;
    }
    try {
      this.#indexer.set(taken);
      this.#sizes.set(taken.key, estimatedBytes(stored));
      return taken;
    } catch (error) {
      // Whatever else it throws is a fault of ours.
      if (!(error instanceof IndexError)) throw error;
      this.#listener.onRejected(error);
      return undefined;
    }
  }

  #delete(deleted: Arriving<T> | DeletedFinalStateUnknown<Arriving<T>>): void {
    const before = this.#indexer.get(deleted.key);
    // One that never could be taken in.
    if (before === undefined) return;
    const bytes = this.#sizes.get(deleted.key) ?? 0;
    this.#indexer.delete(deleted.key);
    this.#sizes.delete(deleted.key);
    this.#listener.onChange(
      Notification.deleted(
        before,
        deleted instanceof DeletedFinalStateUnknown
          ? new DeletedFinalStateUnknown(this.#lastState(before, deleted.object) ?? before)
          : (this.#lastState(before, deleted) ?? { ...before, modRevision: deleted.modRevision }),
        bytes,
      ),
      false,
    );
  }

  /**
   * `last` for the user's eyes; undefined if it can't be had. It is a later state than `before` only where those
   * between were folded away.
   */
  #lastState(before: TypedObject<T>, last: Arriving<T>): TypedObject<T> | undefined {
    if (!(last instanceof StoredObject)) return last;
    const { modRevision } = last;
    if (last.createRevision === before.createRevision && last.version === before.version) {
      return modRevision === before.modRevision ? before : { ...before, modRevision };
    }
    const taken = this.#decoder.decode(last);
    if (!(taken instanceof Error)) return taken;
    this.#listener.onRejected(taken);
    return undefined;
  }

  /** Whether a listed object is the one that is there already. */
  #isSame(before: TypedObject<T>, listed: StoredObject): boolean {
    return before.modRevision === listed.modRevision && !this.#keysToRecheck.has(listed.key);
  }
}
