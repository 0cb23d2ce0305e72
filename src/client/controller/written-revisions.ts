import { hasReason } from "../../base/errors.ts";
import type { Informer } from "../informer/shared-use.ts";
import type { OwnWrite } from "../watch/own-writes.ts";

type Source = Pick<Informer<unknown>, "historyId" | "revision" | "waitForRevision">;

/**
 * The revisions that reconciles have written, by their keys, until all informers have reached them. As the stale caches of
 * KEP-5647: a reconcile that does not see its own writes would repeat them.
 */
export class WrittenRevisions {
  readonly #sources: readonly Source[];
  readonly #maxKeys: number;
  /** By key, then by history. Those that were written first are first. */
  readonly #written = new Map<string, Map<string, number>>();

  constructor(sources: readonly Source[], maxKeys: number) {
    this.#sources = sources;
    this.#maxKeys = maxKeys;
  }

  /** Number of keys. */
  get size(): number {
    return this.#written.size;
  }

  add(key: string, { revision, historyId }: OwnWrite): void {
    // It can't be compared with any other.
    if (historyId === "") return;
    const ofKey = this.#written.get(key) ?? new Map<string, number>();
    ofKey.set(historyId, Math.max(revision, ofKey.get(historyId) ?? 0));
    this.#written.delete(key);
    this.#written.set(key, ofKey);
    for (const [first, writes] of this.#written) {
      if (!this.#isReached(writes) && this.#written.size <= this.#maxKeys) break;
      this.#written.delete(first);
    }
  }

  /** Whether reads for the key would see all that was written for it, and by others before `since`. */
  isCurrent(key: string, since?: OwnWrite): boolean {
    return this.#isReached(this.#required(key, since));
  }

  /** Resolves once `isCurrent`. Rejects as `waitForRevision`, but not for a store that was restored. */
  async wait(key: string, signal: AbortSignal, since?: OwnWrite): Promise<void> {
    const writes = this.#required(key, since);
    await Promise.all(
      writes.flatMap(([historyId, revision]) =>
        this.#behind(historyId, revision).map(async (source) => {
          try {
            await source.waitForRevision(revision, { signal });
          } catch (error) {
            if (!hasReason(error, "HISTORY_CHANGED")) throw error;
          }
        }),
      ),
    );
    this.#forget(key, writes);
  }

  /** Forgets what was waited for. The reconcile may have left something running that has written more since. */
  #forget(key: string, waited: readonly (readonly [string, number])[]): void {
    const ofKey = this.#written.get(key);
    for (const [historyId, revision] of waited) {
      if ((ofKey?.get(historyId) ?? Infinity) <= revision) ofKey?.delete(historyId);
    }
    if (ofKey?.size === 0) this.#written.delete(key);
  }

  /** Histories, each with the revision that the sources must reach in it. */
  #required(key: string, since: OwnWrite | undefined): (readonly [string, number])[] {
    const writes = [...(this.#written.get(key) ?? [])];
    return since === undefined || since.historyId === ""
      ? writes
      : [...writes, [since.historyId, since.revision]];
  }

  #isReached(writes: Iterable<readonly [string, number]>): boolean {
    for (const [historyId, revision] of writes) {
      if (this.#behind(historyId, revision).length > 0) return false;
    }
    return true;
  }

  /** The sources that follow this history, or are about to follow one, and are not at the revision. */
  #behind(historyId: string, revision: number): readonly Source[] {
    return this.#sources.filter(
      (source) =>
        (source.historyId === historyId || source.historyId === "") &&
        (source.revision ?? 0) < revision,
    );
  }
}
