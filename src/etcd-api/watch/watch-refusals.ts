import type { CreateRequest } from "./watch-request.ts";

/** etcd's own texts for watches that it refuses. Its clients compare them. */
export const refusals = {
  emptyRange: "mvcc: watcher range is empty",
  compacted: "etcdserver: mvcc: required revision has been compacted",
  duplicate: "mvcc: duplicate watch ID provided on the WatchStream",
  tooMany: "etcdserver: too many requests",
} as const;

/**
 * Why etcd would refuse a watch; undefined: it would not. `isTaken`: the stream has a watch with the id that the request
 * names. `mayAdd`: there is room for one more watch.
 */
export function refusalOf(
  { key, rangeEnd, startRevision, watchId }: CreateRequest,
  isTaken: boolean,
  mayAdd: boolean,
): string | undefined {
  if (startRevision < 0) return refusals.compacted;
  const isEndless = rangeEnd.length === 1 && rangeEnd[0] === 0;
  if (rangeEnd.length > 0 && !isEndless && Buffer.compare(key, rangeEnd) >= 0) {
    return refusals.emptyRange;
  }
  if (watchId !== 0n && isTaken) return refusals.duplicate;
  return mayAdd ? undefined : refusals.tooMany;
}
