import { hasReason, upstreamUnavailable, WatchFanoutError } from "../../base/errors.ts";
import { waitFor } from "../../base/wait.ts";
import type { EtcdClient } from "../../etcd/client/etcd-client.ts";
import type { StoredObject } from "../../model/object.ts";
import { Slabs } from "../../model/slabs.ts";
import { HistoryPage, isCreation } from "../history-page.ts";
import type { HistoryRequest, HistoryResult, WatchStream } from "../storage.ts";
import { storedObject } from "./objects/decode.ts";
import type { ResourceKeys } from "./objects/resource-keys.ts";
import type { RangeReader } from "./range-reader.ts";

/** Time after which a page is not continued, in milliseconds: a slow etcd makes pages short. */
const pageMs = 2_000;

interface KeyHistoryDeps {
  readonly client: EtcdClient;
  readonly keys: ResourceKeys;
  readonly reader: RangeReader;
  /** Opens a watch of a key's deletions after one revision, up to another. */
  readonly openDeletions: (
    key: string,
    after: number,
    upTo: number,
  ) => ReturnType<DeletionSearchDeps["open"]>;
}

/** The state of a key at one revision. */
interface KeyState {
  /** etcd's revision when it was read, which is at least the state's. */
  readonly current: number;
  readonly object: StoredObject | undefined;
}

/**
 * Reads the history of a key in etcd, from the newest change to the oldest: the object as it is says which revision has
 * written it, and a read just before that returns the object before. Each costs etcd the same, whatever else it stores.
 * Reads do not show deletions: where an object was created, they are searched (DeletionSearch).
 */
export class KeyHistory {
  readonly #deps: KeyHistoryDeps;

  constructor(deps: KeyHistoryDeps) {
    this.#deps = deps;
  }

  /** See Storage. Rejects with UPSTREAM_UNAVAILABLE only if it has found nothing; otherwise the page is short. */
  async read(request: HistoryRequest): Promise<HistoryResult> {
    const { client, keys } = this.#deps;
    const { key, upTo, owner = request, signal } = request;
    const endsAt = client.clock.now() + pageMs;
    const first = await this.#stateAt(request, upTo);
    const revision = upTo ?? first.current;
    const page = new HistoryPage(request);
    if (keys.isOwn(keys.absolute(key))) return page.finished(revision, revision);
    const open: DeletionSearchDeps["open"] = (after, end) =>
      this.#deps.openDeletions(key, after, end);
    const deletions = new DeletionSearch({ client, open, owner, signal });
    let { object, current } = first;
    /** The page has all changes after this revision. */
    let at = revision;
    try {
      for (;;) {
        if (object === undefined) {
          const deleted = await deletions.latest(at, current);
          if (deleted === undefined) {
            return page.finished(revision, deletions.after, deletions.isLimited);
          }
          ({ object, current } = await this.#stateAt(request, deleted - 1));
          if (object === undefined) throw inconsistent();
          if (!page.addDeletion(object, deleted)) return page.continued(revision, deleted);
          at = deleted - 1;
        }
        if (object.modRevision > at) throw inconsistent();
        if (!page.addPut(object)) return page.continued(revision, at);
        at = object.modRevision - 1;
        if (at < 1) return page.finished(revision, 1);
        if (page.isFull || client.clock.now() > endsAt) return page.continued(revision, at);
        if (isCreation(object)) object = undefined;
        else {
          ({ object } = await this.#stateAt(request, at));
          if (object === undefined) throw inconsistent();
        }
      }
    } catch (error) {
      if (hasReason(error, "REVISION_TOO_OLD")) {
        return page.finished(revision, Number(error.metadata["oldest_revision"] ?? at + 1));
      }
      if (hasReason(error, "UPSTREAM_UNAVAILABLE") && !page.isEmpty) {
        return page.continued(revision, at);
      }
      throw error;
    }
  }

  /** Reads the key at a revision; undefined: at the current one, linearizable. */
  async #stateAt(
    { key, keysOnly = false, signal }: HistoryRequest,
    revision: number | undefined,
  ): Promise<KeyState> {
    const { keys, reader } = this.#deps;
    const range = { key: keys.absolute(key), keys_only: keysOnly };
    const { response } = await (revision === undefined
      ? reader.read(range, { match: "LINEARIZABLE" }, signal)
      : reader.readAt(range, revision, signal));
    const kv = response.kvs.at(0);
    const object = kv && storedObject(key, kv, keys.prefixBytes, new Slabs(0));
    return { current: response.revision, object };
  }
}

/** Two reads that no etcd can answer so while it has one history. */
function inconsistent(): WatchFanoutError {
  return new WatchFanoutError(
    "HISTORY_CHANGED",
    "The revisions of the object contradict each other: etcd was restored during the read. Read its history again.",
    { metadata: { history_id: "" } },
  );
}

/** How far from etcd's current revision the first search begins, in revisions: it delays etcd's writes by about 30 ms. */
const firstDistance = 20_000;

/** How much further the next one begins. */
const growth = 8;

/** The furthest one, in revisions: it delays etcd's writes by about 0.7 s. */
const maxDistance = 500_000;

/**
 * Pause after a search for each revision that etcd has read, in milliseconds: ten times of what that takes, so that
 * searches delay etcd's writes for at most a tenth of the time.
 */
const pauseMs = 0.014;

/**
 * Maximum time to wait for the searches of others, in milliseconds: longer than the longest one takes with its pause, since
 * otherwise one caller could keep all others from searching.
 */
const queueTimeoutMs = 9_000;

/** Maximum time of one search, in milliseconds. */
const searchTimeoutMs = 15_000;

/** Maximum number of deletions that are known at once. */
const maxKnown = 1_000;

/** What a search needs. */
export interface DeletionSearchDeps {
  readonly client: EtcdClient;
  /** Opens a watch of the key's deletions after one revision, up to another. */
  readonly open: (after: number, upTo: number) => WatchStream & { requestProgress(): void };
  /** The caller: callers take turns. */
  readonly owner: object;
  readonly signal: AbortSignal | undefined;
}

/**
 * Finds the deletions of one key, from the newest to the oldest. Only a watch of the past shows them, for which etcd reads
 * all revisions from its start to the current one, whatever the key, and lets no write through meanwhile. So the search
 * begins near the current revision, and further back only if it has found nothing; there is one at a time, with pauses.
 */
export class DeletionSearch {
  readonly #deps: DeletionSearchDeps;
  /** Ascending. */
  #known: number[] = [];
  #after = Infinity;
  #distance = firstDistance;
  /** Nothing before it can be found: the revision of etcd's compaction, as far as it is known. */
  #oldest = 1;
  #isLimited = false;

