import { WatchBatch, WatchEvent } from "../../model/event.ts";
import type { ListResult } from "../../storage/storage.ts";

/** The state that a watch begins with, handed out piece by piece as its reader takes it. */
export interface InitialState {
  /** The next piece; undefined when there is none now. The last one says `initialEventsEnd`. */
  next(): WatchBatch | undefined;
  /** Nobody will ask for more. Harmless when called twice. */
  drop?(): void;
}

/**
 * From the storage itself, page by page, where the cache is not new enough in time. The next page is
 * asked for when the one before has been taken.
 */
export class PagedInitialState implements InitialState {
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
