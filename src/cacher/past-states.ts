import type { Clock } from "../clock.ts";
import type { HistoryNode } from "./history.ts";
import type { OrderedState } from "./ordered-state.ts";
import type { WatchCache } from "./watch-cache.ts";

/** How many events are undone at the most to get at a state; beyond that the storage is asked. */
const maxUndone = 10_000;
/** How many states are kept for the next page of a listing, and for how long, in milliseconds. */
const maxKept = 64;
/** Of how many pages that are to come it is kept how many objects follow, for each state. */
const maxPages = 64;
const keptForMs = 30_000;

interface PastState {
  readonly state: OrderedState;
  usedAt: number;
  /** How many objects follow a key among those with a prefix, by both: what the next page begins with. */
  readonly following: Map<string, number>;
}

/**
 * The states that were: taken when a listing begins and is not done with its first page, or made by undoing
 * what came since. They share all but what has changed with the current one.
 */
export class PastStates {
  readonly #cache: WatchCache;
  readonly #clock: Clock;
  /** By the revision that was asked for, the one used longest ago first. */
  readonly #kept = new Map<number, PastState>();

  constructor(cache: WatchCache, clock: Clock) {
    this.#cache = cache;
    this.#clock = clock;
  }

  /**
   * The state at `revision`, which the cache has reached. Undefined where history no longer has what came
   * since, or that is too much to undo.
   */
  at(revision: number): OrderedState | undefined {
    const { history, state } = this.#cache;
    const kept = this.#kept.get(revision);
    if (kept !== undefined) return this.#keep(revision, kept.state);
    const node = history.find(revision);
    if (node === undefined || history.newest.sequence - node.sequence > maxUndone) return undefined;
    return node === history.newest ? state : this.#keep(revision, undo(state, node));
  }

  /** Someone will come back for the current state, by this revision. */
  keepCurrent(revision: number): void {
    this.#keep(revision, this.#kept.get(revision)?.state ?? this.#cache.state.snapshot());
  }

  /** How many objects follow, as `expectPage` was told; undefined if it was not, or long ago. */
  following(revision: number, prefix: string, startAfter: string): number | undefined {
    return this.#kept.get(revision)?.following.get(pageAt(prefix, startAfter));
  }

  /** A page that begins there is to be asked for. */
  expectPage(revision: number, prefix: string, startAfter: string, following: number): void {
    const known = this.#kept.get(revision)?.following;
    if (known === undefined) return;
    known.set(pageAt(prefix, startAfter), following);
    for (const oldest of known.keys()) {
      if (known.size <= maxPages) break;
      known.delete(oldest);
    }
  }

  /** Lets go of those that nobody has come back for. */
  expire(): void {
    const now = this.#clock.now();
    for (const [revision, { usedAt }] of this.#kept) {
      if (now - usedAt > keptForMs) this.#kept.delete(revision);
    }
  }

  /** Lets go of all: the cache holds another history. */
  clear(): void {
    this.#kept.clear();
  }

  #keep(revision: number, state: OrderedState): OrderedState {
    const following = this.#kept.get(revision)?.following ?? new Map<string, number>();
    this.#kept.delete(revision);
    this.#kept.set(revision, { state, usedAt: this.#clock.now(), following });
    for (const oldest of this.#kept.keys()) {
      if (this.#kept.size <= maxKept) break;
      this.#kept.delete(oldest);
    }
    return state;
  }
}

function pageAt(prefix: string, startAfter: string): string {
  return JSON.stringify([prefix, startAfter]);
}

/** `current` as it was when `node` was the newest event. */
function undo(current: OrderedState, node: HistoryNode): OrderedState {
  const state = current.snapshot();
  const undone = new Set<string>();
  for (let next = node.next; next !== undefined; next = next.next) {
    const key = next.event?.object.key ?? "";
    // What was before the first of a key's events is what stood then.
    if (undone.has(key)) continue;
    undone.add(key);
    if (next.previous === undefined) state.delete(key);
    else state.set(next.previous);
  }
  return state;
}
