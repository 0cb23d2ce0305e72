import type { Clock } from "../../base/clock.ts";
import { SharedWork, type TimeSlicedWork } from "../../base/time-slices.ts";
import type { StoredObject } from "../../model/object.ts";
import type { EventNode } from "./event-node.ts";
import type { OrderedStore } from "./ordered-store.ts";
import {
  markOf,
  type RetainedSnapshot,
  type RetainedSnapshots,
  type SnapshotMark,
} from "./retained-snapshots.ts";
import type { WatchCache } from "./watch-cache.ts";

/** How many events are undone at the most to get at a state; beyond that the storage is asked. */
const maxUndone = 10_000;
/** How many events are undone, and how many are only looked at, between two yields. */
const undonePerStep = 128;
const lookedAtPerStep = 2_048;
/** How many states are kept for the next page of a listing. */
const maxSnapshots = 64;
/** For how long after its last use a state is kept, and after it was made at the most, in milliseconds. */
const retentionMs = 30_000;
const maxAgeMs = 5 * 60_000;
/** Of how many pages that are to come it is kept how many objects follow, for each state. */
const maxPages = 64;
/** Of what is asked for in a page to come, in UTF-16 units: beyond that it is counted again. */
const maxPageName = 1_024;

/** A state of the past, for good. */
export interface HistoricalSnapshot {
  readonly state: OrderedStore;
  readonly mark: SnapshotMark;
}

interface CachedSnapshot extends HistoricalSnapshot, RetainedSnapshot {
  readonly madeAt: number;
  usedAt: number;
  /** How many objects follow a key among those with a prefix, by both: what the next page begins with. */
  readonly following: Map<string, number>;
}

/**
 * The states that were: taken when a listing begins and is not done with its first page, or made by undoing
 * what came since. They share all but what has changed with the current one, which RetainedSnapshots bounds.
 */
export class HistoricalSnapshots {
  readonly #cache: WatchCache;
  readonly #clock: Clock;
  readonly #retained: RetainedSnapshots;
  /** By the revision that was asked for, the one used longest ago first. */
  readonly #snapshots = new Map<number, CachedSnapshot>();
  /** Those that are being made, by the same. */
  readonly #making = new Map<number, SharedWork<HistoricalSnapshot>>();

  constructor(cache: WatchCache, clock: Clock, retained: RetainedSnapshots) {
    this.#cache = cache;
    this.#clock = clock;
    this.#retained = retained;
  }

