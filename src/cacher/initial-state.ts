import { WatchBatch, WatchEvent } from "../storage/event.ts";
import { type StoredObject, weight } from "../storage/object.ts";
import type { ListResult, Predicate } from "../storage/storage.ts";

/** The state that a watch begins with, handed out piece by piece as its reader takes it. */
export interface InitialState {
  /** The next piece; undefined when there is none now. The last one says `initialEventsEnd`. */
  next(): WatchBatch | undefined;
}

/** How many objects are looked at for one piece, which is empty if none of them matches. */
const maxScanned = 50_000;

/** From a snapshot of the cache. */
export class SnapshotState implements InitialState {
  readonly #objects: Iterator<StoredObject, void, void>;
  readonly #predicate: Predicate | undefined;
  readonly #revision: number;
  readonly #maxBytes: number;
  #complete = false;

  /** `objects` in key order, as they stand at `revision`, of which `predicate` picks some. */
  constructor(
    objects: Iterator<StoredObject, void, void>,
    predicate: Predicate | undefined,
    revision: number,
    maxBytes: number,
  ) {
    this.#objects = objects;
    this.#predicate = predicate;
    this.#revision = revision;
    this.#maxBytes = maxBytes;
  }

  next(): WatchBatch | undefined {
    if (this.#complete) return undefined;
    const events: WatchEvent[] = [];
    let scanned = 0;
    for (let bytes = 0; bytes < this.#maxBytes && scanned < maxScanned; scanned++) {
      const { done, value } = this.#objects.next();
      if (done === true) {
        this.#complete = true;
        return new WatchBatch(this.#revision, events, true);
      }
      if (this.#predicate?.(value) === false) continue;
      events.push(new WatchEvent("ADDED", value, undefined));
      bytes += weight(value);
    }
    return new WatchBatch(undefined, events);
  }
}

/**
 * From the storage itself, page by page, where the cache is not new enough in time. The next page is
 * asked for when the one before has been taken.
 */
export class PagedState implements InitialState {
  readonly #list: (startAfter: string) => Promise<ListResult>;
  readonly #onReady: (failure?: unknown) => void;
  #page: ListResult | undefined;

  /**
   * `first` is the page that is there already, `list` brings those after. `onReady` is told when one
   * has come, or why none will.
   */
  constructor(
    first: ListResult,
    list: (startAfter: string) => Promise<ListResult>,
    onReady: (failure?: unknown) => void,
  ) {
    this.#page = first;
    this.#list = list;
    this.#onReady = onReady;
  }

  next(): WatchBatch | undefined {
    const page = this.#page;
    if (page === undefined) return undefined;
    this.#page = undefined;
    const events = page.items.map((object) => new WatchEvent("ADDED", object, undefined));
    if (page.next === undefined) return new WatchBatch(page.revision, events, true);
    this.#list(page.next).then(
      (following) => {
        this.#page = following;
        this.#onReady();
      },
      (error: unknown) => this.#onReady(error),
    );
    return new WatchBatch(undefined, events);
  }
}
