import type { Clock } from "../../base/clock.ts";
import { type Reachability, StreamBackoff } from "../../base/stream-backoff.ts";
import type { Interruption, WatchOptions } from "../calls/options.ts";
import type { TypedBatch, TypedObject } from "../values/typed-object.ts";
import { requiresRelist, watchBackoff } from "../watch/resuming-watch.ts";

/** Options of `TypedResource.follow`. */
export interface FollowOptions {
  /** Aborting it ends the iteration. */
  readonly signal?: AbortSignal | undefined;
  /**
   * Called when the watch was interrupted, before it continues; without a `resumeRevision` if it is started again.
   * The state that was yielded last may be outdated until then.
   */
  readonly onInterruption?: ((interruption: Interruption) => void) | undefined;
}

/** The watch and the clock of a followed object. */
interface FollowSite<T> {
  readonly watch: (options: WatchOptions) => AsyncIterable<TypedBatch<T>>;
  readonly clock: Clock;
  readonly random: () => number;
  readonly reachability?: Reachability | undefined;
}

/** See TypedResource.follow. */
export async function* follow<T>(
  site: FollowSite<T>,
  key: string,
  { signal, onInterruption }: FollowOptions,
): AsyncGenerator<TypedObject<T> | undefined, void, void> {
  const { clock, random, reachability } = site;
  const backoff = new StreamBackoff({ bounds: watchBackoff, clock, random, reachability });
  const scope = { key };
  while (signal?.aborted !== true) {
    const batches = site.watch({
      ...{ scope, signal, onInterruption },
      sendInitialEvents: true,
      delivery: "LATEST_STATE",
    });
    try {
      for await (const batch of batches) {
        backoff.responded();
        const last = batch.events.at(-1);
        if (last !== undefined) yield last.type === "DELETED" ? undefined : last.object;
        // The object exists but can't be decoded: the last yielded state remains.
        else if (batch.initial && batch.undecodable.length === 0) yield undefined;
      }
      return;
    } catch (error) {
      if (!requiresRelist(error)) throw error;
      const delayMs = backoff.next(error, 0);
      onInterruption?.({ error, delayMs, resumeRevision: undefined });
      await backoff.wait(delayMs, 0, signal);
    }
  }
}
