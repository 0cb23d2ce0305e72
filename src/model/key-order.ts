/**
 * The order of keys: that of their UTF-8 bytes, as in etcd.
 *
 * JavaScript's `<` compares UTF-16 units, in which the surrogates of an astral character (U+10000 and
 * above) sort before U+E000 to U+FFFF, although their UTF-8 bytes sort after. Everything else is the
 * same in both orders.
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

/** Moves the surrogates above all other units and leaves the rest in order. */
function byteRank(unit: number): number {
  if (unit < 0xd800) return unit;
  return unit < 0xe000 ? unit + 0x2000 : unit - 0x800;
}
