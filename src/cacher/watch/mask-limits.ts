import { WatchFanoutError } from "../../base/errors.ts";
import { groupOf } from "../../base/fair-queue.ts";
import { type CacheWatchRequest, viewName } from "../request/request.ts";

/** Maximum number of different masks of the watches of one caller on a resource. */
export const maxMasksOfCaller = 16;
/** Maximum number of different masks of all watches of a resource. */
export const maxMasks = 256;

/** What a watch holds of the limits. */
type Holder = Pick<CacheWatchRequest, "owner" | "view">;

/**
 * The different masks of the open watches of a resource. Each event is reduced once for each of them, whatever its number
 * of watches: so their number is the number of times that one write is read and copied.
 */
export class MaskLimits {
  /** Number of watches by mask. */
  readonly #all = new Map<string, number>();
  /** The same for each caller. */
  readonly #byCaller = new Map<object, Map<string, number>>();

  /** Number of different masks. */
  get size(): number {
    return this.#all.size;
  }

  /** Counts the mask of a watch, if it has one. Throws TOO_MANY_STREAMS, without effect, for a mask above a limit. */
  acquire(watch: Holder): void {
    const mask = maskOf(watch);
    if (mask === undefined) return;
    const caller = callerOf(watch);
    const own = this.#byCaller.get(caller) ?? new Map<string, number>();
    if (!own.has(mask) && own.size >= maxMasksOfCaller) {
      throw tooMany("The caller", maxMasksOfCaller);
    }
    if (!this.#all.has(mask) && this.#all.size >= maxMasks) throw tooMany("All callers", maxMasks);
    this.#all.set(mask, (this.#all.get(mask) ?? 0) + 1);
    this.#byCaller.set(caller, own.set(mask, (own.get(mask) ?? 0) + 1));
  }

  /** Releases what `acquire` has counted, once. */
  release(watch: Holder): void {
    const mask = maskOf(watch);
    if (mask === undefined) return;
    releaseOne(this.#all, mask);
    const caller = callerOf(watch);
    const own = this.#byCaller.get(caller);
    if (own === undefined) return;
    releaseOne(own, mask);
    if (own.size === 0) this.#byCaller.delete(caller);
  }
}

function maskOf({ view = "FULL" }: Holder): string | undefined {
  return typeof view === "string" || !view.isMask ? undefined : viewName(view);
}

/** Watches without an owner, such as those of a program that embeds the service, belong to one caller. */
function callerOf({ owner = noOwner }: Holder): object {
  return groupOf(owner);
}

const noOwner = {};

function releaseOne(counts: Map<string, number>, mask: string): void {
  const count = counts.get(mask) ?? 0;
  if (count > 1) counts.set(mask, count - 1);
  else counts.delete(mask);
}

function tooMany(who: string, limit: number): WatchFanoutError {
  return new WatchFanoutError(
    "TOO_MANY_STREAMS",
    `${who} watch this resource with ${limit} different masks, the maximum. Use the masks of other watches, such as ` +
      "one with the paths of several, or try another replica.",
    { metadata: { limit_name: "masks", limit: String(limit), usage: String(limit) } },
  );
}
