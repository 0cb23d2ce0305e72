import { type Clock, maxTimerMs } from "../../base/clock.ts";
import {
  historyChanged,
  invalidRequest,
  revisionTooNew,
  upstreamUnavailable,
  WatchFanoutError,
} from "../../base/errors.ts";
import { SingleFlight } from "../../base/single-flight.ts";
import { type WaitBounds, within } from "../../base/wait.ts";
import type { Storage } from "../../storage/storage.ts";
import type { RevisionWaitOptions } from "./informer-options.ts";
import type { InformerPipeline } from "./informer-pipeline.ts";

const defaultTimeoutMs = 10_000;

/** Interval at which progress is requested, in milliseconds. The first request is enough unless the watch breaks. */
const askAgainMs = 1_000;

interface RevisionWaitsOptions {
  readonly storage: Storage;
  readonly pipeline: Pick<InformerPipeline<unknown>, "historyChanges" | "revision" | "until">;
  readonly clock: Clock;
  /** Aborted when the informer stops. */
  readonly stopped: AbortSignal;
  /** Resolves when handlers were called for everything that is queued now. */
  readonly handled: () => Promise<void>;
  /** Why nothing is received now; undefined if something is. */
  readonly failure: () => WatchFanoutError | undefined;
}

/** Waits until an informer has reached a revision. See `SharedInformer.waitForRevision`. */
export class RevisionWaits {
  readonly #options: RevisionWaitsOptions;
  /** The store's revision now, which all waits share. */
  readonly #current: SingleFlight<number>;

  constructor(options: RevisionWaitsOptions) {
    const { storage, clock, stopped } = options;
    this.#options = options;
    this.#current = new SingleFlight(() => storage.currentRevision(stopped), clock);
  }

  async wait(revision: number, options: RevisionWaitOptions): Promise<void> {
    const { storage, pipeline, clock, stopped, handled } = this.#options;
    const { timeoutMs = defaultTimeoutMs } = options;
    if (!Number.isSafeInteger(revision) || revision < 0) {
      throw invalidRequest("revision", `revision is ${revision}: it must be a whole number.`);
    }
    if (!(timeoutMs >= 0)) {
      throw invalidRequest("timeoutMs", `timeoutMs is ${timeoutMs}: it must be at least 0.`);
    }
    const signal = options.signal ? AbortSignal.any([options.signal, stopped]) : stopped;
    const end = clock.now() + timeoutMs;
    const boundsOf = (ms: number): WaitBounds<void> => {
      return {
        signal,
        deadline: { clock, ms: Math.min(Math.max(0, ms), maxTimerMs), expire: () => {} },
      };
    };
    const changes = pipeline.historyChanges;
    const isChanged = (): boolean => pipeline.historyChanges !== changes;
    const isReached = (): boolean => (pipeline.revision ?? -1) >= revision;
    while (!isReached()) {
      const leftMs = end - clock.now();
      if (leftMs <= 0) throw this.#late(revision, timeoutMs);
      storage.requestProgress();
      const askAgain = boundsOf(Math.min(askAgainMs, leftMs));
      await pipeline.until(() => isReached() || isChanged(), askAgain);
      if (isChanged()) throw changedMeanwhile(revision);
      if (!isReached()) await this.#checkExists(revision, boundsOf(end - clock.now()));
    }
    signal.throwIfAborted();
    if (options.handlers === true) await within(handled(), boundsOf(end - clock.now()));
  }

  /** Throws HISTORY_CHANGED if the store's own revision is lower. The revision has come from a write that is completed. */
  async #checkExists(revision: number, bounds: WaitBounds<void>): Promise<void> {
    let current: number | undefined;
    const request = this.#current.run().then((found) => {
      current = found;
    });
    try {
      await within(request, bounds);
    } catch (error) {
      // A store that can't be asked now may be asked later.
      if (!(error instanceof WatchFanoutError)) throw error;
    }
    if (current !== undefined && current < revision) throw historyChanged(revision, current);
  }

  #late(revision: number, timeoutMs: number): WatchFanoutError {
    const failure = this.#options.failure();
    if (failure === undefined)
      return revisionTooNew(revision, this.#options.pipeline.revision ?? 0);
    return upstreamUnavailable(
      `The informer has not reached revision ${revision} in ${timeoutMs} ms, as it can't list or watch now: ${failure.message}`,
      failure,
    );
  }
}

function changedMeanwhile(revision: number): WatchFanoutError {
  return new WatchFanoutError(
    "HISTORY_CHANGED",
    `The store was restored while an informer waited for revision ${revision}, which may not exist any more. Read the ` +
      "object again, and decide by its current state.",
    { metadata: { history_id: "" } },
  );
}

/**
 * The same for several informers of one store: resolves once all of them have reached the revision, and rejects as soon as
 * one can't.
 */
export async function waitForRevision(
  informers: Iterable<{
    waitForRevision(revision: number, options?: RevisionWaitOptions): Promise<void>;
  }>,
  revision: number,
  options: RevisionWaitOptions = {},
): Promise<void> {
  const failed = new AbortController();
  const signal = options.signal ? AbortSignal.any([options.signal, failed.signal]) : failed.signal;
  const all = { ...options, signal };
  try {
    await Promise.all(Array.from(informers, (each) => each.waitForRevision(revision, all)));
  } finally {
    // Ends the other waits.
    failed.abort();
  }
}
