import { isEndless, isOneKey } from "../etcd/client/key-range.ts";
import { hasPrefix, isEscape, keyBytes, keyText, prefixEnd } from "../model/key-bytes.ts";
import { compareKeys } from "../model/key-order.ts";
import type { KeyInterval, ListRequest, Scope, WatchScope } from "./storage.ts";

/*
 * Ranges of keys: as clients name them, as a Storage takes them, and which right they need.
 */

/** The keys of a list: those with a prefix, or an interval. */
export type ListScope = Exclude<WatchScope, { readonly key: string }>;

/** What a list reads. An interval may be empty: its end is not above its beginning then. */
export function scopeOfList({
  prefix,
  interval,
}: Pick<ListRequest, "interval" | "prefix">): ListScope {
  if (interval === undefined) return { prefix };
  if (prefix === "") return interval;
  const { from, to } = intervalOf({ prefix });
  const first = compareKeys(interval.from, from) > 0 ? interval.from : from;
  if (interval.to === undefined) return first === from ? { prefix } : { from: first, to };
  const end = to === undefined || compareKeys(interval.to, to) < 0 ? interval.to : to;
  return first === from && end === to ? { prefix } : { from: first, to: end };
}

/** The scope as an interval. */
export function intervalOf(scope: ListScope): KeyInterval {
  if (!("prefix" in scope)) return scope;
  const end = prefixEnd(keyBytes(scope.prefix));
  return { from: scope.prefix, to: end === undefined ? undefined : keyText(end) };
}

/**
 * The scope of the keys from `first` up to `end`, which is above it and not included; undefined: up to the last one. It is
 * the narrowest kind that fits: a prefix, or an interval.
 */
export function scopeBetween(first: Buffer, end: Buffer | undefined): ListScope {
  if (first.length === 0 && end === undefined) return { prefix: "" };
  const from = keyText(first);
  const to = end === undefined ? undefined : keyText(end);
  const isPrefix = end !== undefined && prefixEnd(first)?.equals(end) === true;
  // The text of a key begins with that of a prefix only if the prefix does not end within a character.
  return isPrefix && from.isWellFormed() ? { prefix: from } : { from, to };
}

/**
 * The narrowest key or prefix, relative to the resource's, that has all keys of a range; undefined: the resource does not
 * have them all, or the range is empty. All keys of the range begin with what its two ends have in common. If they have
 * nothing in common behind the resource's prefix, that is all keys of the resource.
 */
export function scopeIn(
  prefix: Buffer,
  { key, rangeEnd }: { readonly key: Buffer; readonly rangeEnd: Buffer },
): Scope | undefined {
  if (!hasPrefix(key, prefix)) return undefined;
  if (isOneKey(key, rangeEnd)) return { key: keyText(key, prefix.length) };
  const last = prefixEnd(prefix);
  if (isEndless(rangeEnd))
    return last === undefined && prefix.length === 0 ? { prefix: "" } : undefined;
  if (Buffer.compare(rangeEnd, key) <= 0) return undefined;
  if (last !== undefined && Buffer.compare(rangeEnd, last) > 0) return undefined;
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
