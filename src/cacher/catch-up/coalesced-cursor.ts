import type { EventNode } from "../state/event-node.ts";
import type {
  CatchUpContext,
  CatchUpReader,
  CatchUpResult,
  CatchUpSource,
} from "./catch-up-source.ts";
import type { CoalescedBacklog, FinishedBacklog } from "./coalesced-backlog.ts";
import type { CoalescedBatch } from "./coalesced-batch.ts";

/**
 * How a LATEST_STATE watcher catches up: everything that it has not been sent comes as one unit, folded by
 * key. Nothing is folded before its reader comes for it, or history is about to let go of it.
 */
export class CoalescedCursor implements CatchUpSource {
  readonly #watcher: CatchUpReader;
  readonly #context: CatchUpContext;
  /** The unit that is being told, and which of its pieces comes next. */
  #batch: CoalescedBatch | undefined;
  #chunk = 0;
  /** What comes after that: a node of history, or the backlog since one. */
  #cursor: EventNode | undefined;
  #backlog: CoalescedBacklog | undefined;

  constructor(watcher: CatchUpReader, context: CatchUpContext, cursor: EventNode) {
    this.#watcher = watcher;
    this.#context = context;
    this.#cursor = cursor;
  }

  next(): CatchUpResult | undefined {
    if (this.#batch !== undefined) return this.#deliver(this.#batch);
    const { dispatcher } = this.#context;
    for (;;) {
      const reached = this.#backlog?.reached ?? this.#cursor;
      if (reached === undefined) return undefined;
      if (reached.sequence > dispatcher.position.sequence) {
        dispatcher.notifyAfterRound(this.#watcher);
        return undefined;
      }
      if (this.#isSynced) return { batch: undefined, isSynced: true };
      const finished = this.#hold().finish(this.#watcher);
      if (finished === undefined) return undefined;
      this.#continueAfter(finished);
      if (finished.batch.hasChanges) return this.#begin(finished.batch);
    }
  }

  checkWindow(): void {
    const reached = this.#backlog?.reached ?? this.#cursor;
    if (reached === undefined || this.#context.eventWindow.covers(reached)) return;
    this.#hold().catchUp();
  }

  drop(): void {
    this.#release();
    this.#cursor = undefined;
    if (this.#batch !== undefined)
      this.#context.coalescedBacklogs.endDelivery(this.#batch, this.#watcher);
    this.#batch = undefined;
  }

  get #isSynced(): boolean {
    return this.#cursor === this.#context.dispatcher.position;
  }

  /** The node is let go of in exchange for the backlog, which does not hold what it has folded. */
  #hold(): CoalescedBacklog {
    if (this.#backlog === undefined) {
      if (this.#cursor === undefined) throw new Error("There is nothing to go on from.");
      const { coalescedBacklogs } = this.#context;
      this.#backlog = coalescedBacklogs.hold(this.#watcher.filter, this.#cursor, this.#watcher);
      this.#cursor = undefined;
    }
    return this.#backlog;
  }

  #release(): void {
    this.#backlog?.removeHolder(this.#watcher);
    this.#backlog = undefined;
  }

  #continueAfter({ target }: FinishedBacklog): void {
    this.#release();
    this.#cursor = target;
  }

  #begin(coalesced: CoalescedBatch): CatchUpResult {
    this.#context.coalescedBacklogs.startDelivery(coalesced, this.#watcher);
    this.#batch = coalesced;
    this.#chunk = 0;
    return this.#deliver(coalesced);
  }

  #deliver(coalesced: CoalescedBatch): CatchUpResult {
    const batch = coalesced.chunk(this.#chunk++);
    if (batch.revision === undefined) return { batch, isSynced: false };
    this.#context.coalescedBacklogs.endDelivery(coalesced, this.#watcher);
    this.#batch = undefined;
    return { batch, isSynced: this.#isSynced };
  }
}
