import { randomUUID } from "node:crypto";
import { hasReason, WatchFanoutError } from "../../base/errors.ts";
import { LatencySampler } from "../../base/latency-sampler.ts";
import { PendingSource, type SourceContext } from "../catch-up/watch-source.ts";
import { draining } from "../request/errors.ts";
import type { CacheWatchRequest } from "../request/request.ts";
import type { Selection } from "../request/selection.ts";
import type { ComponentContext } from "../state/component.ts";
import { Filter } from "../state/filter.ts";
import { CacheWatcher } from "./cache-watcher.ts";
import type { WatchOpener } from "./watch-opener.ts";
import type { WatcherContext } from "./watcher-context.ts";

/** All watchers of a Cacher, in one table: creates them, shares their filters, has them opened, and ends them. */
export class WatcherRegistry {
  readonly #context: ComponentContext;
  readonly #watcherContext: WatcherContext<CacheWatcher>;
  readonly #opener: WatchOpener;
  readonly #watchers = new Set<CacheWatcher>();
  readonly #filters = new SharedFilters();
  #isDraining = false;
  #slowConsumers = 0;

  constructor(context: ComponentContext, sources: SourceContext, opener: WatchOpener) {
    const { clock, stages } = context;
    this.#context = context;
    this.#watcherContext = {
      ...sources,
      deliveryLatency: new LatencySampler(clock, (latencyMs) => stages.delivered?.(latencyMs)),
      forget: (watcher, end) => this.#forget(watcher, end),
      toStreamError: (error) => this.#toStreamError(error),
    };
    this.#opener = opener;
  }

  /** The watchers that have not ended. */
  get all(): ReadonlySet<CacheWatcher> {
    return this.#watchers;
  }

  /** Number of different filters. */
  get filters(): number {
    return this.#filters.filters;
  }

  /** Number of watchers that ended with SLOW_CONSUMER. */
  get slowConsumers(): number {
    return this.#slowConsumers;
  }

  open(request: CacheWatchRequest): CacheWatcher {
    const filter = this.#filters.acquire(request);
    const source = new PendingSource();
    const watcher = new CacheWatcher(
      filter,
      {
        delivery: request.delivery ?? "EVERY_EVENT",
        bookmarkIntervalMs: request.bookmarkIntervalMs ?? 60_000,
        deadline: request.deadline,
        expiresAt: request.expiresAt,
        eagerBookmarks: request.eagerBookmarks ?? false,
        openedAt: this.#context.clock.now(),
        owner: request.owner,
      },
      this.#watcherContext,
      source,
    );
    try {
      if (this.#isDraining) throw draining();
      this.#context.readiness.check();
    } catch (error) {
      watcher.fail(error);
      return watcher;
    }
    this.#watchers.add(watcher);
    // With the shared selection, so that the request does not keep another copy of it.
    const shared = { ...request, selection: filter.selection };
    this.#opener.begin({ watcher, request: shared, source });
    return watcher;
  }

  /** Ends all watchers with `error`. */
  fail(error: WatchFanoutError): void {
    for (const watcher of [...this.#watchers]) watcher.fail(error);
  }

  /** Ends all watchers with DRAINING, the synced ones after a last bookmark, and refuses new ones. Idempotent. */
  drain(): void {
    if (this.#isDraining) return;
    this.#isDraining = true;
    const { dispatcher } = this.#watcherContext;
    dispatcher.flush();
    for (const watcher of [...this.#watchers]) {
      dispatcher.sendBookmark(watcher);
      watcher.fail(draining());
    }
  }

  #forget(watcher: CacheWatcher, end: Error | null): void {
    this.#watchers.delete(watcher);
    this.#watcherContext.dispatcher.leave(watcher);
    this.#filters.release(watcher.filter);
    if (hasReason(end, "SLOW_CONSUMER")) this.#slowConsumers++;
  }

  #toStreamError(error: unknown): WatchFanoutError {
    if (error instanceof WatchFanoutError) return error;
    const id = randomUUID();
    const { name, logger } = this.#context;
    logger.error({ err: error, id, resource: name }, "a stream failed");
    return new WatchFanoutError(
      "INTERNAL",
      `An internal error ended this stream. The log of the service has details under id ${id}.`,
      { metadata: { id }, cause: error },
    );
  }
}

interface Shared<T> {
  readonly value: T;
  holders: number;
}

/**
 * The filters of all open watches. Equal requests share one filter, and filters with equal requirements share one
 * selection, so that 100,000 watches with one selector keep it once. A filter is kept until its last watch ends.
 */
export class SharedFilters {
  readonly #filters = new Map<string, Shared<Filter>>();
  readonly #selections = new Map<string, Shared<Selection>>();

  /** Number of different filters. */
  get filters(): number {
    return this.#filters.size;
  }

  /** Number of different selections. */
  get selections(): number {
    return this.#selections.size;
  }

  /** Returns the filter of the request, and holds it until `release`, once per call. */
  acquire(request: CacheWatchRequest): Filter {
    const selection = this.#selectionOf(request);
    const requested = new Filter({ ...request, selection });
    const shared = this.#filters.get(requested.identity);
    if (shared !== undefined) {
      shared.holders++;
      return shared.value;
    }
    this.#filters.set(requested.identity, { value: requested, holders: 1 });
    if (selection !== undefined) hold(this.#selections, selection.canonical, selection);
    return requested;
  }

  /** Releases one hold on the filter. */
  release({ identity, selection }: Filter): void {
    if (!releaseShared(this.#filters, identity) || selection === undefined) return;
    releaseShared(this.#selections, selection.canonical);
  }

  #selectionOf({ selection }: CacheWatchRequest): Selection | undefined {
    if (selection === undefined) return undefined;
    return this.#selections.get(selection.canonical)?.value ?? selection;
  }
}

function hold<T>(shared: Map<string, Shared<T>>, name: string, value: T): void {
  const entry = shared.get(name);
  if (entry === undefined) shared.set(name, { value, holders: 1 });
  else entry.holders++;
}

/** Releases one hold. Returns whether it was the last. */
function releaseShared<T>(shared: Map<string, Shared<T>>, name: string): boolean {
  const entry = shared.get(name);
  if (entry === undefined) return false;
  entry.holders--;
  return entry.holders === 0 && shared.delete(name);
}
