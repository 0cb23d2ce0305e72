import { WatchEvent } from "../../model/event.ts";
import { compareKeys } from "../../model/key-order.ts";
import type { StoredObject } from "../../model/object.ts";
import { HistoryPage } from "../history-page.ts";
import type {
  HistoryRequest,
  HistoryResult,
  KeyInterval,
  ListResult,
  RevisionRequirement,
} from "../storage.ts";
import type { JournalReads } from "./journal-reads.ts";
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

/**
 * The reads of the embedded store, at revisions that are kept: from memory, or from the journal if they are older than what
 * is in memory.
 */
export class Reads {
  readonly #data: MvccStore;
  /** Where the history is that is not in memory; undefined: nowhere. */
  past: JournalReads | undefined;
  /** The revision that a caller has compacted at. */
  #compacted = 0;

  constructor(data: MvccStore) {
    this.#data = data;
  }

  /** The oldest revision that can be read at and watched from. */
  get oldest(): number {
    if (this.past === undefined) return this.#data.log.oldest;
    const oldest = Math.max(this.past.oldest, this.#compacted);
    // Nothing was written at revision 1, so all is known after revision 0 as well.
    return oldest === 1 ? 0 : oldest;
  }

  /** Nothing before this revision can be read any more. */
  compact(revision: number): void {
    this.#compacted = Math.max(this.#compacted, revision);
    this.#data.compact(revision);
  }

  /** The revision to read at. Throws HISTORY_CHANGED for a future one, and REVISION_TOO_OLD for a compacted one. */
  resolve(at: RevisionRequirement): number {
    return this.#data.log.resolve(at, this.oldest);
  }

  async objectAt(
    key: string,
    revision: number,
    signal: AbortSignal | undefined,
  ): Promise<StoredObject | undefined> {
    const past = this.#pastOf(revision);
    return past === undefined
      ? this.#data.keys.getAt(key, revision)
      : past.objectAt(key, revision, signal);
  }

  async range(request: RangeRequest, keys: ResourceKeys): Promise<ListResult> {
    const { interval, startAfter } = request;
    const revision = this.resolve(request.at);
    const page = new ObjectPage(request);
    const past = this.#pastOf(revision);
    if (past !== undefined) return fill(page, request, keys, revision, past);
    const from = startAfter ?? interval.from;
    const isAfter = startAfter !== undefined;
    for (const object of this.#data.keys.range(from, interval.to, revision, isAfter)) {
      if (!keys.has(object.key)) continue;
      if (!page.isFull) page.add(keys.shown(object));
      else if (!page.countOne()) break;
    }
    return page.result(revision);
  }

  async count(
    interval: KeyInterval,
    revision: number,
    keys: ResourceKeys,
    signal: AbortSignal | undefined,
  ): Promise<number> {
    const past = this.#pastOf(revision);
    let count = 0;
    if (past === undefined) {
      const { from, to } = interval;
      for (const { key } of this.#data.keys.range(from, to, revision)) if (keys.has(key)) count++;
      return count;
    }
    if (isEmpty(interval)) return count;
    const range = { interval, revision, limit: 0, owner: interval, signal };
    for await (const { objects } of past.pages(range)) {
      for (const { key } of objects) if (keys.has(key)) count++;
    }
    return count;
  }

  async history(request: HistoryRequest, keys: ResourceKeys): Promise<HistoryResult> {
    const { upTo, limit, maxBytes, owner = request, signal } = request;
    const revision = this.resolve(
      upTo === undefined ? { match: "LINEARIZABLE" } : { match: "EXACT", revision: upTo },
    );
    const key = keys.whole(request.key);
    const page = new HistoryPage(request);
    const past = this.past;
    // Memory has all changes after this one, and of each key the one before these.
    const inMemory = this.#data.log.oldest;
    const isLonger = past !== undefined && inMemory > this.oldest;
    const next = this.#data.keys.addHistory(key, page, keys, revision, isLonger ? inMemory : 0);
    if (next !== undefined) return page.continued(revision, next);
    if (isLonger) {
      if (page.isFull) return page.continued(revision, inMemory);
      const asked = { key, upTo: Math.min(revision, inMemory), limit, maxBytes, signal };
      const kept = await past.history(asked, owner);
      for (const { type, object, revision: at } of kept.events) {
        const event = new WatchEvent(type, keys.shown(object), undefined);
        if (!page.add(event)) return page.continued(revision, at);
      }
      if (kept.next !== undefined) return page.continued(revision, kept.next);
    }
    return page.finished(revision, Math.max(1, this.oldest));
  }

  /** The journal, if the state at this revision is not in memory. */
  #pastOf(revision: number): JournalReads | undefined {
    return revision < this.#data.log.oldest ? this.past : undefined;
  }
}

/** Fills a page from the journal. */
async function fill(
  page: ObjectPage,
  { interval, startAfter, limit, signal }: RangeRequest,
  keys: ResourceKeys,
  revision: number,
  past: JournalReads,
): Promise<ListResult> {
  const { from, to } = interval;
  const rest = { from: startAfter === undefined ? from : `${startAfter}\0`, to };
  if (isEmpty(rest)) return page.result(revision);
  const range = { interval: rest, revision, limit, owner: page, signal };
  for await (const { objects, hasMore } of past.pages(range)) {
    for (const [i, object] of objects.entries()) {
      if (keys.has(object.key)) page.add(keys.shown(object));
      if (page.isFull) return page.result(revision, hasMore || i + 1 < objects.length);
    }
  }
  return page.result(revision);
}

function isEmpty({ from, to }: KeyInterval): boolean {
  return to !== undefined && compareKeys(from, to) >= 0;
}
