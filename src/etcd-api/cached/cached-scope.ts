import { isEndless, isInRange, isOneKey } from "../../etcd/client/key-range.ts";
import { hasPrefix, keyText, prefixEnd } from "../../model/key-bytes.ts";
import { scopeBetween } from "../../storage/key-scopes.ts";
import type { WatchScope } from "../../storage/storage.ts";

/** The keys in etcd that a cached resource has: all below a prefix, except one. */
export interface CachedKeys {
  /** Empty: all keys. */
  readonly prefix: Buffer;
  /** The key of the history's id, which no resource has. What includes it is etcd's to answer. */
  readonly marker?: Buffer | undefined;
  /** Whether they are those of a namespace, in which there may be an empty key: etcd has the prefix of the namespace then. */
  readonly isNamespaced?: boolean | undefined;
}

/**
 * Returns the keys of a resource that a request's `key` and `range_end` mean, relative to its prefix; undefined if the
 * resource does not have all of them, or if the range is empty: then the request is forwarded.
 *
 * `leftOut`: the key that the client leaves out of what it gets.
 *
 * The result is the narrowest kind of scope that fits: one key, a prefix, or a range.
 */
export function cachedScope(
  { prefix, marker, isNamespaced = false }: CachedKeys,
  key: Buffer,
  rangeEnd: Buffer,
  leftOut?: Buffer,
): WatchScope | undefined {
  if (!hasPrefix(key, prefix)) return undefined;
  if (isOneKey(key, rangeEnd)) {
    return marker?.equals(key) === true ? undefined : { key: keyText(key, prefix.length) };
  }
  const end = isEndless(rangeEnd) ? undefined : rangeEnd;
  const lastEnd = prefixEnd(prefix);
  if (end !== undefined && Buffer.compare(end, key) <= 0) return undefined;
  if (lastEnd !== undefined && (end === undefined || Buffer.compare(end, lastEnd) > 0)) {
    return undefined;
  }
  const hasMarker = marker !== undefined && isInRange(marker, key, rangeEnd);
  if (hasMarker && leftOut?.equals(marker) !== true) return undefined;
  const reachesEnd = end === undefined || (lastEnd !== undefined && end.equals(lastEnd));
  const first = key.subarray(prefix.length);
  // No key of etcd is empty, and 0 is the smallest one.
  const isFirst = prefix.length === 0 && !isNamespaced && first.length === 1 && first[0] === 0;
  if (isFirst && reachesEnd) return { prefix: "" };
  return scopeBetween(first, reachesEnd ? undefined : end.subarray(prefix.length));
}
