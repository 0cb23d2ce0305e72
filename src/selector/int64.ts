/*
 * Labels are compared with `>` and `<` as 64-bit integers, as Go's strconv.ParseInt reads them: an optional sign, then
 * decimal digits. A number can't hold these exactly, and a bigint per comparison would be garbage, so the digits are
 * compared.
 */

const largest = "9223372036854775807";
const mostNegative = "9223372036854775808";

const zero = 0x30;
const nine = 0x39;
const plus = 0x2b;
const minus = 0x2d;

/** Returns `text` as a 64-bit integer of at least 0, without sign or leading zeros; undefined if it is not one. */
export function naturalInt64(text: string): string | undefined {
  if (!(compareInt64(text, "0") >= 0)) return undefined;
  return text.replace(/^[+-]?0*(?=\d)/, "");
}

/**
 * Compares the 64-bit integer in `text` with `bound`, which is a result of naturalInt64: negative if it is less, 0 if
 * it is equal, positive if it is greater, NaN if `text` is not a 64-bit integer.
 */
export function compareInt64(text: string, bound: string): number {
  const sign = text.charCodeAt(0);
  const negative = sign === minus;
  let first = negative || sign === plus ? 1 : 0;
  if (first === text.length) return Number.NaN;
  for (let i = first; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit < zero || unit > nine) return Number.NaN;
  }
  while (first < text.length - 1 && text.charCodeAt(first) === zero) first++;
  if (compareDigits(text, first, negative ? mostNegative : largest) > 0) return Number.NaN;
  const isZero = text.charCodeAt(first) === zero;
  return negative && !isZero ? -1 : compareDigits(text, first, bound);
}

/** Compares the digits from `first` on with `digits`, both without leading zeros. */
function compareDigits(text: string, first: number, digits: string): number {
  const longer = text.length - first - digits.length;
  if (longer !== 0) return longer;
  for (let i = 0; i < digits.length; i++) {
    const difference = text.charCodeAt(first + i) - digits.charCodeAt(i);
    if (difference !== 0) return difference;
  }
  return 0;
}
