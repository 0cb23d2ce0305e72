import { hasReason, upstreamUnavailable } from "../../base/errors.ts";
import { waitFor } from "../../base/wait.ts";
import type { EtcdClient } from "../../etcd/client/etcd-client.ts";
import type { WatchStream } from "../storage.ts";

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
