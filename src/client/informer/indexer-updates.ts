import { estimatedBytes, StoredObject } from "../../model/object.ts";
import { DecodeFailure, decodeTyped, type TypedObject } from "../values/typed-object.ts";
import type { ValueCodec } from "../values/value-codec.ts";
import { DeletedFinalStateUnknown, type Delta, type Deltas } from "./delta-fifo/delta-fifo.ts";
import { additionOf, deletionOf, type Notification, updateOf } from "./handlers/handler-queue.ts";
import { type RejectedObjectError, TransformFailure } from "./handlers/informer-errors.ts";
import type { Indexer } from "./indexer/indexer.ts";
import { IndexError } from "./indexer/object-index.ts";

/** An object that will be applied to the Indexer: stored, or from the Indexer itself (a resync). */
export type Arriving<T> = StoredObject | TypedObject<T>;

interface UpdateListener<T> {
  /** Called after a change of the Indexer. `isSync`: the object has not changed (a resync). */
  onChange(notification: Notification<T>, isSync: boolean): void;
  /** Called when an object was rejected; its previous state remains in the Indexer. Must not throw. */
  onRejected(error: RejectedObjectError): void;
}

/** Applies deltas to an Indexer and reports the changes. */
export class IndexerUpdates<T> {
  readonly #indexer: Indexer<TypedObject<T>>;
  readonly #decoder: ObjectDecoder<T>;
  readonly #listener: UpdateListener<T>;
  /** The keys of listed objects that may have changed although their revision is the same. */
  readonly #keysToRecheck = new Set<string>();
  /** The stored size of each object in the Indexer, in bytes, for the bounds of handler queues. */
  readonly #sizes = new Map<string, number>();

  constructor(
    indexer: Indexer<TypedObject<T>>,
    decoder: ObjectDecoder<T>,
    listener: UpdateListener<T>,
  ) {
    this.#indexer = indexer;
    this.#decoder = decoder;
    this.#listener = listener;
  }

  /** Marks objects of another history, in which the same revision does not mean the same object. */
  recheck(objects: Iterable<StoredObject>): void {
    for (const { key } of objects) this.#keysToRecheck.add(key);
  }

  /** Applies all deltas of one key. */
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
      // A resync. The object is no longer in the Indexer if it was deleted since.
      if (before === undefined) return;
      const bytes = this.#sizes.get(before.key) ?? 0;
      this.#listener.onChange(updateOf(before, before, bytes), true);
      return;
    }
    if (type === "Replaced" && before !== undefined && this.#isSame(before, object)) return;
    const after = this.#take(object);
    if (after === undefined) return;
    const bytes = estimatedBytes(object);
    this.#listener.onChange(
      before === undefined ? additionOf(after, isInitial, bytes) : updateOf(before, after, bytes),
      false,
    );
  }

  /** Decodes an object and stores it in the Indexer; undefined if it is rejected. */
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
      // Any other error indicates a bug.
      if (!(error instanceof IndexError)) throw error;
      this.#listener.onRejected(error);
      return undefined;
    }
  }

  #delete(deleted: Arriving<T> | DeletedFinalStateUnknown<Arriving<T>>): void {
    const before = this.#indexer.get(deleted.key);
    // The object was rejected when it was created.
    if (before === undefined) return;
    const bytes = this.#sizes.get(deleted.key) ?? 0;
    this.#indexer.delete(deleted.key);
    this.#sizes.delete(deleted.key);
    this.#listener.onChange(
      deletionOf(
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
   * Decodes the final state of a deleted object; undefined if it is rejected. It differs from `before` only if states
   * in between were coalesced.
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

  /** Whether a listed object equals the one in the Indexer. */
  #isSame(before: TypedObject<T>, listed: StoredObject): boolean {
    return before.modRevision === listed.modRevision && !this.#keysToRecheck.has(listed.key);
  }
}

/** Decodes stored objects and applies the transform of the application. */
export class ObjectDecoder<T> {
  readonly #codec: ValueCodec<T>;
  readonly #resource: string;
  readonly #transform: ((object: TypedObject<T>) => TypedObject<T>) | undefined;

  constructor(
    codec: ValueCodec<T>,
    resource: string,
    transform: ((object: TypedObject<T>) => TypedObject<T>) | undefined,
  ) {
    this.#codec = codec;
    this.#resource = resource;
    this.#transform = transform;
  }

  /** Returns the object, or the reason why it is rejected. Never throws. */
  decode(stored: StoredObject): TypedObject<T> | RejectedObjectError {
    const object = decodeTyped(stored, this.#codec, this.#resource);
    if (object instanceof DecodeFailure || this.#transform === undefined) return object;
    try {
      const transformed = this.#transform(object);
      if (transformed.key === object.key) return transformed;
      throw new TypeError(`it returned an object with the key ${JSON.stringify(transformed.key)}.`);
    } catch (error) {
      return new TransformFailure(stored.key, stored.modRevision, error);
    }
  }
}
