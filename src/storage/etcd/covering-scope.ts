import { isEndless, isOneKey } from "../../etcd/client/key-range.ts";
import { hasPrefix, isEscape, keyText, prefixEnd } from "../../model/key-bytes.ts";
import type { Scope } from "../storage.ts";

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
