import { toError, upstreamUnavailable, WatchFanoutError } from "../../base/errors.ts";
import { Gate } from "../../base/gate.ts";
import type { StoredObject } from "../../model/object.ts";
import type {
  Journal,
  KeptChanges,
  KeptHistory,
  KeptHistoryRequest,
  KeptPage,
} from "../journal/journal.ts";
import type { KeyInterval } from "../storage.ts";

/** Maximum number of reads at a time. The journal has one file, and the commits need it as well. */
const concurrent = 2;

/** Bounds of one read. */
const maxObjects = 1_000;
const maxBytes = 1024 ** 2;
/** Of changes, which a stream holds until its client reads them, so that there may be thousands. */
const maxChangesBytes = 256 * 1024;

/** Which objects are read, and for which owner: owners take turns. */
export interface PastRange {
  /** Whole keys. */
  readonly interval: KeyInterval;
  readonly revision: number;
  /** Maximum number of objects that are wanted; 0: all. */
  readonly limit: number;
  readonly owner: object;
  readonly signal?: AbortSignal | undefined;
}

/** Reads of the history that has left memory, in pages, a few at a time, fair by owner. */
export class JournalReads {
  readonly #journal: Journal;
  readonly #gate = new Gate({ concurrent, concurrentPerOwner: 1 });

  constructor(journal: Journal) {
    this.#journal = journal;
  }

  /** The oldest revision that can be read at and watched from. */
  get oldest(): number {
    return this.#journal.oldest;
  }

  async objectAt(
    key: string,
    revision: number,
    signal: AbortSignal | undefined,
  ): Promise<StoredObject | undefined> {
    const interval = { from: key, to: behind(key) };
    const { objects } = await this.#page({ interval, revision, limit: 1, owner: {}, signal });
    return objects.at(0);
  }

  /** The objects of an interval in pages, the next of which is read when it is asked for. */
  async *pages(range: PastRange): AsyncGenerator<KeptPage, void, void> {
    let { from } = range.interval;
    for (;;) {
      const page = await this.#page({ ...range, interval: { from, to: range.interval.to } });
      yield page;
      const last = page.objects.at(-1);
      if (!page.hasMore || last === undefined) return;
      from = behind(last.key);
    }
  }

  /** The changes after a revision, up to another: whole revisions, at least one. */
  changesAfter(
    after: number,
    upTo: number,
    owner: object,
    signal: AbortSignal,
  ): Promise<readonly KeptChanges[]> {
    const request = { after, upTo, maxEvents: maxObjects, maxBytes: maxChangesBytes, signal };
    return this.#read(() => this.#journal.changesAfter(request), owner, signal);
  }

  history(request: KeptHistoryRequest, owner: object): Promise<KeptHistory> {
    const bounded = {
      ...{ ...request, limit: Math.min(request.limit, maxObjects) },
      maxBytes: Math.min(request.maxBytes, maxBytes),
    };
    return this.#read(() => this.#journal.history(bounded), owner, request.signal);
  }

  #page({ interval, revision, limit, owner, signal }: PastRange): Promise<KeptPage> {
    const request = {
      ...{ ...interval, revision, maxBytes, signal },
      limit: limit === 0 ? maxObjects : Math.min(limit, maxObjects),
    };
    return this.#read(() => this.#journal.page(request), owner, signal);
  }

  async #read<T>(
    read: () => Promise<T>,
    owner: object,
    signal: AbortSignal | undefined,
  ): Promise<T> {
    await this.#gate.wait(owner, 0, { signal });
    try {
      return await read();
    } catch (thrown) {
      signal?.throwIfAborted();
      if (thrown instanceof WatchFanoutError) throw thrown;
      const { message } = toError(thrown);
      throw upstreamUnavailable(
        `The history can't be read from the store's file: ${message}`,
        thrown,
      );
    } finally {
      this.#gate.leave(owner);
    }
  }
}

/** The next key: none is between both. */
function behind(key: string): string {
  return `${key}\0`;
}
