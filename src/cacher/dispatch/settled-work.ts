import type { Clock } from "../../base/clock.ts";
import { runInTimeSlices } from "../../base/event-loop-turns.ts";
import type { DispatchTarget } from "./dispatch-target.ts";

/** What the work after a round uses of the dispatcher. */
interface SettledDispatcher {
  readonly settledRevision: number;
  requestBookmark(watcher: DispatchTarget): void;
}

/** A callback for when `settledRevision` reaches `revision`. */
interface SettledCallback {
  readonly revision: number;
  readonly callback: () => void;
}

/**
 * What the dispatcher does when a round is over: notifies the watchers that wait for that, sends eager bookmarks, and
 * calls the callbacks whose revision is settled.
 */
export class SettledWork {
  readonly #clock: Clock;
  readonly #dispatcher: SettledDispatcher;
  readonly #eager = new Set<DispatchTarget>();
  readonly #awaiting = new Set<DispatchTarget>();
  #callbacks: SettledCallback[] = [];
  /** Whether a pass over the eager watchers is in progress. It may take several rounds; there is one at a time. */
  #isBookmarking = false;

  constructor(clock: Clock, dispatcher: SettledDispatcher) {
    this.#clock = clock;
    this.#dispatcher = dispatcher;
  }

  /** Sends the watcher eager bookmarks, if it wants them, until `remove`. */
  add(watcher: DispatchTarget): void {
    if (watcher.options.eagerBookmarks) this.#eager.add(watcher);
  }

  /** Idempotent. */
  remove(watcher: DispatchTarget): void {
    this.#eager.delete(watcher);
    this.#awaiting.delete(watcher);
  }

  /** Notifies the watcher, once, after the next round. */
  notifyNext(watcher: DispatchTarget): void {
    this.#awaiting.add(watcher);
  }

  /** Calls `callback`, once, when `revision` is settled. */
  addCallback(revision: number, callback: () => void): void {
    this.#callbacks.push({ revision, callback });
  }

  clear(): void {
    this.#eager.clear();
    this.#awaiting.clear();
    this.#callbacks = [];
  }

  /** Called after each round, with `settledRevision` up to date. */
  run(): void {
    if (this.#eager.size > 0 && !this.#isBookmarking) {
      // Not by the pass itself, which begins in a later turn if this one's slice is over.
      this.#isBookmarking = true;
      runInTimeSlices(this.#clock, this.#bookmarkEager());
    }
    if (this.#awaiting.size > 0) {
      const awaiting = [...this.#awaiting];
      this.#awaiting.clear();
      for (const watcher of awaiting) watcher.notify();
    }
    if (this.#callbacks.length === 0) return;
    const callbacks = this.#callbacks;
    const { settledRevision } = this.#dispatcher;
    this.#callbacks = callbacks.filter(({ revision }) => revision > settledRevision);
    for (const { revision, callback } of callbacks) {
      if (revision <= settledRevision) callback();
    }
  }

  /** Repeats the pass until no newer revision was settled during it. */
  *#bookmarkEager(): Generator<void, void, void> {
    let announced: number;
    do {
      announced = this.#dispatcher.settledRevision;
      for (const watcher of this.#eager) {
        if (watcher.position >= this.#dispatcher.settledRevision) continue;
        this.#dispatcher.requestBookmark(watcher);
        yield;
      }
    } while (announced !== this.#dispatcher.settledRevision);
    this.#isBookmarking = false;
  }
}
