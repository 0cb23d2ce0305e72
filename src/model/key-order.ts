/**
 * Compares keys by their UTF-8 bytes, as etcd does.
 *
 * JavaScript's `<` compares UTF-16 units. In these the surrogates of characters from U+10000 on sort before U+E000 to
 * U+FFFF, although their UTF-8 bytes sort after. All else has the same order.
 */
export function compareKeys(a: string, b: string): number {
  const length = Math.min(a.length, b.length);
  for (let i = 0; i < length; i++) {
    const x = a.charCodeAt(i);
    const y = b.charCodeAt(i);
    if (x !== y) return byteRank(x) - byteRank(y);
  }
  return a.length - b.length;
}

/** Moves the surrogates above all other units and keeps the rest in order. */
function byteRank(unit: number): number {
  if (unit < 0xd800) return unit;
  return unit < 0xe000 ? unit + 0x2000 : unit - 0x800;
}
