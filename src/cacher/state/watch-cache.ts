import type { Clock } from "../../base/clock.ts";
import type { KeptState } from "../../cache-files/kept-state.ts";
import { type WatchBatch, WatchEvent } from "../../model/event.ts";
import { memoryBytes, type StoredObject } from "../../model/object.ts";
import { type FieldReader, ObjectAttributes } from "../request/object-attributes.ts";
import type { Selection } from "../request/selection.ts";
import type { StateChange } from "./diff.ts";
import { EventWindow, type EventWindowBounds } from "./event-window.ts";
import { OrderedStore } from "./ordered-store.ts";

/**
 * The current state of a resource and its event window. Both change together in one synchronous step, so that a reader
 * sees all of a revision or nothing of it.
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
   * Returns the smallest known part of the state that contains all objects of the selection, in key order: the objects
   * with the required value of an indexed field, or the whole state if the selection requires none.
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

  /** Reads and indexes the objects' attributes. */
  get objectAttributes(): ObjectAttributes {
    return this.#objectAttributes;
  }

  get eventWindow(): EventWindow {
    return this.#eventWindow;
  }

  /** The id of the history that the revisions belong to; empty if it is not known. */
  get historyId(): string {
    return this.#historyId;
  }

  /** Counts the replacements of the state: a response from another epoch may belong to another history. */
  get epoch(): number {
    return this.#epoch;
  }

  /** The cache holds everything up to and including this revision. */
  get revision(): number {
    return this.#revision;
  }

  /** The revision of the last event, since which the state has not changed. */
  get lastChangeRevision(): number {
    return this.#eventWindow.newest.revision;
  }

  /** Memory of the current objects, in bytes. */
  get objectBytes(): number {
    return this.#objectBytes;
  }

  /** Number of deletions of keys that the cache did not hold. Always indicates a bug. */
  get unknownDeletes(): number {
    return this.#unknownDeletes;
  }

  /**
   * Replaces the whole state by the one at `revision`, and the event window by an empty one. `changes`, if given, link
   * the old window to the new one. `past`, if given, is what the new window has.
   */
  replace(
    objects: readonly StoredObject[],
    revision: number,
    historyId: string = "",
    changes?: readonly StateChange[],
    past?: Pick<KeptState, "events" | "eventsAfter">,
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
      changes === undefined
        ? new EventWindow(this.#bounds, this.#clock, past?.eventsAfter ?? revision)
        : this.#eventWindow.succeed(revision, changes);
    const now = this.#clock.now();
    for (const { type, object, previous } of past?.events ?? []) {
      this.#eventWindow.append(new WatchEvent(type, object, undefined), previous, now);
    }
  }

  /** Sets the id of the cached history, once it is known. */
  identify(historyId: string): void {
    this.#historyId = historyId;
  }

  /**
   * Applies the next batch. `arrivedAt`: when it arrived, in the clock's milliseconds.
   *
   * Throws if the batch does not follow on the cached state, which is a fault of the storage: a revision at or below
   * the cache's, revisions out of order, or events beyond the batch's resume point. Then no event of it is applied.
   */
  apply(batch: WatchBatch, arrivedAt: number = this.#clock.now()): void {
    this.#checkFollows(batch);
    for (const event of batch.events) this.#applyEvent(event, arrivedAt);
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
      const batch =
        revision === undefined ? "without a resume point" : `whose resume point is ${revision}`;
      throw new Error(`The storage delivered revision ${last} in a batch ${batch}.`);
    }
  }

  #applyEvent(event: WatchEvent, arrivedAt: number): void {
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
      this.#eventWindow.append(new WatchEvent("DELETED", deleted, undefined), previous, arrivedAt);
      return;
    }
    this.#objectAttributes.of(object);
    this.#state.set(object);
    this.#index.replace(previous, object);
    this.#objectBytes += memoryBytes(object) - (previous === undefined ? 0 : memoryBytes(previous));
    const type = previous === undefined ? "ADDED" : "MODIFIED";
    // The received event is reused if its size is still right: reading the attributes may have enlarged the object.
    const isSame = event.type === type && event.previous === undefined;
    const isReusable = isSame && event.estimatedBytes === memoryBytes(object);
    this.#eventWindow.append(
      isReusable ? event : new WatchEvent(type, object, undefined),
      previous,
      arrivedAt,
    );
  }

  #makeIndex(): FieldIndex {
    return new FieldIndex(this.#objectAttributes.indexes, this.#objectAttributes.readField);
  }
}

/**
 * The objects of a resource by the values of the indexed fields, in key order for each value. Objects whose field is
 * empty are not indexed by it.
 */
class FieldIndex {
  readonly fields: readonly string[];
  readonly #read: FieldReader;
  readonly #byField: ReadonlyMap<string, Map<string, OrderedStore>>;

  constructor(fields: readonly string[], read: FieldReader) {
    this.fields = fields;
    this.#read = read;
    this.#byField = new Map(fields.map((field) => [field, new Map<string, OrderedStore>()]));
  }

  /** Returns the objects with this value; undefined if no object has it. Callers must not change the result. */
  get(field: string, value: string): OrderedStore | undefined {
    return this.#byField.get(field)?.get(value);
  }

  /** Replaces `previous` by `object`; either may be undefined. */
  replace(previous: StoredObject | undefined, object: StoredObject | undefined): void {
    for (const [field, byValue] of this.#byField) {
      const before = previous === undefined ? "" : this.#read(previous, field);
      const after = object === undefined ? "" : this.#read(object, field);
      if (before !== after && previous !== undefined) remove(byValue, before, previous.key);
      if (object !== undefined && after !== "") add(byValue, after, object);
    }
  }
}

function add(byValue: Map<string, OrderedStore>, value: string, object: StoredObject): void {
  let objects = byValue.get(value);
  if (objects === undefined) {
    objects = new OrderedStore();
    byValue.set(value, objects);
  }
  objects.set(object);
}

function remove(byValue: Map<string, OrderedStore>, value: string, key: string): void {
  const objects = byValue.get(value);
  if (objects === undefined) return;
  objects.delete(key);
  if (objects.size === 0) byValue.delete(value);
}
