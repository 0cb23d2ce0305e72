import type { Clock } from "../base/clock.ts";
import type { Condition } from "../base/condition.ts";
import { hasReason, upstreamUnavailable, WatchFanoutError } from "../base/errors.ts";
import { SingleFlight } from "../base/single-flight.ts";
import { abortable } from "../base/wait.ts";
import type { ReflectorState } from "./reflector-state.ts";

/** How long a read waits for the list that decides whether its response is of the same history, in milliseconds. */
const listTimeoutMs = 3_000;

interface HistoryConfirmationDeps {
  readonly clock: Clock;
  readonly state: ReflectorState;
  /** Notified after each list and each recovery. */
  readonly progress: Condition;
  /** Asks the store. Rejects with HISTORY_CHANGED, with REVISION_TOO_OLD if it can't say, or as the store fails. */
  readonly check: () => Promise<void>;
  /** Called with the generation of a history that the store no longer has. */
  readonly invalidate: (historyGeneration: number) => void;
}

/** Confirms to reads that the target's state belongs to the history that the store has now. */
export class HistoryConfirmation {
  readonly #deps: HistoryConfirmationDeps;
  readonly #check: SingleFlight<void>;

  constructor(deps: HistoryConfirmationDeps) {
    this.#deps = deps;
    this.#check = new SingleFlight(deps.check, deps.clock);
  }

  /** See `Reflector.confirmHistory`. */
  async confirm(signal: AbortSignal): Promise<void> {
    const { state, invalidate } = this.#deps;
    if (state.isWatching) return;
    const { historyGeneration, lists } = state;
    try {
      await abortable(this.#check.run(), signal);
    } catch (error) {
      if (hasReason(error, "HISTORY_CHANGED")) invalidate(historyGeneration);
      if (!hasReason(error, "REVISION_TOO_OLD")) throw error;
      await this.#awaitList(historyGeneration, lists, signal, error);
    }
  }

  /** The store has compacted what is known of the history, so the next list decides. */
  async #awaitList(
    historyGeneration: number,
    lists: number,
    signal: AbortSignal,
    cause: unknown,
  ): Promise<void> {
    const { clock, state, progress } = this.#deps;
    const isDecided = (): boolean => state.lists > lists || state.isWatching;
    const deadline = { clock, ms: listTimeoutMs, expire: () => {} };
    await progress.until(isDecided, { signal, deadline });
    if (state.historyGeneration !== historyGeneration) throw changedDuringList();
    if (isDecided()) return;
    throw upstreamUnavailable(
      "The store is compacted, so this replica can't confirm its history until it has relisted. Try again soon.",
      cause,
    );
  }
}

export function changedDuringList(): WatchFanoutError {
  return new WatchFanoutError(
    "HISTORY_CHANGED",
    "The store was restored to an older state during a list. It is relisted.",
    { metadata: { history_id: "" } },
  );
}
