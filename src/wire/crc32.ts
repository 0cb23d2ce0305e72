/** The polynomial of CRC-32, reflected: the highest bit is the coefficient of x^0. */
const polynomial = 0xedb8_8320;
/** x^0. */
const one = 0x8000_0000;

/** The product of two polynomials modulo that of CRC-32. */
function product(a: number, b: number): number {
  let sum = 0;
  let shifted = b;
  for (let bit = one; bit !== 0; bit >>>= 1) {
    if ((a & bit) !== 0) sum ^= shifted;
    shifted = (shifted & 1) === 0 ? shifted >>> 1 : (shifted >>> 1) ^ polynomial;
  }
  return sum >>> 0;
}

/** x^(2^i) by i. They repeat after 32, since x^(2^32) is x^2 again for this polynomial's field. */
const squares: readonly number[] = (() => {
  const powers = [one >>> 1];
  while (powers.length < 32) {
    const last = powers.at(-1) as number;
    powers.push(product(last, last));
  }
  return powers;
})();

/** What the checksum of some bytes is multiplied by when `bytes` more follow them. */
export function crc32Shift(bytes: number): number {
  let shift = one;
  // Of each byte eight bits, 2^3.
  for (let rest = bytes, i = 3; rest > 0; rest >>>= 1, i++) {
    if ((rest & 1) === 1) shift = product(squares[i % squares.length] as number, shift);
  }
  return shift;
}

/** The checksum of some bytes and others that follow them, from the checksum of each, and the `crc32Shift` of the others. */
export function joinedCrc32(first: number, next: number, nextShift: number): number {
  return (product(nextShift, first) ^ next) >>> 0;
}
