import { textOf } from "../protobuf/text.ts";

/*
 * A key of etcd is any bytes; a key of an object is text. Text is the UTF-8 of the key where it is UTF-8. Every other
 * byte is one lone surrogate, U+DC80 to U+DCFF, as in Python's PEP 383. So each key has exactly one text, texts of
 * UTF-8 keys are what clients of this service see, and `String.isWellFormed` distinguishes both kinds at no cost.
 */

/** What is added to a byte that is not UTF-8: U+DC00. */
const escapeStart = 0xdc00;

/**
 * Whether ListWatchService can't name the key: it is empty, that is the resource's prefix itself, or it is not UTF-8.
 * Only clients of etcd's own API see such a key.
 */
export function isRawKey(key: string): boolean {
  return key === "" || !key.isWellFormed();
}

/** The text of the key in `bytes` from `start` to `end`. */
export function keyText(bytes: Buffer, start: number = 0, end: number = bytes.length): string {
  for (let i = start; i < end; i++) {
    if ((bytes[i] as number) < 0x80) continue;
    const key = bytes.subarray(start, end);
    return textOf(key) ?? escaped(key);
  }
  return bytes.toString("latin1", start, end);
}

/** The bytes of a key from its text. */
export function keyBytes(key: string): Buffer {
  if (key.isWellFormed()) return Buffer.from(key);
  const parts: Buffer[] = [];
  let start = 0;
  for (let i = 0; i < key.length; i++) {
    if (!isEscape(key, i)) continue;
    parts.push(Buffer.from(key.slice(start, i)), Buffer.of(key.charCodeAt(i) - escapeStart));
    start = i + 1;
  }
  parts.push(Buffer.from(key.slice(start)));
  return Buffer.concat(parts);
}

/** Number of bytes of a key from its text. */
export function keySize(key: string): number {
  if (key.isWellFormed()) return Buffer.byteLength(key);
  let size = Buffer.byteLength(key);
  // UTF-8 encoders write three bytes for a lone surrogate.
  for (let i = 0; i < key.length; i++) if (isEscape(key, i)) size -= 2;
  return size;
}

/** Whether the key begins with the bytes of the prefix. */
export function hasPrefix(key: Buffer, prefix: Buffer): boolean {
  // From the end, where most prefixes differ: a call of Buffer's methods takes longer than that.
  let at = prefix.length;
  if (key.length < at) return false;
  while (at > 0 && key[at - 1] === prefix[at - 1]) at--;
  return at === 0;
}

/**
 * The smallest key above all keys with this prefix: the last byte below 0xff is incremented, and what follows is
 * dropped. Undefined for a prefix of only 0xff bytes, or an empty one: no such key exists.
 */
export function prefixEnd(prefix: Buffer): Buffer | undefined {
  for (let i = prefix.byteLength - 1; i >= 0; i--) {
    const byte = prefix.readUInt8(i);
    if (byte === 0xff) continue;
    const end = Buffer.from(prefix.subarray(0, i + 1));
    end.writeUInt8(byte + 1, i);
    return end;
  }
  return undefined;
}

/** Whether the unit at `i` stands for a byte: a low surrogate that is not the second half of a pair. */
export function isEscape(key: string, i: number): boolean {
  const unit = key.charCodeAt(i);
  if (unit < escapeStart || unit > 0xdfff) return false;
  const before = i === 0 ? 0 : key.charCodeAt(i - 1);
  return before < 0xd800 || before > 0xdbff;
}

/** The text of bytes that are not UTF-8 as a whole. */
function escaped(bytes: Buffer): string {
  let text = "";
  for (let i = 0; i < bytes.length; ) {
    const first = bytes.readUInt8(i);
    const size = sequenceSize(first);
    const sequence = bytes.subarray(i, i + size);
    const character = size > 0 && sequence.length === size ? textOf(sequence) : undefined;
    text += character ?? String.fromCharCode(escapeStart + first);
    i += character === undefined ? 1 : size;
  }
  return text;
}

/** Number of bytes of the UTF-8 sequence that begins with this byte; 0 if none does. */
function sequenceSize(first: number): number {
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  if (first < 0xe0) return 2;
  return first < 0xf0 ? 3 : 4;
}
