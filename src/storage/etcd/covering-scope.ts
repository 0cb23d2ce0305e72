import { isEndless, isOneKey } from "../../etcd/client/key-range.ts";
import type { OwnKeys } from "../../etcd/client/own-keys.ts";
import { hasPrefix, isEscape, keyText, prefixEnd } from "../../model/key-bytes.ts";
import { scopeBetween } from "../key-scopes.ts";
import type { Scope, WatchScope } from "../storage.ts";

/** A range of keys, as a request to etcd has it. An empty `rangeEnd`: one key. */
interface RequestedRange {
  readonly key: Buffer;
  readonly rangeEnd: Buffer;
}

/** The keys in etcd that a cached resource has: all below a prefix, except the service's own. */
export interface CachedKeys {
  /** Empty: all keys. */
  readonly prefix: Buffer;
  /** The service's own keys, which no resource has. What includes them is etcd's to answer. */
  readonly own?: OwnKeys | undefined;
  /** Whether they are those of a namespace, in which there may be an empty key: etcd has the prefix of the namespace then. */
  readonly isNamespaced?: boolean | undefined;
}

/** Whether a range has keys, and a prefix has all of them. */
function isWithin(prefix: Buffer, { key, rangeEnd }: RequestedRange): boolean {
  if (!hasPrefix(key, prefix)) return false;
  if (isOneKey(key, rangeEnd)) return true;
  const last = prefixEnd(prefix);
  if (isEndless(rangeEnd)) return last === undefined;
  const isBefore = last === undefined || Buffer.compare(rangeEnd, last) <= 0;
  return isBefore && Buffer.compare(rangeEnd, key) > 0;
}

/**
 * The narrowest key or prefix, relative to the resource's, that has all keys of a range; undefined: the resource does not
 * have them all, or the range is empty. All keys of the range begin with what its two ends have in common. If they have
 * nothing in common behind the resource's prefix, that is all keys of the resource.
 */
export function scopeIn(prefix: Buffer, range: RequestedRange): Scope | undefined {
  if (!isWithin(prefix, range)) return undefined;
  const { key, rangeEnd } = range;
  if (isOneKey(key, rangeEnd)) return { key: keyText(key, prefix.length) };
  if (isEndless(rangeEnd)) return prefix.length === 0 ? { prefix: "" } : undefined;
  let common = 0;
  while (common < key.length && key[common] === rangeEnd[common]) common++;
  // The end of all keys with a prefix differs from it in the last byte, by one.
  const isWhole =
    common < key.length &&
    rangeEnd.length === common + 1 &&
    rangeEnd[common] === (key[common] ?? 0) + 1;
  const end = Math.max(prefix.length, isWhole ? common + 1 : common);
  return { prefix: wellFormedStart(keyText(key, prefix.length, end)) };
}

/** A text up to its first byte that is not UTF-8. With more bytes that could be a character, of other keys of the range. */
function wellFormedStart(text: string): string {
  if (text.isWellFormed()) return text;
  let end = 0;
  while (end < text.length && !isEscape(text, end)) end++;
  return text.slice(0, end);
}

/**
 * Returns the keys of a cached resource that a request's `key` and `range_end` mean, relative to its prefix; undefined if the
 * resource does not have all of them, or if the range is empty: then the request is forwarded.
 *
 * `leftOut`: the key of the history's id, if the client leaves out the service's own keys of what it gets.
 *
 * The result is the narrowest kind of scope that fits: one key, a prefix, or a range.
 */
export function cachedScope(
  { prefix, own, isNamespaced = false }: CachedKeys,
  key: Buffer,
  rangeEnd: Buffer,
  leftOut?: Buffer,
): WatchScope | undefined {
  if (!isWithin(prefix, { key, rangeEnd })) return undefined;
  const hasOwn = own?.areIn(key, rangeEnd) === true;
  if (isOneKey(key, rangeEnd)) {
    return hasOwn ? undefined : { key: keyText(key, prefix.length) };
  }
  if (hasOwn && leftOut?.equals(own.history) !== true) return undefined;
  const reachesEnd = isEndless(rangeEnd) || prefixEnd(prefix)?.equals(rangeEnd) === true;
  const first = key.subarray(prefix.length);
  // No key of etcd is empty, and 0 is the smallest one.
  const isFirst = prefix.length === 0 && !isNamespaced && first.length === 1 && first[0] === 0;
  if (isFirst && reachesEnd) return { prefix: "" };
  return scopeBetween(first, reachesEnd ? undefined : rangeEnd.subarray(prefix.length));
}
