import type { Logger } from "pino";
import { type Clock, pause } from "../../base/clock.ts";
import type { TimeSliceScheduler } from "../../base/time-slices.ts";
import type { BackfillQueue } from "../../reflector/backfill/backfill-queue.ts";
import type { PastEvents } from "../../reflector/backfill/past-events.ts";
import {
  type BackfillState,
  type BackfillTarget,
  WindowBackfill,
} from "../../reflector/backfill/window-backfill.ts";
import type { Storage } from "../../storage/storage.ts";
import type { ObjectAttributes } from "../request/object-attributes.ts";
import { EventLinker } from "./event-linker.ts";
import type { WatchCache } from "./watch-cache.ts";

/** How long a stream waits for the part of the window that it resumes from, in milliseconds. */
export const backfillTimeoutMs = 10_000;

export interface EventWindowBackfillDeps {
  /** The resource's, for the log. */
  readonly name: string;
  readonly storage: Storage;
  readonly cache: WatchCache;
  readonly clock: Clock;
  readonly random: () => number;
  readonly logger: Logger;
  readonly objectAttributes: ObjectAttributes;
  readonly timeSlices: TimeSliceScheduler;
  readonly queue: BackfillQueue;
  /** How many revisions before the first listing are wanted. */
  readonly revisions: number;
  readonly confirmHistory: (signal: AbortSignal) => Promise<void>;
}

/** How the filling of the event window goes. */
export interface BackfillStats {
  /** `idle` before the first listing. */
  readonly state: BackfillState | "idle";
  /** How many revisions, and events, of before the first listing are there. */
  readonly revisions: number;
  readonly events: number;
  /** How many streams wait for a part that is missing. */
  readonly waiting: number;
}

/**
 * Fills the event window with what was before the cache's first listing, in the background. The cache is served
 * from meanwhile; only those wait who resume from a part that is missing and may still come.
 */
export class EventWindowBackfill {
  readonly #deps: EventWindowBackfillDeps;
  /** While it is filled; what it took for that goes with it. */
  #backfill: WindowBackfill | undefined;
  #isBegun = false;
  #from = 0;
  /** How far it had come when it ended. */
  #last: Pick<BackfillStats, "state" | "revisions" | "events"> = {
    state: "idle",
    revisions: 0,
    events: 0,
  };
  /** Those who wait, by what wakes them. */
  readonly #waiting = new Map<() => void, number>();

  constructor(deps: EventWindowBackfillDeps) {
    this.#deps = deps;
  }

  get stats(): BackfillStats {
    const { state, revisions, events } = this.#now();
    return { state, revisions, events, waiting: this.#waiting.size };
  }

  /**
   * The cache has its first state: begins to fill what is before it. A fault of ours in there is left unhandled,
   * so that it ends the process, as in the Reflector.
   */
  begin(): void {
    if (this.#isBegun) return;
    this.#isBegun = true;
    const { storage, clock, random, queue, confirmHistory, cache, revisions } = this.#deps;
    this.#from = cache.revision;
    this.#backfill = new WindowBackfill({
      storage,
      scope: { prefix: "" },
      target: this.#target(),
      clock,
      random,
      queue,
      confirmHistory,
      endRevision: this.#from,
      startRevision: Math.max(1, this.#from - revisions),
    });
    void this.#run(this.#backfill);
  }

  /** No more is filled, and nobody waits for it. Harmless when called twice, or before `begin`. */
  stop(): void {
    this.#isBegun = true;
    this.#backfill?.stop();
    this.#forget();
  }

  /** Whether what comes after `revision` is missing, but may still come. */
  isMissing(revision: number): boolean {
    const fill = this.#backfill;
    return (
      fill?.state === "filling" && fill.backfilledTo > revision && fill.startRevision <= revision
    );
  }

  /**
   * Resolves once everything after `revision` is in the window, or will not come: the fill has ended, or does not
   * reach there, or 10 s have passed, or the signal is aborted.
   */
  async waitFor(revision: number, signal: AbortSignal): Promise<void> {
    if (!this.isMissing(revision)) return;
    const woken = new AbortController();
    const wake = (): void => woken.abort();
    this.#waiting.set(wake, revision);
    try {
      await pause(this.#deps.clock, backfillTimeoutMs, woken.signal, signal);
    } finally {
      this.#waiting.delete(wake);
    }
  }

  #wake(): void {
    for (const [wake, revision] of this.#waiting) if (!this.isMissing(revision)) wake();
  }

  /** Lets go of what the fill took, once it has ended. */
  #forget(): void {
    this.#last = this.#now();
    this.#backfill = undefined;
    this.#wake();
  }

  #now(): Pick<BackfillStats, "state" | "revisions" | "events"> {
    const fill = this.#backfill;
    if (fill === undefined) return this.#last;
    const { state, events, backfilledTo } = fill;
    return { state, revisions: this.#from - backfilledTo, events };
  }

  async #run(fill: WindowBackfill): Promise<void> {
    const { clock, logger, name } = this.#deps;
    const begun = clock.now();
    await fill.run(() => this.#wake());
    if (fill !== this.#backfill) return;
    this.#forget();
    const { state, events, failure } = fill;
    const ms = Math.round(clock.now() - begun);
    const facts = { resource: name, state, from: fill.backfilledTo, to: this.#from, events, ms };
    const isFault = state === "failed" || state === "conflicting";
    if (isFault) logger.warn({ ...facts, err: failure }, "the event window is not filled further");
    else logger.info(facts, "the event window is filled");
  }

  #target(): BackfillTarget {
    const { cache, objectAttributes, timeSlices } = this.#deps;
    const { eventWindow } = cache;
    const linker = new EventLinker(cache.state.snapshot(), objectAttributes);
    let { floor } = eventWindow;
    return {
      get room() {
        return eventWindow.floor === floor ? eventWindow.room : { events: 0, bytes: 0 };
      },
      prepend: async (past: PastEvents, signal: AbortSignal) => {
        const older = await timeSlices.run(this, linker.link(past, floor), signal);
        if (older === undefined) return undefined;
        // What has come meanwhile may have taken all the room.
        if (eventWindow.floor !== floor) return { after: past.upTo, events: 0, isFull: true };
        const { length } = eventWindow;
        const isFull = !eventWindow.prepend(older);
        floor = eventWindow.floor;
        return { after: floor.revision, events: Math.max(0, eventWindow.length - length), isFull };
      },
    };
  }
}
