import type { Clock } from "../../base/clock.ts";
import { type WatchBatch, WatchEvent } from "../../model/event.ts";
import { memoryBytes, type StoredObject } from "../../model/object.ts";
import { ObjectAttributes } from "../request/object-attributes.ts";
import type { Selection } from "../request/selection.ts";
import type { StateChange } from "./diff.ts";
import { EventWindow, type EventWindowBounds } from "./event-window.ts";
import { FieldIndex } from "./field-index.ts";
import { OrderedStore } from "./ordered-store.ts";

/**
 * The current state of a resource and its recent history, which change together in one synchronous
 * step: whoever reads sees a revision wholly or not at all.
 */
export class WatchCache {
  readonly #clock: Clock;
  readonly #bounds: EventWindowBounds;
  readonly #objectAttributes: ObjectAttributes;
  #state = new OrderedStore();
  #index: FieldIndex;
  #eventWindow: EventWindow;
  #revision = 0;
  #objectBytes = 0;
  #unknownDeletes = 0;
  #historyId = "";
  #epoch = 0;

  constructor(
    bounds: EventWindowBounds,
    clock: Clock,
    objectAttributes: ObjectAttributes = new ObjectAttributes(),
  ) {
    this.#bounds = bounds;
    this.#clock = clock;
    this.#objectAttributes = objectAttributes;
    this.#index = this.#makeIndex();
    this.#eventWindow = new EventWindow(bounds, clock, 0);
  }

  get state(): OrderedStore {
    return this.#state;
  }

  /**
   * The smallest part of the state, in key order, in which everything is that the selection picks: by an
   * indexed field where it demands a value of one, otherwise all of it.
   */
  stateFor(selection: Selection | undefined): OrderedStore {
    for (const field of this.#index.fields) {
      const value = selection?.exactField(field);
      // Objects without a value are not in the index.
      if (value === undefined || value === "") continue;
      return this.#index.get(field, value) ?? new OrderedStore();
    }
    return this.#state;
  }

  /** What reads and indexes the objects' attributes. */
  get objectAttributes(): ObjectAttributes {
    return this.#objectAttributes;
  }

  get eventWindow(): EventWindow {
    return this.#eventWindow;
  }

  /** The history that the revisions belong to; empty where that can't be known. */
  get historyId(): string {
    return this.#historyId;
  }

  /** Grows whenever the state is replaced: what was read before may be of another history. */
  get epoch(): number {
    return this.#epoch;
  }

  /** Everything up to and including this revision has been taken in. */
  get revision(): number {
    return this.#revision;
  }

  /** The revision of the last event: the state has been the same ever since. */
  get lastChangeRevision(): number {
    return this.#eventWindow.newest.revision;
  }

  /** The weight of the current objects, in bytes. */
  get objectBytes(): number {
    return this.#objectBytes;
  }

  /** How many deletions were of keys that the cache did not have, which is never right. */
  get unknownDeletes(): number {
    return this.#unknownDeletes;
  }

  /**
   * Takes the whole state at `revision` in place of all that is held. History begins anew; `difference`,
   * if given, leads there from the one so far.
   */
  replace(
    objects: readonly StoredObject[],
    revision: number,
    historyId: string = "",
    difference?: readonly StateChange[],
  ): void {
    const state = OrderedStore.of(objects);
    const index = this.#makeIndex();
    let bytes = 0;
    for (const object of objects) {
      this.#objectAttributes.of(object);
      index.replace(undefined, object);
      bytes += memoryBytes(object);
    }
    this.#state = state;
    this.#index = index;
    this.#objectBytes = bytes;
    this.#epoch++;
    this.#revision = revision;
    this.#historyId = historyId;
    this.#eventWindow =
      difference === undefined
        ? new EventWindow(this.#bounds, this.#clock, revision)
        : this.#eventWindow.succeed(revision, difference);
  }

  /** The id of the history that is held has become known. */
  identify(historyId: string): void {
    this.#historyId = historyId;
  }

  /**
   * Takes what came next.
   *
   * Throws if it is not what comes next, which would be a fault of the source: a revision that has been
   * taken in already, revisions out of order, or events beyond the batch's resume point. Nothing of the
   * batch has been taken in then.
   */
  apply(batch: WatchBatch): void {
    this.#checkFollows(batch);
    const now = this.#clock.now();
    for (const event of batch.events) this.#applyEvent(event, now);
    const revision = batch.revision;
    if (revision !== undefined && revision > this.#revision) this.#revision = revision;
  }

  #checkFollows({ events, revision }: WatchBatch): void {
    let last = this.#revision;
    for (const event of events) {
      if (event.revision <= this.#revision || event.revision < last) {
        throw new Error(
          `The storage repeated revision ${event.revision} of ${JSON.stringify(event.object.key)}: ` +
            `the cache is at ${last} already.`,
        );
      }
      last = event.revision;
    }
    if (events.length > 0 && (revision === undefined || revision < last)) {
      throw new Error(
        `The storage delivered revision ${last} in a batch whose resume point is ${revision ?? "none"}.`,
      );
    }
  }

  #applyEvent(event: WatchEvent, now: number): void {
    const { object } = event;
    const previous = this.#state.get(object.key);
    if (event.type === "DELETED") {
      if (previous === undefined) {
        this.#unknownDeletes++;
        return;
      }
      this.#state.delete(object.key);
      this.#index.replace(previous, undefined);
      this.#objectBytes -= memoryBytes(previous);
      const deleted = previous.deletedAt(event.revision);
      this.#eventWindow.append(new WatchEvent("DELETED", deleted, undefined), previous, now);
      return;
    }
    this.#objectAttributes.of(object);
    this.#state.set(object);
    this.#index.replace(previous, object);
    this.#objectBytes += memoryBytes(object) - (previous === undefined ? 0 : memoryBytes(previous));
    const type = previous === undefined ? "ADDED" : "MODIFIED";
    // The event as it came has the weight that the object had before its attributes were read.
    const isSame = event.type === type && event.previous === undefined;
    const known = isSame && event.estimatedBytes === memoryBytes(object);
    this.#eventWindow.append(
      known ? event : new WatchEvent(type, object, undefined),
      previous,
      now,
    );
  }

  #makeIndex(): FieldIndex {
    return new FieldIndex(this.#objectAttributes.indexes, this.#objectAttributes.readField);
  }
}
