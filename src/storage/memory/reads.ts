import type { StoredObject } from "../../model/object.ts";
import { HistoryPage } from "../history-page.ts";
import type {
  HistoryRequest,
  HistoryResult,
  KeyInterval,
  ListResult,
  RevisionRequirement,
} from "../storage.ts";
import type { MvccStore } from "./mvcc-store.ts";
import { ObjectPage, type PageBounds } from "./object-page.ts";
import type { ResourceKeys } from "./resource-keys.ts";

/** A page of the objects of an interval of whole keys. */
export interface RangeRequest extends PageBounds {
  readonly interval: KeyInterval;
  /** Only keys after this one, which is in the interval. */
  readonly startAfter?: string | undefined;
  readonly at: RevisionRequirement;
  readonly signal?: AbortSignal | undefined;
}

/** The reads of the embedded store, at revisions that are kept. */
export class Reads {
  readonly #data: MvccStore;
  readonly #oldest: () => number;

  /** `oldest` returns the oldest revision that can be read at. */
  constructor(data: MvccStore, oldest: () => number) {
    this.#data = data;
    this.#oldest = oldest;
  }

  /** The revision to read at. Throws HISTORY_CHANGED for a future one, and REVISION_TOO_OLD for a compacted one. */
  resolve(at: RevisionRequirement): number {
    return this.#data.log.resolve(at, this.#oldest());
  }

  async objectAt(key: string, revision: number): Promise<StoredObject | undefined> {
    return this.#data.keys.getAt(key, revision);
  }

  async range(request: RangeRequest, keys: ResourceKeys): Promise<ListResult> {
    const { interval, startAfter } = request;
    const revision = this.resolve(request.at);
    const page = new ObjectPage(request);
    const from = startAfter ?? interval.from;
    const isAfter = startAfter !== undefined;
    for (const object of this.#data.keys.range(from, interval.to, revision, isAfter)) {
      if (!keys.has(object.key)) continue;
      if (!page.isFull) page.add(keys.shown(object));
      else if (!page.countOne()) break;
    }
    return page.result(revision);
  }

  async count({ from, to }: KeyInterval, revision: number, keys: ResourceKeys): Promise<number> {
    let count = 0;
    for (const { key } of this.#data.keys.range(from, to, revision)) if (keys.has(key)) count++;
    return count;
  }

  async history(request: HistoryRequest, keys: ResourceKeys): Promise<HistoryResult> {
    const { upTo } = request;
    const revision = this.resolve(
      upTo === undefined ? { match: "LINEARIZABLE" } : { match: "EXACT", revision: upTo },
    );
    const page = new HistoryPage(request);
    const next = this.#data.keys.addHistory(keys.whole(request.key), page, keys, revision);
    return next === undefined
      ? page.finished(revision, Math.max(1, this.#oldest()))
      : page.continued(revision, next);
  }
}
