import { ListCache } from "../../../src/cacher/list/list-cache.ts";
import type { ListChunk } from "../../../src/cacher/list/list-chunk.ts";
import type { Predicate } from "../../../src/cacher/request/selection.ts";
import { ChunkCache } from "../../../src/cacher/state/chunk-cache.ts";
import { defaultEventWindowBounds } from "../../../src/cacher/state/event-window.ts";
import { Filter } from "../../../src/cacher/state/filter.ts";
import type { OrderedStore } from "../../../src/cacher/state/ordered-store.ts";
import { WatchCache } from "../../../src/cacher/state/watch-cache.ts";
import { WatchBatch } from "../../../src/model/event.ts";
import type { StoredObject } from "../../../src/model/object.ts";
import { FakeClock } from "../../fake-clock.ts";
import { finish } from "../finish.ts";
import { event, object } from "../objects.ts";

const bounds = { bytes: 64 * 1024, scanned: 10_000 };

export function filterOf(prefix: string, predicate?: Predicate): Filter {
  return new Filter({ scope: { prefix }, predicate, withPrevious: false });
}

export const all = filterOf("");

/** A chunk holds three of these objects, or a few more. */
const value = "x".repeat(25_000);

/** The name of the object at this place in the order. */
export function key(i: number): string {
  return `k${String(i).padStart(3, "0")}`;
}

/** A cache of some objects, and the lists that are made of it. */
export class World {
  readonly cache: WatchCache;
  readonly kept = new ChunkCache();
  readonly lists: ListCache;

  constructor(count: number, window = defaultEventWindowBounds) {
    this.cache = new WatchCache(window, new FakeClock());
    this.lists = new ListCache(this.cache, this.kept, bounds);
    const objects = Array.from({ length: count }, (_, i) => object(key(i), i + 1, value));
    this.cache.replace(objects, count + 1);
  }

  write(name: string, written = value): void {
    const revision = this.cache.revision + 1;
    this.cache.apply(new WatchBatch(revision, [event("MODIFIED", name, revision, written)]));
  }

  delete(name: string): void {
    if (this.cache.state.get(name) === undefined) return;
    const revision = this.cache.revision + 1;
    this.cache.apply(new WatchBatch(revision, [event("DELETED", name, revision)]));
  }

  /** All chunks of the state at `revision`. */
  list(
    filter: Filter = all,
    state: OrderedStore = this.cache.state.snapshot(),
    revision: number = this.cache.revision,
  ): ListChunk[] {
    const chunks: ListChunk[] = [];
    let next: string | undefined;
    do {
      const chunk = this.after(next, filter, state, revision);
      chunks.push(chunk);
      next = chunk.last;
    } while (next !== undefined);
    return chunks;
  }

  /** The chunk that follows a key. */
  after(
    key: string | undefined,
    filter: Filter = all,
    state: OrderedStore = this.cache.state.snapshot(),
    revision: number = this.cache.revision,
  ): ListChunk {
    return finish(this.lists.open(filter).chunk(key, revision, state));
  }
}

export function objectsOf(chunks: readonly ListChunk[]): StoredObject[] {
  return chunks.flatMap(({ items }) => items);
}

/** The chunks of `after` that are not identical to chunks of `before`. */
export function rebuilt(before: readonly ListChunk[], after: readonly ListChunk[]): ListChunk[] {
  const known = new Set(before.map(({ items }) => items));
  return after.filter(({ items }) => !known.has(items));
}