  constructor(deps: DeletionSearchDeps) {
    this.#deps = deps;
  }

  /** All deletions after this revision have been found. Infinity before the first search. */
  get after(): number {
    return Math.max(this.#after, this.#oldest);
  }

  /** Whether the last search has found nothing and ended before etcd's compaction, as it would cost etcd too much. */
  get isLimited(): boolean {
    return this.#isLimited;
  }

  /**
   * The revision of the latest deletion up to `upTo`; undefined: no further one can be found. `current` is etcd's
   * revision, or an earlier one that is at least `upTo`.
   */
  async latest(upTo: number, current: number): Promise<number | undefined> {
    for (;;) {
      while ((this.#known.at(-1) ?? 0) > upTo) this.#known.pop();
      const found = this.#known.at(-1);
      if (found !== undefined) return found;
      if (this.#after <= this.#oldest) return undefined;
      const end = Math.min(upTo, this.#after);
      const distance = Math.min(maxDistance, Math.max(this.#distance, 2 * (current - end)));
      const after = Math.max(this.#oldest, current - distance);
      this.#isLimited = after >= end && after > this.#oldest;
      if (after >= end) {
        // Nothing is left to search, or it is too far.
        this.#after = end;
        return undefined;
      }
      this.#distance = distance * growth;
      await this.#search(after, end, current);
    }
  }

  async #search(after: number, upTo: number, current: number): Promise<void> {
    const { pastSearches, clock } = this.#deps.client;
    const expire = (): never => {
      throw upstreamUnavailable("Too many histories are read, of objects that were deleted.");
    };
    const deadline = { clock, ms: queueTimeoutMs, expire };
    const { owner, signal } = this.#deps;
    await pastSearches.wait(owner, 0, { signal, deadline });
    try {
      const found = await this.#read(after, upTo);
      this.#known = found.slice(-maxKnown);
      this.#after = found.length <= maxKnown ? after : (this.#known[0] as number) - 1;
    } catch (error) {
      const oldest = hasReason(error, "REVISION_TOO_OLD") ? error.metadata["oldest_revision"] : "";
      if (!oldest) throw error;
      this.#oldest = Number(oldest);
    } finally {
      clock.setTimeout(() => pastSearches.leave(owner), (current - after) * pauseMs);
    }
  }

  /** The deletions after one revision, up to another. */
  #read(after: number, upTo: number): Promise<number[]> {
    const { client, open, signal } = this.#deps;
    const expire = (): never => {
      throw upstreamUnavailable("etcd did not find the deletions of the object in time.");
    };
    return waitFor<number[]>(
      (resolve, reject) => {
        const found: number[] = [];
        const watch = open(after, upTo);
        const take = (): void => {
          for (let batch = watch.read(); batch !== undefined; batch = watch.read()) {
            for (const { revision } of batch.events) if (revision <= upTo) found.push(revision);
            if (batch.revision !== undefined && batch.revision >= upTo) resolve(found);
          }
          if (watch.ended !== undefined)
            reject(watch.ended ?? upstreamUnavailable("The storage closed a watch."));
        };
        watch.onReadable(take);
        // Without deletions, only progress shows that all was searched.
        watch.requestProgress();
        return () => watch.close();
      },
      { signal, deadline: { clock: client.clock, ms: searchTimeoutMs, expire } },
    );
  }
}
