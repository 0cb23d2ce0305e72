import { compareKeys } from "../storage/key-order.ts";
import { type StoredObject, weight } from "../storage/object.ts";
import type { History, HistoryNode } from "./history.ts";
import type { KeptPiece, KeptPieces } from "./kept-pieces.ts";
import type { OrderedState } from "./ordered-state.ts";
import type { CacheListRequest } from "./request.ts";
import type { WatchCache } from "./watch-cache.ts";

/** About how heavy a run is, in bytes: what one write has to be made anew for. */
const runWeight = 64 * 1024;
/** How many objects are looked at for one, most of which a selector may leave out. */
const maxScanned = 10_000;
/** Past how many events to look whether a run still is what it was. */
const maxEvents = 1_000;

/** Objects that follow one another in a listing. */
export interface Run {
  /** Always the same array for the same objects, so that whoever encodes them can do it once. */
  readonly items: readonly StoredObject[];
  /** The sum of their weights, in bytes. */
  readonly weight: number;
  /** How many objects were looked at. */
  readonly scanned: number;
  /** The key that the next run begins after; undefined if nothing follows. */
  readonly last: string | undefined;
}

interface KeptRun extends Run, KeptPiece {
  /** The state as of this event has these objects. */
  node: HistoryNode;
}

/**
 * The runs that listings are put together from. Those that list the same share them, and a write takes
 * the one away that it falls into, not the others: so a listing that thousands ask for is made, and
 * encoded, about once.
 */
export class ListedRuns {
  readonly #cache: WatchCache;
  readonly #kept: KeptPieces;
  #runs = new Map<string, KeptRun>();
  /** What the kept runs' nodes are of. */
  #history: History;

  constructor(cache: WatchCache, kept: KeptPieces) {
    this.#cache = cache;
    this.#kept = kept;
    this.#history = cache.history;
  }

  /** What follows `startAfter` in `state`, which is that of `revision`, in the listing that is asked for. */
  get(
    { prefix, selection, predicate }: CacheListRequest,
    state: OrderedState,
    revision: number,
    startAfter: string | undefined,
  ): Run {
    // What a function picks can't be told from what another one does.
    if (predicate !== undefined) return take(state.range(prefix, startAfter), predicate, undefined);
    const { history } = this.#cache;
    if (history !== this.#history) this.#runs = new Map();
    this.#history = history;
    const node = history.find(revision);
    const at = JSON.stringify([prefix, selection?.canonical ?? "", startAfter ?? ""]);
    const before = this.#runs.get(at);
    if (before !== undefined && node !== undefined && isSame(before, startAfter, node)) {
      this.#kept.touch(before);
      return before;
    }
    const objects = state.range(prefix, startAfter);
    // Ends where the one before did, so that those behind it still follow.
    const run = take(objects, selection?.predicate, before?.last);
    if (node === undefined || (before !== undefined && before.node.sequence > node.sequence)) {
      return run;
    }
    if (before !== undefined) this.#kept.letGo(before);
    const kept = { ...run, node, among: this.#runs, at, isFresh: true };
    this.#kept.touch(kept);
    return kept;
  }
}

/** Whether the objects of the run, which begins after a key, are those that there were at `node`. */
function isSame(run: KeptRun, startAfter: string | undefined, node: HistoryNode): boolean {
  const isNewer = run.node.sequence <= node.sequence;
  const end = isNewer ? node : run.node;
  let events = 0;
  for (let at = isNewer ? run.node : node; at !== end; ) {
    const next = at.next;
    if (next === undefined || ++events > maxEvents) return false;
    if (next.event !== undefined && isWithin(run, startAfter, next.event.object.key)) return false;
    at = next;
  }
  if (isNewer) run.node = node;
  return true;
}

function isWithin({ last }: Run, startAfter: string | undefined, key: string): boolean {
  if (startAfter !== undefined && compareKeys(key, startAfter) <= 0) return false;
  return last === undefined || compareKeys(key, last) <= 0;
}

/** Up to and including the key `end`, unless that has become too far away. */
function take(
  objects: Iterable<StoredObject>,
  predicate: ((object: StoredObject) => boolean) | undefined,
  end: string | undefined,
): Run {
  const times = end === undefined ? 1 : 2;
  const mostWeight = times * runWeight;
  const mostScanned = times * maxScanned;
  const items: StoredObject[] = [];
  let bytes = 0;
  let scanned = 0;
  let last: string | undefined;
  for (const object of objects) {
    if (end !== undefined && compareKeys(object.key, end) > 0) {
      return { items, weight: bytes, scanned, last: end };
    }
    if (last !== undefined && (bytes >= mostWeight || scanned >= mostScanned)) {
      return { items, weight: bytes, scanned, last };
    }
    scanned++;
    last = object.key;
    if (predicate !== undefined && !predicate(object)) continue;
    items.push(object);
    bytes += weight(object);
  }
  return { items, weight: bytes, scanned, last: undefined };
}
