import type { EventNode } from "../state/event-node.ts";
import type { CoalescedBacklog, FinishedBacklog } from "./coalesced-backlog.ts";
import type { CoalescedBatch } from "./coalesced-batch.ts";
import type {
  CursorOrigin,
  SourceContext,
  SourceReader,
  SourceResult,
  WatchSource,
} from "./watch-source.ts";

/**
 * Catches up a LATEST_STATE watcher: delivers everything that it missed as one atomic batch, coalesced by key. Events
 * are coalesced when the client reads, or at the next maintenance pass (500 ms) after the event window has dropped
 * them; until then the node holds them.
 */
export class CoalescedCursor implements WatchSource {
  readonly successor = undefined;
  readonly #watcher: SourceReader;
  readonly #context: SourceContext;
  #state: WatchSource["state"];
  /** The batch that is being delivered, and the number of its next chunk. */
  #batch: CoalescedBatch | undefined;
  #chunk = 0;
  /** What follows the batch: the events after a node of the event window, or the backlog since one. */
  #cursor: EventNode | undefined;
  #backlog: CoalescedBacklog | undefined;
  /** When the oldest event of the batch, and of the backlog after it, arrived. */
  #batchSince: number | undefined;
  #backlogSince: number | undefined;

  constructor(
    watcher: SourceReader,
    context: SourceContext,
    cursor: EventNode,
    origin: CursorOrigin,
  ) {
    this.#watcher = watcher;
    this.#context = context;
    this.#cursor = cursor;
    this.#state = origin === "live" ? "stalled" : "catching up";
  }

  get state(): WatchSource["state"] {
    return this.#state;
  }

  get unreadSince(): number | undefined {
    return this.#batchSince ?? this.#backlogSince ?? this.#cursor?.next?.arrivedAt;
  }

  next(): SourceResult | undefined {
    this.#state = "catching up";
    if (this.#batch !== undefined) return this.#deliver(this.#batch);
    const { dispatcher } = this.#context;
    for (;;) {
      const reached = this.#backlog?.reached ?? this.#cursor;
      if (reached === undefined) return undefined;
      if (reached.sequence > dispatcher.position.sequence) {
        dispatcher.notifyAfterRound(this.#watcher);
        return undefined;
      }
      if (this.#isSynced) return { batch: undefined, isDone: true };
      const finished = this.#hold().finish(this.#watcher);
      // Coalescing may exceed the bound on all backlogs, which ends the watchers of the largest one.
      if (finished === undefined || this.#watcher.state === "ended") return undefined;
      const since = this.#backlogSince;
      this.#continueAfter(finished);
      if (finished.batch.hasChanges) return this.#begin(finished.batch, since);
    }
  }

  checkWindow(): void {
    const reached = this.#backlog?.reached ?? this.#cursor;
    if (reached === undefined || this.#context.cache.eventWindow.covers(reached)) return;
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

  /** Exchanges the node for the backlog since it. The backlog does not keep the events that it has coalesced. */
  #hold(): CoalescedBacklog {
    if (this.#backlog === undefined) {
      if (this.#cursor === undefined)
        throw new Error("The cursor has no position to continue after.");
      const { coalescedBacklogs } = this.#context;
      this.#backlogSince = this.#cursor.next?.arrivedAt;
      this.#backlog = coalescedBacklogs.hold(this.#watcher.filter, this.#cursor, this.#watcher);
      this.#cursor = undefined;
    }
    return this.#backlog;
  }

  #release(): void {
    this.#backlog?.removeHolder(this.#watcher);
    this.#backlog = undefined;
    this.#backlogSince = undefined;
  }

  #continueAfter({ target }: FinishedBacklog): void {
    this.#release();
    this.#cursor = target;
  }

  #begin(coalesced: CoalescedBatch, since: number | undefined): SourceResult {
    this.#context.coalescedBacklogs.startDelivery(coalesced, this.#watcher);
    this.#batch = coalesced;
    this.#batchSince = since;
    this.#chunk = 0;
    return this.#deliver(coalesced);
  }

  #deliver(coalesced: CoalescedBatch): SourceResult {
    const batch = coalesced.chunk(this.#chunk++);
    if (batch.revision === undefined) return { batch, isDone: false };
    this.#context.coalescedBacklogs.endDelivery(coalesced, this.#watcher);
    this.#batch = undefined;
    this.#batchSince = undefined;
    return { batch, isDone: this.#isSynced };
  }
}