  /**
   * The state at `revision`, which the cache has reached. Undefined where history no longer has what came
   * since, or that is too much to undo. Whoever asks for the same undoes it together.
   */
  *at(revision: number): TimeSlicedWork<HistoricalSnapshot | undefined> {
    const known = this.#snapshots.get(revision);
    if (known !== undefined) return this.#touch(revision, known);
    let making = this.#making.get(revision);
    if (making === undefined) {
      const { eventWindow } = this.#cache;
      const node = eventWindow.find(revision);
      if (node === undefined || eventWindow.newest.sequence - node.sequence > maxUndone) {
        return undefined;
      }
      making = new SharedWork(this.#make(revision, node), () => this.#making.delete(revision));
      this.#making.set(revision, making);
    }
    return yield* making.join();
  }

  /**
   * The object as it was at `revision`, which the cache has reached, in `object`; undefined where history no longer
   * has what came since. Makes no state of all the others: it is what was before its first change since.
   */
  *objectAt(
    key: string,
    revision: number,
  ): TimeSlicedWork<{ readonly object: StoredObject | undefined } | undefined> {
    const known = this.#snapshots.get(revision);
    if (known !== undefined) return { object: this.#touch(revision, known).state.get(key) };
    let node = this.#cache.eventWindow.find(revision);
    if (node === undefined) return undefined;
    const newest = this.#cache.state.get(key);
    if (newest !== undefined && newest.modRevision <= revision) return { object: newest };
    yield;
    let steps = 0;
    for (; node.next !== undefined; node = node.next) {
      if (node.next.event?.object.key === key) return { object: node.next.previous };
      if (++steps % lookedAtPerStep === 0) yield;
    }
    return { object: this.#cache.state.get(key) };
  }

  /** Someone will come back for this state, by this revision. */
  keep(revision: number, past: HistoricalSnapshot): void {
    const known = this.#snapshots.get(revision);
    if (known !== undefined) this.#touch(revision, known);
    else this.#add(revision, past);
  }

  /** How many objects follow, as `expectPage` was told; undefined if it was not, or long ago. */
  following(revision: number, prefix: string, startAfter: string): number | undefined {
    return this.#snapshots.get(revision)?.following.get(pageAt(prefix, startAfter));
  }

  /** A page that begins there is to be asked for. */
  expectPage(revision: number, prefix: string, startAfter: string, following: number): void {
    const known = this.#snapshots.get(revision)?.following;
    const page = pageAt(prefix, startAfter);
    if (known === undefined || page.length > maxPageName) return;
    known.set(page, following);
    for (const oldest of known.keys()) {
      if (known.size <= maxPages) break;
      known.delete(oldest);
    }
  }

  /** Lets go of those that nobody has come back for, and of those that are kept for too long. */
  expire(): void {
    const now = this.#clock.now();
    for (const [revision, { usedAt, madeAt }] of this.#snapshots) {
      if (now - usedAt > retentionMs || now - madeAt > maxAgeMs) this.#drop(revision);
    }
  }

  /** Lets go of all: the cache holds another history. */
  clear(): void {
    for (const revision of this.#snapshots.keys()) this.#drop(revision);
    this.#making.clear();
  }

  *#make(revision: number, node: EventNode): TimeSlicedWork<HistoricalSnapshot> {
    const { epoch } = this.#cache;
    const mark = markOf(this.#cache, node);
    const state = yield* undo(this.#cache.state, node, this.#cache.eventWindow.newest);
    const past = { state, mark };
    if (epoch === this.#cache.epoch) this.keep(revision, past);
    return past;
  }

  #touch(revision: number, known: CachedSnapshot): CachedSnapshot {
    known.usedAt = this.#clock.now();
    this.#snapshots.delete(revision);
    this.#snapshots.set(revision, known);
    return known;
  }

  #add(revision: number, { state, mark }: HistoricalSnapshot): void {
    const now = this.#clock.now();
    const known: CachedSnapshot = {
      ...{ state, mark, usedAt: now, madeAt: now, following: new Map() },
      ...{ isIdle: true, evict: () => this.#drop(revision) },
    };
    this.#snapshots.set(revision, known);
    this.#retained.add(known);
    for (const oldest of this.#snapshots.keys()) {
      if (this.#snapshots.size <= maxSnapshots) break;
      this.#drop(oldest);
    }
  }

  #drop(revision: number): void {
    const known = this.#snapshots.get(revision);
    if (known === undefined) return;
    this.#snapshots.delete(revision);
    this.#retained.delete(known);
  }
}

function pageAt(prefix: string, startAfter: string): string {
  return JSON.stringify([prefix, startAfter]);
}

/** `current`, whose newest event is that of `newest`, as it was when `node` was the newest. */
function* undo(
  current: OrderedStore,
  node: EventNode,
  newest: EventNode,
): TimeSlicedWork<OrderedStore> {
  const state = current.snapshot();
  const undone = new Set<string>();
  let steps = 0;
  for (let last = node; last !== newest && last.next !== undefined; last = last.next) {
    const { event, previous } = last.next;
    if (++steps % undonePerStep === 0) yield;
    const key = event?.object.key;
    // What was before the first of a key's events is what stood then.
    if (key === undefined || undone.has(key)) continue;
    undone.add(key);
    if (previous === undefined) state.delete(key);
    else state.set(previous);
  }
  return state;
}
