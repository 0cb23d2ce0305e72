import { compareKeys } from "../storage/key-order.ts";
import type { History, HistoryNode } from "./history.ts";
import type { KeptPieces } from "./kept-pieces.ts";
import { Listing } from "./listing.ts";
import type { OrderedState } from "./ordered-state.ts";
import type { CacheListRequest } from "./request.ts";
import { type Run, takeRun } from "./run.ts";
import type { WatchCache } from "./watch-cache.ts";

/** A past state that is further away than this has runs of its own. */
const maxEventsBack = 1_000;

/** What follows a key; undefined: what comes first. */
export type ReadRun = (after: string | undefined) => Run;

/**
 * The runs that listings are put together from. Those that list the same share them, and a write takes
 * the one away that it falls into, not the others: so a listing that thousands ask for is made, and
 * encoded, about once.
 */
export class ListedRuns {
  readonly #cache: WatchCache;
  readonly #kept: KeptPieces;
  /** By what is asked for. */
  #listings = new Map<string, Listing>();
  /** What they are of. */
  #history: History;

  constructor(cache: WatchCache, kept: KeptPieces) {
    this.#cache = cache;
    this.#kept = kept;
    this.#history = cache.history;
  }

  /** Reads `state`, which is that of `revision`, as the listing that is asked for. For use in one go. */
  read(request: CacheListRequest, state: OrderedState, revision: number): ReadRun {
    const { prefix, selection } = request;
    const predicate = selection?.predicate ?? request.predicate;
    const take = (after: string | undefined, end?: string): Run =>
      takeRun(state.range(prefix, after), predicate, end);
    const { history } = this.#cache;
    if (history !== this.#history) this.#listings = new Map();
    this.#history = history;
    const node = history.find(revision);
    const touched = node === undefined ? undefined : touchedAfter(node);
    // What a function picks can't be told from what another one does.
    if (request.predicate !== undefined || touched === undefined) return (after) => take(after);
    const listing = this.#listingOf(request);
    listing.catchUp(history, this.#cache.revision);
    if (touched.length === 0) return (after) => listing.get(after, take, this.#kept);
    return (after) => listing.getPast(after, touched, take, this.#kept);
  }

  /** How many listings have runs that are kept. */
  get size(): number {
    return this.#listings.size;
  }

  /** The listing that is known, or another, which becomes known when a first run of it is kept. */
  #listingOf({ prefix, selection }: CacheListRequest): Listing {
    const name = JSON.stringify([prefix, selection?.canonical ?? ""]);
    const listings = this.#listings;
    return (
      listings.get(name) ??
      new Listing(name, this.#cache.revision, {
        filled: (listing) => listings.set(name, listing),
        // Another one may have taken its place since, while it was still asked for.
        emptied: (listing) => {
          if (listings.get(name) === listing) listings.delete(name);
        },
      })
    );
  }
}

/** The keys that have changed since, in order; undefined if that is too many. */
function touchedAfter(node: HistoryNode): readonly string[] | undefined {
  const keys = new Set<string>();
  let events = 0;
  for (let next = node.next; next !== undefined; next = next.next) {
    if (++events > maxEventsBack) return undefined;
    if (next.event !== undefined) keys.add(next.event.object.key);
  }
  return [...keys].sort(compareKeys);
}
