import { WatchEvent } from "../model/event.ts";
import { estimatedBytes, type StoredObject } from "../model/object.ts";
import type { HistoryRequest, HistoryResult } from "./storage.ts";

/** Collects one page of the history of a key, the newest change first, within the bounds of the request. */
export class HistoryPage {
  readonly #request: HistoryRequest;
  readonly #events: WatchEvent[] = [];
  #bytes = 0;

  constructor(request: HistoryRequest) {
    this.#request = request;
  }

  get isEmpty(): boolean {
    return this.#events.length === 0;
  }

  /** Whether it has as many changes as the request allows. */
  get isFull(): boolean {
    return this.#events.length >= this.#request.limit;
  }

  /** Adds the put that wrote the object. Returns whether it fits. */
  addPut(object: StoredObject): boolean {
    return this.add(new WatchEvent(isCreation(object) ? "ADDED" : "MODIFIED", object, undefined));
  }

  /** Adds the deletion of the object at `revision`. Returns whether it fits. */
  addDeletion(object: StoredObject, revision: number): boolean {
    return this.add(new WatchEvent("DELETED", object.deletedAt(revision), undefined));
  }

  /** The page; the next one begins with changes at `next`. */
  continued(revision: number, next: number): HistoryResult {
    const events = this.#events;
    return { revision, events, next, oldestRevision: undefined, isLimited: false };
  }

  /** The last page. */
  finished(revision: number, oldestRevision: number, isLimited: boolean = false): HistoryResult {
    return { revision, events: this.#events, next: undefined, oldestRevision, isLimited };
  }

  /** Adds the change before those so far. Returns whether it fits. */
  add(event: WatchEvent): boolean {
    const { maxBytes } = this.#request;
    const bytes = estimatedBytes(event.object);
    const isTooMuch = this.isFull || this.#bytes + bytes > maxBytes;
    if (isTooMuch && !this.isEmpty) return false;
    this.#events.push(event);
    this.#bytes += bytes;
    return true;
  }
}

/** Whether the object was created by its last write. */
export function isCreation({ createRevision, modRevision }: StoredObject): boolean {
  return createRevision === modRevision;
}
