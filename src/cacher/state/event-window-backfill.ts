import { pause } from "../../base/clock.ts";
import type { Turns } from "../../base/turns.ts";
import type { BackfillQueue } from "../../reflector/backfill/backfill-queue.ts";
import type { PastEvents } from "../../reflector/backfill/past-events.ts";
import {
  type BackfillState,
  type BackfillTarget,
  WindowBackfill,
} from "../../reflector/backfill/window-backfill.ts";
import type { Reflector } from "../../reflector/reflector.ts";
import type { ComponentContext } from "./component.ts";
import { EventLinker } from "./event-linker.ts";

/** How long a stream waits for the part of the window that it resumes from, in milliseconds. */
export const backfillTimeoutMs = 10_000;

/**
 * Number of revisions that are read without a request: what streams resume from after a restart at modest rates. It
 * costs etcd about 10 ms, whereas the whole window may cost 2 s.
 */
const eagerRevisions = 1_000;

/** Number of events after which no more revisions are read without a request. */
const eagerEvents = 1_000;

interface EventWindowBackfillOptions {
  /** Confirms that the store still has the history that the cache holds. */
  readonly history: Pick<Reflector, "confirmHistory">;
  readonly timeSlices: Turns;
  readonly queue: BackfillQueue;
  /** Maximum number of revisions from before the first list. */
  readonly revisions: number;
}

/** Progress of the backfill. */
export interface BackfillStats {
  /** `idle` before the first list. */
  readonly state: BackfillState | "idle";
  /** Number of revisions, and of events, from before the first list that the window has received. */
  readonly revisions: number;
  readonly events: number;
  /** Number of streams that wait for a missing part. */
  readonly waiting: number;
}

/**
 * Fills the event window with the events from before the cache's first list, in the background: the newest at once, and
 * older ones when the first stream resumes from them. The cache serves requests meanwhile; only a stream that resumes
 * from a missing part of the window waits for it.
 */
export class EventWindowBackfill {
  readonly #context: ComponentContext;
  readonly #options: EventWindowBackfillOptions;
  /** The backfill in progress, with its memory; undefined before and after it. */
  #backfill: WindowBackfill | undefined;
  #isBegun = false;
  /** The revision of the first list. */
  #from = 0;
  /** The progress when the backfill ended. */
  #last: Pick<BackfillStats, "state" | "revisions" | "events"> = {
    state: "idle",
    revisions: 0,
    events: 0,
  };
  /** The revisions that streams wait for, by the function that ends the wait. */
  readonly #waiting = new Map<() => void, number>();

  constructor(context: ComponentContext, options: EventWindowBackfillOptions) {
    this.#context = context;
    this.#options = options;
  }

  get stats(): BackfillStats {
    const { state, revisions, events } = this.#now();
    return { state, revisions, events, waiting: this.#waiting.size };
  }

  /**
   * Begins the backfill, once the cache holds its first list. A bug in this service causes an unhandled rejection,
   * which ends the process, as in the Reflector. Idempotent.
   */
  begin(): void {
    if (this.#isBegun) return;
    this.#isBegun = true;
    const { source: storage, clock, random, cache } = this.#context;
    const { history, queue, revisions } = this.#options;
    this.#from = cache.revision;
    this.#backfill = new WindowBackfill({
      storage,
      scope: { prefix: "" },
      target: this.#target(),
      clock,
      random,
      queue,
      confirmHistory: (signal) => history.confirmHistory(signal),
      endRevision: this.#from,
      startRevision: Math.max(1, this.#from - revisions),
      eagerRevision: Math.max(1, this.#from - Math.min(revisions, eagerRevisions)),
      eagerEvents,
    });
    void this.#run(this.#backfill);
  }

  /** Ends the backfill and all waits for it. Idempotent; before `begin` it makes that a no-op. */
  stop(): void {
    this.#isBegun = true;
    this.#backfill?.stop();
    this.#forget();
  }

  /** Whether events after `revision` are missing from the window, and the backfill may still deliver them. */
  isMissing(revision: number): boolean {
    const backfill = this.#backfill;
    if (backfill?.isOpen !== true) return false;
    return backfill.backfilledTo > revision && backfill.startRevision <= revision;
  }

  /**
   * Requests all events after `revision`. Resolves once all events after `revision` are in the window, or will not be: the backfill has ended or does not
   * reach that far back, 10 s have passed, or the signal is aborted.
   */
  async waitFor(revision: number, signal: AbortSignal): Promise<void> {
    if (!this.isMissing(revision)) return;
    const woken = new AbortController();
    const wake = (): void => woken.abort();
    this.#waiting.set(wake, revision);
    this.#backfill?.fillTo(revision);
    try {
      await pause(this.#context.clock, backfillTimeoutMs, woken.signal, signal);
    } finally {
      this.#waiting.delete(wake);
    }
  }

  #wake(): void {
    for (const [wake, revision] of this.#waiting) if (!this.isMissing(revision)) wake();
  }

  /** Releases the memory of the backfill, once it has ended. */
  #forget(): void {
    this.#last = this.#now();
    this.#backfill = undefined;
    this.#wake();
  }

  #now(): Pick<BackfillStats, "state" | "revisions" | "events"> {
    const backfill = this.#backfill;
    if (backfill === undefined) return this.#last;
    const { state, events, backfilledTo } = backfill;
    return { state, revisions: this.#from - backfilledTo, events };
  }

  async #run(backfill: WindowBackfill): Promise<void> {
    const { clock, logger, name } = this.#context;
    const startedAt = clock.now();
    await backfill.run(() => this.#wake());
    if (backfill !== this.#backfill) return;
    this.#forget();
    const { state, events, failure, backfilledTo: from } = backfill;
    const ms = Math.round(clock.now() - startedAt);
    const facts = { resource: name, state, from, to: this.#from, events, ms };
    const isFault = state === "failed" || state === "conflicting";
    if (isFault)
      logger.warn({ ...facts, err: failure }, "the backfill of the event window ended early");
    else logger.info(facts, "the backfill of the event window ended");
  }

  #target(): BackfillTarget {
    const { cache } = this.#context;
    const { timeSlices } = this.#options;
    const { eventWindow } = cache;
    let linker: EventLinker | undefined;
    let { floor } = eventWindow;
    return {
      get room() {
        return eventWindow.floor === floor ? eventWindow.room : { events: 0, bytes: 0 };
      },
      prepend: async (past: PastEvents, signal: AbortSignal) => {
        linker ??= await timeSlices.run(this, EventLinker.before(floor, cache), signal);
        const older = await timeSlices.run(this, linker.link(past, floor), signal);
        if (older === undefined) return undefined;
        // New events may have filled the window meanwhile.
        if (eventWindow.floor !== floor) return { after: past.upTo, events: 0, isFull: true };
        const { length } = eventWindow;
        const isFull = !eventWindow.prepend(older);
        floor = eventWindow.floor;
        return { after: floor.revision, events: Math.max(0, eventWindow.length - length), isFull };
      },
      release: () => {
        linker = undefined;
      },
    };
  }
}
