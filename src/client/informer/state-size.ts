import { memoryOverheadBytes, type WatchEvent } from "../../model/event.ts";
import { estimatedBytes, type StoredObject } from "../../model/object.ts";

/** Counts the bytes of the latest state of all objects that have arrived, whether or not they are in the Indexer. */
export class StateSize {
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
export function heldBytes(object: StoredObject): number {
  return estimatedBytes(object) + memoryOverheadBytes;
}
