import type { TimeSlicedWork } from "../../base/event-loop-turns.ts";
import type { Turns } from "../../base/turns.ts";
import { Condition } from "../../base/wait.ts";
import { WatchEvent } from "../../model/event.ts";
import type { StoredObject } from "../../model/object.ts";
import { Slabs, smallestSlab } from "../../model/slabs.ts";
import type { PastEvents } from "../../reflector/backfill/past-events.ts";
import {
  type BackfillQueue,
  type BackfillState,
  type BackfillTarget,
  WindowBackfill,
} from "../../reflector/backfill/window-backfill.ts";
import type { Reflector } from "../../reflector/reflector.ts";
import type { ObjectAttributes } from "../request/object-attributes.ts";
import type { ComponentContext } from "./component.ts";
import type { EventNode } from "./event-node.ts";
import { OlderEvents } from "./older-events.ts";
import type { OrderedStore } from "./ordered-store.ts";
import type { WatchCache } from "./watch-cache.ts";

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
  /** For streams that wait for a part of the window. Notified when there is more of it, or no more will come. */
  readonly #progress = new Condition();

  constructor(context: ComponentContext, options: EventWindowBackfillOptions) {
    this.#context = context;
    this.#options = options;
  }

  get stats(): BackfillStats {
    const { state, revisions, events } = this.#now();
    return { state, revisions, events, waiting: this.#progress.waiting };
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
      historyId: cache.historyId,
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
   * Requests all events after `revision`. Resolves once they are in the window, or will not be: the backfill has ended
   * or does not reach that far back; or after 10 s. Rejects with the signal's reason.
   */
  async waitFor(revision: number, signal: AbortSignal): Promise<void> {
    if (!this.isMissing(revision)) return;
    this.#backfill?.fillTo(revision);
    const { clock } = this.#context;
    const deadline = { clock, ms: backfillTimeoutMs, expire: () => {} };
    await this.#progress.until(() => !this.isMissing(revision), { signal, deadline });
  }

  /** Releases the memory of the backfill, once it has ended. */
  #forget(): void {
    this.#last = this.#now();
    this.#backfill = undefined;
    this.#progress.notify();
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
    await backfill.run(() => this.#progress.notify());
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

/** Number of events linked in one step. */
const eventsPerStep = 64;

/**
 * Links past events to the known events and state: chunk by chunk, from the newest to the oldest.
 *
 * The object of an event is also the `previous` of the next event of its key, or the object in the state. The known
 * one is kept, and the other, with the same content, is dropped. If the known one is absent or has
 * another revision, the event can't have led to the known state.
 */
export class EventLinker {
  readonly #state: OrderedStore;
  readonly #objectAttributes: ObjectAttributes;
  /** Kept objects are copied into slabs of their own, since half of the received bytes are dropped. */
  readonly #slabs = new Slabs(smallestSlab);
  /** The object of each key before its oldest event so far. At most one entry per event in the window. */
  readonly #before = new Map<string, StoredObject | undefined>();

  /** `state` is the state after the newest event. It must not change any more. */
  constructor(state: OrderedStore, objectAttributes: ObjectAttributes) {
    this.#state = state;
    this.#objectAttributes = objectAttributes;
  }

  /** Makes a linker of events before those after `floor`, the node that the window begins after. */
  static *before(
    floor: EventNode,
    { state, eventWindow, objectAttributes }: WatchCache,
  ): TimeSlicedWork<EventLinker> {
    const { newest } = eventWindow;
    const linker = new EventLinker(state.snapshot(), objectAttributes);
    for (let i = 0, node = floor; node !== newest && node.next !== undefined; i++) {
      node = node.next;
      const key = node.event?.object.key;
      if (key !== undefined && !linker.#before.has(key)) linker.#before.set(key, node.previous);
      if (i % eventsPerStep === 0) yield;
    }
    return linker;
  }

  /** Links `past` before `newer`. Returns undefined if the past events can't have led to the known ones. */
  *link(past: PastEvents, newer: EventNode): TimeSlicedWork<OlderEvents | undefined> {
    const older = new OlderEvents(newer, past.after);
    const { events } = past;
    for (let i = events.length - 1; i >= 0; i--) {
      const event = events[i];
      if (event === undefined || !this.#add(older, event)) return undefined;
      if (i % eventsPerStep === 0) yield;
    }
    return older;
  }

  #add(older: OlderEvents, { type, object, previous: before }: WatchEvent): boolean {
    const { modRevision } = object;
    const known = this.#before.has(object.key)
      ? this.#before.get(object.key)
      : this.#state.get(object.key);
    const { key } = known ?? object;
    const previous = before === undefined ? undefined : this.#slabs.copy(before, key);
    if (previous !== undefined) this.#objectAttributes.of(previous);
    if (type === "DELETED") {
      if (known !== undefined || previous === undefined) return false;
      this.#before.set(key, previous);
      older.add(new WatchEvent(type, previous.deletedAt(modRevision), undefined), previous);
      return true;
    }
    if (known?.modRevision !== modRevision) return false;
    this.#before.set(key, previous);
    older.add(new WatchEvent(type, known, undefined), previous);
    return true;
  }
}
