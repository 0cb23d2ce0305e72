import type { CacheWatchRequest } from "../request/request.ts";
import type { Selection } from "../request/selection.ts";
import { Filter } from "../state/filter.ts";

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
