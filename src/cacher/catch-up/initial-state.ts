import { WatchBatch, WatchEvent } from "../../model/event.ts";
import type { ListResult } from "../../storage/storage.ts";
import type { SourceResult, WatchSource } from "./watch-source.ts";

/**
 * An initial state read from the storage page by page, used if the cache does not reach the required revision in
 * time. The next page is requested when the one before has been taken.
 */
export class PagedInitialState implements WatchSource {
  readonly state = "initial";
  readonly successor: WatchSource;
  readonly #list: (startAfter: string) => Promise<ListResult>;
  readonly #onReady: (failure?: unknown) => void;
  #page: ListResult | undefined;

  /**
   * `first` is the first page, `list` reads those after it. `onReady` is called when a page has arrived, or with the
   * reason why none will.
   */
  constructor(
    first: ListResult,
    list: (startAfter: string) => Promise<ListResult>,
    onReady: (failure?: unknown) => void,
    successor: WatchSource,
  ) {
    this.#page = first;
    this.#list = list;
    this.#onReady = onReady;
    this.successor = successor;
  }

  next(): SourceResult | undefined {
    const page = this.#page;
    if (page === undefined) return undefined;
    this.#page = undefined;
    const events = page.items.map((object) => new WatchEvent("ADDED", object, undefined));
    if (page.next === undefined) {
      return { batch: new WatchBatch(page.revision, events, true), isDone: true };
    }
    this.#list(page.next).then(
      (following) => {
        this.#page = following;
        this.#onReady();
      },
      (error: unknown) => this.#onReady(error),
    );
    return { batch: new WatchBatch(undefined, events), isDone: false };
  }

  checkWindow(): void {}

  drop(): void {}
}
