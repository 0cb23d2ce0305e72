import type { SourceResult, WatchSource } from "./watch-source.ts";

const done: SourceResult = { batch: undefined, isDone: true };

/** Stands in for a source that is not known yet: the cache has not reached the revision that it begins after. */
export class PendingSource implements WatchSource {
  #successor: WatchSource | undefined;

  get state(): WatchSource["state"] {
    return this.#successor?.state ?? "starting";
  }

  get successor(): WatchSource | undefined {
    return this.#successor;
  }

  /** Sets the source that is read in place of this one. The caller notifies the watcher. */
  resolve(source: WatchSource): void {
    this.#successor = source;
  }

  next(): SourceResult | undefined {
    return this.#successor === undefined ? undefined : done;
  }

  checkWindow(): void {}

  drop(): void {}
}
