import type { Logger } from "pino";
import { type Clock, maxTimerMs, type Timer } from "../base/clock.ts";
import { hasReason } from "../base/errors.ts";
import type { StoredObject } from "../model/object.ts";
import type { Storage } from "../storage/storage.ts";
import type { WatchCache } from "./state/watch-cache.ts";

/**
 * Keys to a page of the storage's side of a comparison: so many that etcd, which counts for each page what
 * follows it, is not asked often, and so few that the event loop is not held up for long.
 */
const pageSize = 10_000;

/** The first key in which cache and storage differ, and where it stands in either; 0: nowhere. */
export interface Inconsistency {
  readonly key: string;
  readonly revision: number;
  readonly cached: number;
  readonly stored: number;
}

export interface ConsistencyCheckerOptions {
  readonly storage: Storage;
  readonly cache: WatchCache;
  readonly clock: Clock;
  readonly random: () => number;
  readonly logger: Logger;
  /** The resource's name, for the log. */
  readonly name: string;
  /** On average; 0: never. */
  readonly intervalMs: number;
  readonly onInconsistency: (inconsistency: Inconsistency) => void;
}

/**
 * Now and then compares which keys stand in the cache, and at which revisions, with what the storage says
 * of the same revision. No fault that we know of makes them differ; this is for those that we don't.
 */
export class ConsistencyChecker {
  readonly #options: ConsistencyCheckerOptions;
  readonly #stopping = new AbortController();
  #timer: Timer | undefined;
  #checks = 0;
  #inconsistencies = 0;

  constructor(options: ConsistencyCheckerOptions) {
    this.#options = options;
  }

  /** Comparisons that came to their end. */
  get checks(): number {
    return this.#checks;
  }

  get inconsistencies(): number {
    return this.#inconsistencies;
  }

  /** Harmless when called twice. */
  start(): void {
    const { clock, intervalMs, random } = this.#options;
    if (intervalMs === 0 || this.#stopping.signal.aborted) return;
    // Jittered, so that replicas do not all ask at once.
    const delayMs = Math.min(intervalMs * (0.5 + random()), maxTimerMs);
    this.#timer ??= clock.setTimeout(() => void this.#checkAndReschedule(), delayMs);
  }

  stop(): void {
    this.#stopping.abort();
    this.#timer?.cancel();
  }

  /**
   * Compares once. Resolves to the first difference. Rejects as the storage does, with REVISION_TOO_OLD if
   * it was compacted on the way.
   */
  async compare(): Promise<Inconsistency | undefined> {
    const { cache, storage } = this.#options;
    const { revision } = cache;
    const cached = cache.state.snapshot().range("");
    let startAfter: string | undefined;
    do {
      const page = await storage.list({
        prefix: "",
        startAfter,
        limit: pageSize,
        keysOnly: true,
        at: { match: "EXACT", revision },
        signal: this.#stopping.signal,
      });
      for (const stored of page.items) {
        const inconsistency = compareObjects(cached.next().value ?? undefined, stored, revision);
        if (inconsistency !== undefined) return inconsistency;
      }
      startAfter = page.next;
    } while (startAfter !== undefined);
    return compareObjects(cached.next().value ?? undefined, undefined, revision);
  }

  async #checkAndReschedule(): Promise<void> {
    const { cache, logger, name, onInconsistency } = this.#options;
    const { eventWindow } = cache;
    // Before the first listing there is nothing to compare.
    if (cache.revision === 0) return this.#scheduleNext();
    try {
      const inconsistency = await this.compare();
      this.#checks++;
      // What has been replaced meanwhile is not what is served.
      if (inconsistency !== undefined && cache.eventWindow === eventWindow) {
        this.#inconsistencies++;
        logger.error({ resource: name, ...inconsistency }, "the cache differs from the store");
        onInconsistency(inconsistency);
      }
    } catch (error) {
      if (this.#stopping.signal.aborted) return;
      // A store that is away or was compacted meanwhile says nothing about the cache.
      const level = hasReason(error, "REVISION_TOO_OLD") ? "debug" : "warn";
      logger[level]({ resource: name, err: error }, "could not compare the cache with the store");
    }
    this.#scheduleNext();
  }

  #scheduleNext(): void {
    this.#timer = undefined;
    this.start();
  }
}

function compareObjects(
  cached: StoredObject | undefined,
  stored: StoredObject | undefined,
  revision: number,
): Inconsistency | undefined {
  if (cached?.key === stored?.key && cached?.modRevision === stored?.modRevision) return undefined;
  const key = stored?.key ?? cached?.key ?? "";
  return {
    key,
    revision,
    cached: cached?.key === key ? cached.modRevision : 0,
    stored: stored?.modRevision ?? 0,
  };
}
