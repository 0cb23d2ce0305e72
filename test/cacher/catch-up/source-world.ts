import type { WatchFanoutError } from "../../../src/base/errors.ts";
import { Turns } from "../../../src/base/turns.ts";
import { CoalescedBacklogs } from "../../../src/cacher/catch-up/coalesced-backlogs.ts";
import type {
  SourceContext,
  SourceReader,
  SourceResult,
} from "../../../src/cacher/catch-up/watch-source.ts";
import type { WatcherState } from "../../../src/cacher/dispatch/dispatch-target.ts";
import { Dispatcher } from "../../../src/cacher/dispatch/dispatcher.ts";
import {
  defaultWatcherBounds,
  type WatcherBounds,
} from "../../../src/cacher/dispatch/watcher-bounds.ts";
import type { CacheWatchRequest } from "../../../src/cacher/request/request.ts";
import { ChunkCache } from "../../../src/cacher/state/chunk-cache.ts";
import { defaultEventWindowBounds } from "../../../src/cacher/state/event-window.ts";
import { Filter } from "../../../src/cacher/state/filter.ts";
import { WatchCache } from "../../../src/cacher/state/watch-cache.ts";
import { WatchBatch } from "../../../src/model/event.ts";
import { FakeClock } from "../../fake-clock.ts";
import { event } from "../objects.ts";

/** The watcher of a source. It never joins the dispatcher, which would offer it batches. */
export class Reader implements SourceReader {
  state: WatcherState = "catching up";
  readonly position = 1;
  readonly filter: Filter;
  readonly options: SourceReader["options"];
  readonly onStep: () => void;
  error: WatchFanoutError | undefined;
  notified = 0;

  constructor(filter: Filter, owner: object | undefined, onStep: () => void) {
    this.filter = filter;
    this.options = { eagerBookmarks: false, delivery: "EVERY_EVENT", owner };
    this.onStep = onStep;
  }

  fail(error: WatchFanoutError): void {
    this.error = error;
    this.state = "ended";
  }

  step(): boolean {
    this.onStep();
    return false;
  }

  notify(): void {
    this.notified++;
  }

  stall(): void {}

  requestBookmark(): void {}

  offer(): boolean {
    return false;
  }

  bookmark(): boolean {
    return false;
  }
}

/** The part of the Cacher that sources use, with an event window of 8 events, of which the first has revision 2. */
export class World {
  readonly cache: WatchCache;
  readonly context: SourceContext;

  constructor(bounds: Partial<WatcherBounds> = {}, clock = new FakeClock()) {
    const cache = new WatchCache(
      { ...defaultEventWindowBounds, minEvents: 0, maxEvents: 8 },
      clock,
    );
    cache.replace([], 1);
    const all = { ...defaultWatcherBounds, ...bounds };
    const dispatcher = new Dispatcher(cache, clock, all);
    dispatcher.reset();
    const turns = new Turns(clock);
    const coalescedBacklogs = new CoalescedBacklogs({
      ...{ clock, cache, dispatcher, turns, chunkCache: new ChunkCache() },
      ...{ chunkBytes: all.batchBytes, maxBytes: all.coalescedBytes },
    });
    this.cache = cache;
    this.context = { bounds: all, cache, dispatcher, coalescedBacklogs, turns };
  }

  reader(request: Partial<CacheWatchRequest> = {}, onStep: () => void = () => {}): Reader {
    const filter = new Filter({ scope: { prefix: "" }, withPrevious: false, ...request });
    return new Reader(filter, request.owner, onStep);
  }

  /** Writes each of the keys, in a revision of its own. */
  write(...keys: readonly string[]): void {
    for (const key of keys) {
      const revision = this.cache.revision + 1;
      this.cache.apply(new WatchBatch(revision, [event("ADDED", key, revision)]));
    }
    this.context.dispatcher.flush();
  }
}

/** The result in short form: `"a b →3"`, with `done` at the end of the source. */
export function short(result: SourceResult | undefined): string | undefined {
  if (result === undefined) return undefined;
  const { batch, isDone } = result;
  const keys = batch?.events.map(({ object }) => object.key) ?? [];
  const point = batch === undefined ? [] : [`→${batch.revision}`];
  return [...keys, ...point, ...(isDone ? ["done"] : [])].join(" ");
}
