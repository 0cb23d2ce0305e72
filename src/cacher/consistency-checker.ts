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
export interface Difference {
  readonly key: string;
  readonly revision: number;
  readonly cached: number;
  readonly stored: number;
}

export interface ConsistencyCheckOptions {
  readonly storage: Storage;
  readonly cache: WatchCache;
  readonly clock: Clock;
  readonly random: () => number;
  readonly logger: Logger;
  /** The resource's name, for the log. */
  readonly name: string;
  /** On average; 0: never. */
  readonly intervalMs: number;
  readonly onDifference: (difference: Difference) => void;
}

/**
 * Now and then compares which keys stand in the cache, and at which revisions, with what the storage says
 * of the same revision. No fault that we know of makes them differ; this is for those that we don't.
 */
export class ConsistencyCheck {
  readonly #options: ConsistencyCheckOptions;
  readonly #stopping = new AbortController();
  #timer: Timer | undefined;
  #checks = 0;
  #differences = 0;

  constructor(options: ConsistencyCheckOptions) {
    this.#options = options;
  }

  /** Comparisons that came to their end. */
  get checks(): number {
    return this.#checks;
  }

  get differences(): number {
    return this.#differences;
  }

  /** Harmless when called twice. */
  start(): void {
    const { clock, intervalMs, random } = this.#options;
    if (intervalMs === 0 || this.#stopping.signal.aborted) return;
    // Jittered, so that replicas do not all ask at once.
    const delayMs = Math.min(intervalMs * (0.5 + random()), maxTimerMs);
    this.#timer ??= clock.setTimeout(() => void this.#checkAndGoOn(), delayMs);
  }

  stop(): void {
    this.#stopping.abort();
    this.#timer?.cancel();
  }

  /**
   * Compares once. Resolves to the first difference. Rejects as the storage does, with REVISION_TOO_OLD if
   * it was compacted on the way.
   */
  async compare(): Promise<Difference | undefined> {
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
        const difference = differ(cached.next().value ?? undefined, stored, revision);
        if (difference !== undefined) return difference;
      }
      startAfter = page.next;
    } while (startAfter !== undefined);
    return differ(cached.next().value ?? undefined, undefined, revision);
  }

  async #checkAndGoOn(): Promise<void> {
    const { cache, logger, name, onDifference } = this.#options;
    const { history } = cache;
    // Before the first listing there is nothing to compare.
    if (cache.revision === 0) return this.#goOn();
    try {
      const difference = await this.compare();
      this.#checks++;
      // What has been replaced meanwhile is not what is served.
      if (difference !== undefined && cache.history === history) {
        this.#differences++;
        logger.error({ resource: name, ...difference }, "the cache differs from the store");
        onDifference(difference);
      }
    } catch (error) {
      if (this.#stopping.signal.aborted) return;
      // A store that is away or was compacted meanwhile says nothing about the cache.
      const level = hasReason(error, "REVISION_TOO_OLD") ? "debug" : "warn";
      logger[level]({ resource: name, err: error }, "could not compare the cache with the store");
    }
    this.#goOn();
  }

  #goOn(): void {
    this.#timer = undefined;
    this.start();
  }
}

function differ(
  cached: StoredObject | undefined,
  stored: StoredObject | undefined,
  revision: number,
): Difference | undefined {
  if (cached?.key === stored?.key && cached?.modRevision === stored?.modRevision) return undefined;
  const key = stored?.key ?? cached?.key ?? "";
  return {
    key,
    revision,
    cached: cached?.key === key ? cached.modRevision : 0,
    stored: stored?.modRevision ?? 0,
  };
}
