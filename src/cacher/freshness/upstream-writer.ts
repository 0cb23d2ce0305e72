import { hasReason, upstreamUnavailable, WatchFanoutError } from "../../base/errors.ts";
import { type WaitBounds, within } from "../../base/wait.ts";
import { isSameObject, type StoredObject } from "../../model/object.ts";
import type { Reflector } from "../../reflector/reflector.ts";
import type { DeleteRequest, PutRequest, Storage, WriteResult } from "../../storage/storage.ts";
import type { StoreWrite } from "../../storage/store.ts";
import type { ComponentContext } from "../state/component.ts";

/** Maximum delay of the response to a write while its history is determined, in milliseconds. */
const historyCheckTimeoutMs = 3_000;

/** What the cache knows when a write begins. */
interface KnownHistory {
  readonly historyGeneration: number;
  /** In the same history the store is at least at this revision, and a write exceeds it. */
  readonly revision: number;
}

/**
 * Passes writes to the store, and adds to each response the id of the history that its revision belongs to. A store may
 * have been restored from a backup without the cache knowing yet. Then the revision of a write belongs to another
 * history, and with the id of the cached history, later reads of that revision would be served from a history in
 * which it has another meaning.
 *
 * The response itself may prove another history: by a revision that the cache had reached before the write began, or by
 * another id. While the upstream watch is broken, the store is asked. If its history is another one, the cache is
 * invalidated, and the response waits up to 3 s until the cache holds the new history. A completed write never fails
 * for this: if its history can't be determined in time, the id in its response is empty.
 */
export class UpstreamWriter implements Pick<Storage, "put" | "delete"> {
  readonly #context: ComponentContext;
  readonly #reflector: Reflector;

  constructor(context: ComponentContext, reflector: Reflector) {
    this.#context = context;
    this.#reflector = reflector;
  }

  put(request: PutRequest): Promise<WriteResult> {
    return this.#write(this.#context.storage.put(request), request.signal);
  }

  delete(request: DeleteRequest): Promise<WriteResult> {
    return this.#write(this.#context.storage.delete(request), request.signal);
  }

  async #write(
    writing: Promise<WriteResult>,
    signal: AbortSignal | undefined,
  ): Promise<WriteResult> {
    // A write never gets a revision that its history already had.
    const result = writing.then((each) => ({ ...each, revisionBefore: each.revision - 1 }));
    const historyId = await this.historyOfWrite(result, ({ object }) => object, signal);
    return { ...(await writing), historyId };
  }

  /**
   * The id of the history that a write belongs to which has just been sent; empty if it failed, or that can't be determined.
   * `written`: an object of this resource that was written. Never rejects.
   */
  async historyOfWrite<T extends StoreWrite>(
    writing: Promise<T>,
    written: (result: T) => StoredObject | undefined,
    signal: AbortSignal | undefined,
  ): Promise<string> {
    const known: KnownHistory = {
      historyGeneration: this.#reflector.historyGeneration,
      revision: this.#context.cache.revision,
    };
    let result: T;
    try {
      result = await writing;
    } catch (error) {
      await this.#learnFrom(error, known, signal);
      return "";
    }
    return this.#historyOf(result, written(result), known, signal);
  }

  async #historyOf(
    { revisionBefore = Infinity, historyId: reported }: StoreWrite,
    object: StoredObject | undefined,
    known: KnownHistory,
    signal: AbortSignal | undefined,
  ): Promise<string> {
    const { cache } = this.#context;
    // Before the first list there is no history to compare with.
    if (known.historyGeneration === 0) return reported ?? "";
    // The store was never behind the cache in the same history.
    const isProven = revisionBefore < known.revision;
    const outcome = await this.#settle(isProven || this.#isOtherId(reported), known, signal);
    if (outcome === "unknown") return "";
    const { historyId } = cache;
    if (outcome === "same" || isProven || reported === historyId) return historyId;
    // The write may have completed just before the store was restored.
    if (object === undefined) return "";
    const now = cache.state.get(object.key);
    return now !== undefined && isSameObject(now, object) ? historyId : "";
  }

  /** Checks the history after a refused write as well, since the client reads next, and the error may prove another. */
  async #learnFrom(
    error: unknown,
    known: KnownHistory,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    if (!(error instanceof WatchFanoutError) || known.historyGeneration === 0) return;
    const { reason, metadata } = error;
    if (reason === "HISTORY_CHANGED") {
      if (this.#isOtherId(metadata["history_id"]))
        this.#reflector.invalidate(known.historyGeneration);
    } else if (reason === "OBJECT_NOT_FOUND" || reason === "REVISION_CONFLICT") {
      const isOther = Number(metadata["revision"] ?? Infinity) < known.revision;
      await this.#settle(isOther, known, signal);
    }
  }

  #isOtherId(reported: string | undefined): boolean {
    const { historyId } = this.#context.cache;
    return reported !== undefined && reported !== "" && historyId !== "" && reported !== historyId;
  }

  /**
   * Determines whether the store still has the known history; if not, waits until the cache holds the new one.
   * `isOther`: another history is proven already. Returns "unknown" if either takes more than 3 s.
   */
  async #settle(
    isOther: boolean,
    { historyGeneration }: KnownHistory,
    signal: AbortSignal | undefined,
  ): Promise<"same" | "other" | "unknown"> {
    const reflector = this.#reflector;
    if (isOther) {
      reflector.invalidate(historyGeneration);
    } else if (reflector.historyGeneration === historyGeneration) {
      if (reflector.isFollowed) return "same";
      const isSame = await this.#isConfirmed(signal);
      if (isSame === undefined) return "unknown";
      if (isSame && reflector.historyGeneration === historyGeneration) return "same";
    }
    if (reflector.historyGeneration === historyGeneration) {
      // If it is not known in time, the generation is still the same.
      await reflector.untilNextHistory(this.#bounds(signal)).catch(() => {});
    }
    return reflector.historyGeneration === historyGeneration ? "unknown" : "other";
  }

  /** Whether the store still has the cached history; undefined if it does not respond in time. */
  async #isConfirmed(signal: AbortSignal | undefined): Promise<boolean | undefined> {
    const { logger, name } = this.#context;
    try {
      await within(this.#reflector.confirmHistory(), this.#bounds(signal));
      return true;
    } catch (error) {
      if (hasReason(error, "HISTORY_CHANGED")) return false;
      logger.debug({ err: error, resource: name }, "could not determine the history of a write");
      return undefined;
    }
  }

  #bounds(signal: AbortSignal | undefined): WaitBounds<void> {
    const expire = (): never => {
      throw upstreamUnavailable("The store did not confirm its history in time.");
    };
    return { signal, deadline: { clock: this.#context.clock, ms: historyCheckTimeoutMs, expire } };
  }
}
