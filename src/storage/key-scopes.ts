import { keyBytes, keyText, prefixEnd } from "../model/key-bytes.ts";
import { compareKeys } from "../model/key-order.ts";
import type { KeyInterval, ListRequest, WatchScope } from "./storage.ts";

/*
 * Ranges of keys, as a Storage takes them.
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
