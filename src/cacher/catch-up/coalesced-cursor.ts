import type { HistoryNode } from "../state/event-node.ts";
import type { CacheWatcher } from "../watch/cache-watcher.ts";
import type { WatcherHost } from "../watch/watcher-context.ts";
import type { Backlog, FinishedFold } from "./coalesced-backlog.ts";
import type { FoldedUnit } from "./coalesced-batch.ts";
import type { Behind, Taken } from "./event-window-cursor.ts";

/**
 * How a LATEST_STATE watcher catches up: everything that it has not been sent comes as one unit, folded by
 * key. Nothing is folded before its reader comes for it, or history is about to let go of it.
 */
export class FoldReader implements Behind {
  readonly #watcher: CacheWatcher;
  readonly #host: WatcherHost;
  /** The unit that is being told, and which of its pieces comes next. */
  #unit: FoldedUnit | undefined;
  #piece = 0;
  /** What comes after that: a node of history, or the backlog since one. */
  #cursor: HistoryNode | undefined;
  #backlog: Backlog | undefined;

  constructor(watcher: CacheWatcher, host: WatcherHost, cursor: HistoryNode) {
    this.#watcher = watcher;
    this.#host = host;
    this.#cursor = cursor;
  }

  next(): Taken | undefined {
    if (this.#unit !== undefined) return this.#tell(this.#unit);
    const { dispatcher } = this.#host;
    for (;;) {
      const reached = this.#backlog?.reached ?? this.#cursor;
      if (reached === undefined) return undefined;
      if (reached.sequence > dispatcher.position.sequence) {
        dispatcher.awaitRound(this.#watcher);
        return undefined;
      }
      if (this.#isLevel) return { batch: undefined, isLevel: true };
      const finished = this.#hold().finish(this.#watcher);
      if (finished === undefined) return undefined;
      this.#goOnAfter(finished);
      if (finished.unit.isNews) return this.#begin(finished.unit);
    }
  }

  checkWindow(): void {
    const reached = this.#backlog?.reached ?? this.#cursor;
    if (reached === undefined || this.#host.history.holdsAfter(reached)) return;
    this.#hold().catchUp();
  }

  drop(): void {
    this.#release();
    this.#cursor = undefined;
    if (this.#unit !== undefined) this.#host.folds.done(this.#unit, this.#watcher);
    this.#unit = undefined;
  }

  get #isLevel(): boolean {
    return this.#cursor === this.#host.dispatcher.position;
  }

  /** The node is let go of in exchange for the backlog, which does not hold what it has folded. */
  #hold(): Backlog {
    if (this.#backlog === undefined) {
      if (this.#cursor === undefined) throw new Error("There is nothing to go on from.");
      const { folds } = this.#host;
      this.#backlog = folds.hold(this.#watcher.filter, this.#cursor, this.#watcher);
      this.#cursor = undefined;
    }
    return this.#backlog;
  }

  #release(): void {
    this.#backlog?.released(this.#watcher);
    this.#backlog = undefined;
  }

  #goOnAfter({ level }: FinishedFold): void {
    this.#release();
    this.#cursor = level;
  }

  #begin(unit: FoldedUnit): Taken {
    this.#host.folds.begin(unit, this.#watcher);
    this.#unit = unit;
    this.#piece = 0;
    return this.#tell(unit);
  }

  #tell(unit: FoldedUnit): Taken {
    const batch = unit.piece(this.#piece++);
    if (batch.revision === undefined) return { batch, isLevel: false };
    this.#host.folds.done(unit, this.#watcher);
    this.#unit = undefined;
    return { batch, isLevel: this.#isLevel };
  }
}
