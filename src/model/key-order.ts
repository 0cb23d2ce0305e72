import { isEscape, keyBytes } from "./key-bytes.ts";

/**
 * Compares keys by their bytes, as etcd does.
 *
 * JavaScript's `<` compares UTF-16 units. In these the surrogates of characters from U+10000 on sort before U+E000 to
 * U+FFFF, although their UTF-8 bytes sort after. Lone surrogates stand for bytes that are not UTF-8 (key-bytes.ts). All
 * else has the same order.
 */
export function compareKeys(a: string, b: string): number {
  const length = Math.min(a.length, b.length);
  for (let i = 0; i < length; i++) {
    const x = a.charCodeAt(i);
    const y = b.charCodeAt(i);
    if (x === y) continue;
    if (x < 0xd800 && y < 0xd800) return x - y;
    return isEscape(a, i) || isEscape(b, i) ? compareBytes(a, b, i) : byteRank(x) - byteRank(y);
  }
  return a.length - b.length;
}

/** Compares keys that differ from the unit at `i` on, where a character begins. */
function compareBytes(a: string, b: string, i: number): number {
  return Buffer.compare(keyBytes(a.slice(i)), keyBytes(b.slice(i)));
}

/** Moves the surrogates above all other units and keeps the rest in order. */
function byteRank(unit: number): number {
  if (unit < 0xd800) return unit;
  return unit < 0xe000 ? unit + 0x2000 : unit - 0x800;
}
