import { maxTimerMs, type Timer } from "../base/clock.ts";
import { hasReason } from "../base/errors.ts";
import type { StoredObject } from "../model/object.ts";
import type { Reflector } from "../reflector/reflector.ts";
import { checkSameHistory } from "../storage/checks.ts";
import type { ComponentContext } from "./state/component.ts";

/**
 * Number of keys on each page that is read from the store for a comparison. A larger page blocks the event loop for
 * longer; a smaller one causes more requests, for each of which etcd counts all keys that follow the page.
 */
const pageSize = 10_000;

/** The first key in which cache and store differ. */
interface Inconsistency {
  readonly key: string;
  /** The revision at which both were compared. */
  readonly revision: number;
  /** The object's mod_revision in the cache; 0 if it is absent. */
  readonly cached: number;
  /** The object's mod_revision in the store; 0 if it is absent. */
  readonly stored: number;
}

/**
 * Periodically compares the keys and mod_revisions in the cache with those in the store, at the same revision. No
 * known fault makes them differ; the check finds unknown ones.
 */
export class ConsistencyChecker {
  readonly #context: ComponentContext;
  readonly #history: Pick<Reflector, "confirmHistory">;
  readonly #intervalMs: number;
  readonly #onInconsistency: (inconsistency: Inconsistency) => void;
  readonly #stopping = new AbortController();
  #timer: Timer | undefined;
  #checks = 0;
  #inconsistencies = 0;

  /** `intervalMs` is the average interval in milliseconds; 0: never. */
  constructor(
    context: ComponentContext,
    history: Pick<Reflector, "confirmHistory">,
    intervalMs: number,
    onInconsistency: (inconsistency: Inconsistency) => void,
  ) {
    this.#context = context;
    this.#history = history;
    this.#intervalMs = intervalMs;
    this.#onInconsistency = onInconsistency;
  }

  /** Number of completed comparisons. */
  get checks(): number {
    return this.#checks;
  }

  /** Number of comparisons that found a difference. */
  get inconsistencies(): number {
    return this.#inconsistencies;
  }

  /** Idempotent. */
  start(): void {
    if (this.#intervalMs === 0 || this.#stopping.signal.aborted) return;
    const { clock, random } = this.#context;
    // Jittered, so that replicas do not all read from the store at once.
    const delayMs = Math.min(this.#intervalMs * (0.5 + random()), maxTimerMs);
    this.#timer ??= clock.setTimeout(() => void this.#checkAndReschedule(), delayMs);
  }

  stop(): void {
    this.#stopping.abort();
    this.#timer?.cancel();
  }

  /**
   * Compares once. Resolves to the first difference, or to undefined if both are equal. Rejects with the store's
   * error, which is REVISION_TOO_OLD if the revision is compacted during the comparison, and with HISTORY_CHANGED if what the
   * store returned belongs to another history.
   */
  async compare(): Promise<Inconsistency | undefined> {
    const { cache, source } = this.#context;
    const { revision, historyId } = cache;
    const cached = cache.state.snapshot().range("");
    let startAfter: string | undefined;
    do {
      const page = await source.list({
        prefix: "",
        startAfter,
        limit: pageSize,
        keysOnly: true,
        at: { match: "EXACT", revision },
        signal: this.#stopping.signal,
      });
      // A server that is not the followed one may have found a restore first.
      checkSameHistory(historyId, page.historyId);
      for (const stored of page.items) {
        const inconsistency = compareObjects(cached.next().value ?? undefined, stored, revision);
        if (inconsistency !== undefined) return inconsistency;
      }
      startAfter = page.next;
    } while (startAfter !== undefined);
    return compareObjects(cached.next().value ?? undefined, undefined, revision);
  }

  async #checkAndReschedule(): Promise<void> {
    const { cache, logger, name } = this.#context;
    const { eventWindow } = cache;
    // Before the first list there is nothing to compare.
    if (cache.revision === 0) return this.#scheduleNext();
    try {
      const inconsistency = await this.compare();
      // A store that was restored meanwhile has another state at the same revision.
      if (inconsistency !== undefined) await this.#history.confirmHistory(this.#stopping.signal);
      this.#checks++;
      // A state that has been replaced meanwhile is no longer served.
      if (inconsistency !== undefined && cache.eventWindow === eventWindow) {
        this.#inconsistencies++;
        logger.error({ resource: name, ...inconsistency }, "the cache differs from the store");
        this.#onInconsistency(inconsistency);
      }
    } catch (error) {
      if (this.#stopping.signal.aborted) return;
      // A store that is unavailable, was compacted meanwhile or has another history proves nothing about the cache.
      const isKnown = hasReason(error, "REVISION_TOO_OLD") || hasReason(error, "HISTORY_CHANGED");
      const level = isKnown ? "debug" : "warn";
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
