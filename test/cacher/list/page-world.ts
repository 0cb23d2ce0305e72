import { type Mock, onTestFinished, vi } from "vitest";
import { ListCache } from "../../../src/cacher/list/list-cache.ts";
import { PageReader } from "../../../src/cacher/list/page-reader.ts";
import { StateReader } from "../../../src/cacher/list/state-reader.ts";
import type {
  CachedState,
  CacheListRequest,
  CacheStateRequest,
} from "../../../src/cacher/request/request.ts";
import { ChunkCache } from "../../../src/cacher/state/chunk-cache.ts";
import { HistoricalSnapshots } from "../../../src/cacher/state/historical-snapshots.ts";
import { OrderedStore } from "../../../src/cacher/state/ordered-store.ts";
import { RetainedSnapshots } from "../../../src/cacher/state/retained-snapshots.ts";
import { WatchCache } from "../../../src/cacher/state/watch-cache.ts";
import { WatchBatch } from "../../../src/model/event.ts";
import type { ListResult, RevisionRequirement } from "../../../src/storage/storage.ts";
import { FakeClock } from "../../fake-clock.ts";
import { finish } from "../finish.ts";
import { event, object, text } from "../objects.ts";

export const exact = (revision: number): RevisionRequirement => ({ match: "EXACT", revision });
export const any: RevisionRequirement = { match: "ANY" };

/** A cache of the objects k1 to k5, or more, written at the revisions 1 to 5, with the last few events only. */
export class World {
  readonly clock = new FakeClock();
  readonly cache: WatchCache;
  readonly retained: RetainedSnapshots;
  readonly snapshots: HistoricalSnapshots;
  readonly pages: PageReader;
  readonly states: StateReader;

  constructor(count = 5) {
    const bounds = { maxEvents: 20, minEvents: 0, maxBytes: 1e9, maxAgeMs: 1e9 };
    this.cache = new WatchCache(bounds as never, this.clock);
    const objects = Array.from({ length: count }, (_, i) => object(`k${i + 1}`, i + 1, "old"));
    this.cache.replace(
      count < 10 ? objects : objects.map((_, i) => object(`k${10_000 + i}`, i + 1)),
      count,
      "first",
    );
    this.retained = new RetainedSnapshots(this.cache, { idleBytes: 1e9, bytes: 1e9 });
    this.snapshots = new HistoricalSnapshots(this.cache, this.clock, this.retained);
    const lists = new ListCache(this.cache, new ChunkCache(), { bytes: 1e9, scanned: 2_000 });
    this.pages = new PageReader(this.cache, this.snapshots, lists);
    this.states = new StateReader(this.cache, this.snapshots, this.retained);
  }

  write(key: string, type: "ADDED" | "MODIFIED" | "DELETED" = "MODIFIED"): void {
    const revision = this.cache.revision + 1;
    this.cache.apply(new WatchBatch(revision, [event(type, key, revision, "new")]));
  }

  /** The store has reached this revision, by other keys. */
  progress(revision: number): void {
    this.cache.apply(new WatchBatch(revision, []));
  }

  list(request: Partial<CacheListRequest> = {}): ListResult | undefined {
    return finish(this.pages.list({ prefix: "", limit: 0, at: any, ...request }));
  }

  get(key: string, at: RevisionRequirement) {
    return finish(this.pages.get({ key, at }));
  }

  /** What a reader of a state finds. */
  read(request: Omit<CacheStateRequest, "at">) {
    return finish(
      this.states.read({ ...request, at: any }, function* (state: CachedState) {
        yield;
        const values = [...state.objects].map(({ key, value }) => `${key}=${text(value)}`);
        return { ...state, values, count: yield* state.count() };
      }),
    );
  }
}

export const keysOf = (page: ListResult | undefined): string =>
  page?.items.map(({ key, value }) => `${key}=${text(value)}`).join(" ") ?? "none";

/** Counts how often objects are counted, until the test ends. */
export function countNamedSpy(): Mock<OrderedStore["countNamed"]> {
  const spy = vi.spyOn(OrderedStore.prototype, "countNamed");
  onTestFinished(() => spy.mockRestore());
  return spy;
}
