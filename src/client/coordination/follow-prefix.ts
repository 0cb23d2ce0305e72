import { StreamBackoff } from "../../base/stream-backoff.ts";
import type { StoredObject } from "../../model/object.ts";
import { requiresRelist, watchBackoff } from "../watch/resuming-watch.ts";
import type { LeaseClient } from "./leased-keys.ts";

/** The objects of a prefix at a revision. */
export interface PrefixState {
  readonly revision: number;
  readonly historyId: string;
  /** By key. The map is the same each time, and changes with the next state. */
  readonly objects: ReadonlyMap<string, StoredObject>;
}

/**
 * Yields the objects of a prefix, and their state after each change, however often the watch is interrupted or must be started
 * again. For few objects: all are held in memory. Returns when the signal is aborted; throws what a watch throws that can't be
 * started again.
 */
export async function* followPrefix(
  client: LeaseClient,
  resource: string,
  prefix: string,
  signal: AbortSignal,
): AsyncGenerator<PrefixState, void, void> {
  const { clock, random } = client.leases.site;
  const { reachability } = client;
  const backoff = new StreamBackoff({ bounds: watchBackoff, clock, random, reachability });
  const objects = new Map<string, StoredObject>();
  const options = { scope: { prefix }, sendInitialEvents: true, signal } as const;
  while (!signal.aborted) {
    try {
      const batches = client.watch(resource, { ...options, delivery: "LATEST_STATE" });
      for await (const { revision, historyId, events, initial } of batches) {
        backoff.responded();
        if (initial) objects.clear();
        for (const { type, object } of events) {
          if (type === "DELETED") objects.delete(object.key);
          else objects.set(object.key, object);
        }
        yield { revision, historyId, objects };
      }
      return;
    } catch (error) {
      if (!requiresRelist(error)) throw error;
      await backoff.wait(backoff.next(error, 0), 0, signal);
    }
  }
}
