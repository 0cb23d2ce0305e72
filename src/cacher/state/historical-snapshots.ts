import type { Clock } from "../../base/clock.ts";
import type { TimeSlicedWork } from "../../base/event-loop-turns.ts";
import { SharedWork } from "../../base/turns.ts";
import type { StoredObject } from "../../model/object.ts";
import type { ListScope } from "../../storage/key-scopes.ts";
import type { EventNode } from "./event-node.ts";
import type { OrderedStore } from "./ordered-store.ts";
import {
  markOf,
  type RetainedSnapshot,
  type RetainedSnapshots,
  type SnapshotMark,
} from "./retained-snapshots.ts";
import type { WatchCache } from "./watch-cache.ts";

/** Maximum number of events undone to rebuild a state; beyond it, the store is read. */
const maxUndone = 10_000;
/** Number of events undone, and of events only examined, between two yields. */
const undonePerStep = 128;
const lookedAtPerStep = 2_048;
/** Maximum number of snapshots retained for the next page of a list. */
const maxSnapshots = 64;
/** How long a snapshot is retained after its last use, and at most after it was made, in milliseconds. */
const retentionMs = 30_000;
const maxAgeMs = 5 * 60_000;
/** Maximum number of expected pages per snapshot for which the number of remaining objects is cached. */
const maxPages = 64;
/** Maximum length of an expected page's name, in UTF-16 units; beyond it, the remaining objects are counted again. */
const maxPageName = 1_024;

/** Maximum number of lists per snapshot of which a part is kept sorted. */
const maxSorted = 4;

/** Consecutive objects of a list in its order, and the number of those that follow them. */
export interface SortedPart {
  readonly objects: readonly StoredObject[];
  readonly following: number;
}

/** An immutable state at an older revision. */
export interface HistoricalSnapshot {
  readonly state: OrderedStore;
  readonly mark: SnapshotMark;
}

interface CachedSnapshot extends HistoricalSnapshot, RetainedSnapshot {
  readonly madeAt: number;
  usedAt: number;
  /** Number of objects of a scope that follow a key, by both: the remaining objects of the next page. */
  readonly following: Map<string, number>;
  /** Parts of lists in an order of revisions, by the name of the list. All of their objects are in the state. */
  readonly sorted: Map<string, SortedPart>;
}

/**
 * The states at older revisions: taken when a list does not end with its first page, or rebuilt by undoing the later
 * events. They share all unchanged objects with the current state; RetainedSnapshots bounds the rest.
 */
export class HistoricalSnapshots {
  readonly #cache: WatchCache;
  readonly #clock: Clock;
  readonly #retained: RetainedSnapshots;
  /** By the requested revision, the least recently used first. */
  readonly #snapshots = new Map<number, CachedSnapshot>();
  /** The snapshots in the making, by the requested revision. */
  readonly #making = new Map<number, SharedWork<HistoricalSnapshot>>();

  constructor(cache: WatchCache, clock: Clock, retained: RetainedSnapshots) {
    this.#cache = cache;
    this.#clock = clock;
    this.#retained = retained;
  }

  /**
   * Returns the state at `revision`, which the cache has reached; undefined if the event window no longer has all later
   * events, or if there are more than 10,000 of them. Callers with the same revision share the work.
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
   * Returns in `object` the object at `revision`, which the cache has reached; undefined if the event window no longer
   * has all later events. Rebuilds no state: the object is the `previous` of its first event after `revision`.
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

  /** Retains the snapshot for a client that will request this revision again. */
  keep(revision: number, past: HistoricalSnapshot): void {
    const known = this.#snapshots.get(revision);
    if (known !== undefined) this.#touch(revision, known);
    else this.#add(revision, past);
  }

  /** Returns the number of remaining objects given to `expectPage`; undefined if it is not cached. */
  following(revision: number, scope: ListScope, startAfter: string): number | undefined {
    return this.#snapshots.get(revision)?.following.get(pageAt(scope, startAfter));
  }

  /** Caches the number of remaining objects of a page that a client will request. */
  expectPage(revision: number, scope: ListScope, startAfter: string, following: number): void {
    const known = this.#snapshots.get(revision)?.following;
    const page = pageAt(scope, startAfter);
    if (known === undefined || page.length > maxPageName) return;
    known.set(page, following);
    for (const oldest of known.keys()) {
      if (known.size <= maxPages) break;
      known.delete(oldest);
    }
  }

  /** Returns the part given to `keepSorted`; undefined if it is absent. */
  sorted(revision: number, list: string): SortedPart | undefined {
    return this.#snapshots.get(revision)?.sorted.get(list);
  }

  /** Keeps a part of a list for its next pages, in place of the one before. */
  keepSorted(revision: number, list: string, part: SortedPart): void {
    const known = this.#snapshots.get(revision)?.sorted;
    if (known === undefined) return;
    known.delete(list);
    known.set(list, part);
    for (const oldest of known.keys()) {
      if (known.size <= maxSorted) break;
      known.delete(oldest);
    }
  }

  /** Drops snapshots 30 s after their last use, and 5 min after they were made. */
  expire(): void {
    const now = this.#clock.now();
    for (const [revision, { usedAt, madeAt }] of this.#snapshots) {
      if (now - usedAt > retentionMs || now - madeAt > maxAgeMs) this.#drop(revision);
    }
  }

  /** Drops all snapshots: the cached state has been replaced. */
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
      ...{ state, mark, usedAt: now, madeAt: now },
      ...{ following: new Map(), sorted: new Map() },
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

function pageAt(scope: ListScope, startAfter: string): string {
  return JSON.stringify([scope, startAfter]);
}

/** Returns the state after `node`, given the current state, which is the one after `newest`. */
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
    // The `previous` of a key's first event is the object after `node`.
    if (key === undefined || undone.has(key)) continue;
    undone.add(key);
    if (previous === undefined) state.delete(key);
    else state.set(previous);
  }
  return state;
}
