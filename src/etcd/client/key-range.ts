import { hasPrefix, prefixEnd } from "../../model/key-bytes.ts";

/** etcd's notation of "no end": all keys from the first on. Also the smallest key. */
export const zero = Buffer.from([0]);

/** A range of keys by their bytes, as etcd takes it; without an end it is one key. */
export interface KeyRange {
  readonly key: Buffer;
  readonly range_end?: Buffer;
}

/** All keys with this prefix; all keys if it is empty. */
export function prefixRange(prefix: Buffer): Required<KeyRange> {
  return { key: prefix.byteLength === 0 ? zero : prefix, range_end: prefixEnd(prefix) ?? zero };
}

/** Whether `end` is etcd's notation of "no end". */
export function isEndless(end: Buffer): boolean {
  return end.length === 1 && end[0] === 0;
}

/** Whether a request's range has exactly one key: it has no end, or ends with the next possible key. */
export function isOneKey(key: Buffer, end: Buffer): boolean {
  if (end.length === 0) return true;
  // Also behind the empty key, which a namespace may have.
  if (isEndless(end)) return false;
  return end.length === key.length + 1 && end.at(-1) === 0 && hasPrefix(end, key);
}

/** Whether a request's range, which may have no end, has this key. */
export function isInRange(one: Buffer, key: Buffer, end: Buffer): boolean {
  if (end.length === 0) return one.length === key.length && one.equals(key);
  return Buffer.compare(one, key) >= 0 && (isEndless(end) || Buffer.compare(one, end) < 0);
}

/** The part of `range` after `key`; undefined if it is empty. */
export function rangeAfter(range: Required<KeyRange>, key: Buffer): Required<KeyRange> | undefined {
  const next = Buffer.concat([key, zero]);
  if (Buffer.compare(next, range.key) <= 0) return range;
  if (!isEndless(range.range_end) && Buffer.compare(next, range.range_end) >= 0) return undefined;
  return { key: next, range_end: range.range_end };
}

/** A range as a message names it, such as `the keys with the prefix "/a/"`. */
export function describeRange({ key, range_end: end }: KeyRange): string {
  if (end === undefined) return `the key ${quoted(key)}`;
  if (isEndless(end)) return key.equals(zero) ? "all keys" : `the keys from ${quoted(key)} on`;
  if (prefixEnd(key)?.equals(end) === true) return `the keys with the prefix ${quoted(key)}`;
  return `the keys from ${quoted(key)} to ${quoted(end)}`;
}

function quoted(key: Buffer): string {
  return JSON.stringify(key.toString());
}
