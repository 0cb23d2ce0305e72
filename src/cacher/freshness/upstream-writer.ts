import type { Logger } from "pino";
import type { Clock } from "../../base/clock.ts";
import { hasReason, upstreamUnavailable, WatchFanoutError } from "../../base/errors.ts";
import { isSameObject } from "../../model/object.ts";
import type { Reflector } from "../../reflector/reflector.ts";
import type { DeleteRequest, PutRequest, Storage, WriteResult } from "../../storage/storage.ts";
import type { WatchCache } from "../state/watch-cache.ts";

/** How long the answer to a write is held back to find out which history it is of, in milliseconds. */
const historyCheckTimeoutMs = 3_000;

export interface UpstreamWriterDeps {
  readonly storage: Storage;
  readonly cache: WatchCache;
  /** How the cache's history is told from the store's. */
  readonly reflector: Pick<
    Reflector,
    "isWatching" | "historyGeneration" | "untilNextHistory" | "confirmHistory" | "invalidate"
  >;
  readonly clock: Clock;
  readonly logger: Logger;
  /** The resource's name, for the log. */
  readonly name: string;
}

/** What the cache knew when a write began. */
interface KnownHistory {
  readonly historyGeneration: number;
  /** In the same history the store is at least there, and a write goes beyond it. */
  readonly revision: number;
}

/**
 * Writes, each with the id of the history that its revision is of. A store may have been put back to an older state,
 * which the cache has yet to find out: then it is at a revision of another history that the write was done, and the
 * cache's id for it would have reads of that revision answered from a history in which it means something else.
 *
 * What the answer of a write itself proves is not ignored: a revision that the cache had come to before the write
 * began, or another id. Where nothing comes from the store, it is asked. If that shows another history, the cache is
 * told so, and the answer waits until it has taken that in, for up to 3 s. A write that was done is never an error for
 * that: if its history can't be told in time, the answer's id is empty.
 */
export class UpstreamWriter implements Pick<Storage, "put" | "delete"> {
  readonly #deps: UpstreamWriterDeps;

  constructor(deps: UpstreamWriterDeps) {
    this.#deps = deps;
  }

  put(request: PutRequest): Promise<WriteResult> {
    return this.#write(this.#deps.storage.put(request), request.signal);
  }

  delete(request: DeleteRequest): Promise<WriteResult> {
    return this.#write(this.#deps.storage.delete(request), request.signal);
  }

  async #write(
    writing: Promise<WriteResult>,
    signal: AbortSignal | undefined,
  ): Promise<WriteResult> {
    const { cache, reflector } = this.#deps;
    const known: KnownHistory = {
      historyGeneration: reflector.historyGeneration,
      revision: cache.revision,
    };
    let result: WriteResult;
    try {
      result = await writing;
    } catch (error) {
      await this.#learnFrom(error, known, signal);
      throw error;
    }
    return { ...result, historyId: await this.#historyOf(result, known, signal) };
  }

  /** The id of the history in which this write was done, which has just been answered; empty if it can't be told. */
  async #historyOf(
    { revision, object, historyId: reported }: WriteResult,
    known: KnownHistory,
    signal: AbortSignal | undefined,
  ): Promise<string> {
    const { cache } = this.#deps;
    // A cache that has yet to be filled for the first time knows nothing.
    if (known.historyGeneration === 0) return reported ?? "";
    // Nothing is written at a revision that there was before.
    const isProven = revision <= known.revision;
    const outcome = await this.#settle(isProven || this.#isOtherId(reported), known, signal);
    if (outcome === "unknown") return "";
    const { historyId } = cache;
    if (outcome === "same" || isProven || reported === historyId) return historyId;
    // It may have been done just before the store was put back.
    const now = cache.state.get(object.key);
    return now !== undefined && isSameObject(now, object) ? historyId : "";
  }

  /** What was refused tells of the store as well, and is followed by reads. */
  async #learnFrom(
    error: unknown,
    known: KnownHistory,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    if (!(error instanceof WatchFanoutError) || known.historyGeneration === 0) return;
    const { reason, metadata } = error;
    if (reason === "HISTORY_CHANGED") {
      if (this.#isOtherId(metadata["history_id"]))
        this.#deps.reflector.invalidate(known.historyGeneration);
    } else if (reason === "OBJECT_NOT_FOUND" || reason === "REVISION_CONFLICT") {
      const isOther = Number(metadata["revision"] ?? Infinity) < known.revision;
      await this.#settle(isOther, known, signal);
    }
  }

  #isOtherId(reported: string | undefined): boolean {
    const { historyId } = this.#deps.cache;
    return reported !== undefined && reported !== "" && historyId !== "" && reported !== historyId;
  }

  /**
   * Finds out whether the store still has the history that was known, and if not has the cache take in the one that
   * it has now. `isOther`: that it has not is certain already. "unknown" if either can't be done in time.
   */
  async #settle(
    isOther: boolean,
    { historyGeneration }: KnownHistory,
    signal: AbortSignal | undefined,
  ): Promise<"same" | "other" | "unknown"> {
    const { reflector } = this.#deps;
    if (isOther) {
      reflector.invalidate(historyGeneration);
    } else if (reflector.historyGeneration === historyGeneration) {
      if (reflector.isWatching) return "same";
      const isSame = await this.#isConfirmed(signal);
      if (isSame === undefined) return "unknown";
      if (isSame && reflector.historyGeneration === historyGeneration) return "same";
    }
    if (reflector.historyGeneration === historyGeneration) {
      await this.#inTime((over) => reflector.untilNextHistory(over), signal);
    }
    return reflector.historyGeneration === historyGeneration ? "unknown" : "other";
  }

  /** Whether the store is still of the cache's history; undefined if that can't be found out in time. */
  async #isConfirmed(signal: AbortSignal | undefined): Promise<boolean | undefined> {
    const { reflector, logger, name } = this.#deps;
    try {
      await this.#inTime((over) => reflector.confirmHistory(over), signal);
      return true;
    } catch (error) {
      if (hasReason(error, "HISTORY_CHANGED")) return false;
      logger.debug({ err: error, resource: name }, "could not tell the history of a write");
      return undefined;
    }
  }

  /** What `ask` comes to, whose signal is aborted once it has taken too long or nobody waits any more. */
  async #inTime<T>(
    ask: (over: AbortSignal) => Promise<T>,
    signal: AbortSignal | undefined,
  ): Promise<T> {
    const over = new AbortController();
    const giveUp = (): void => over.abort(upstreamUnavailable("The store did not say in time."));
    const timer = this.#deps.clock.setTimeout(giveUp, historyCheckTimeoutMs);
    if (signal?.aborted === true) giveUp();
    signal?.addEventListener("abort", giveUp);
    try {
      return await ask(over.signal);
    } finally {
      timer.cancel();
      signal?.removeEventListener("abort", giveUp);
    }
  }
}
