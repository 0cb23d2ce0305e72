/*
 * The memory that strings take. V8 stores a string in one byte per UTF-16 unit if all units are below 256, otherwise in
 * two bytes per unit. A substring of 13 units or more is a reference that keeps the longer string alive.
 */

/** Size of a string without its units, in bytes: map, hash, length and padding. */
const headBytes = 20;

/** Minimum length in units of a substring that V8 does not copy. */
const leastSlice = 13;

/** Size of a string that refers to no other one, in bytes. */
export function textBytes(text: string): number {
  return headBytes + (isWide(text) ? 2 * text.length : text.length);
}

/** Whether a string takes two bytes per UTF-16 unit. */
export function isWide(text: string): boolean {
  return wideUnit.test(text);
}

/** For a string of one byte per unit the engine skips this search. */
const wideUnit = /[\u0100-\uffff]/;

/** Returns an equal string that keeps alive neither a longer string nor the strings that it was concatenated from. */
export function ownText(text: string): string {
  if (text.length < leastSlice) return text;
  const encoding = text.isWellFormed() ? "utf8" : "utf16le";
  return Buffer.from(text, encoding).toString(encoding);
}

/** The first characters of a text, which keep it in memory no longer. A character that is cut becomes U+FFFD. */
export function startOf(text: string, maxLength: number): string {
  return ownText(text.slice(0, maxLength).toWellFormed());
}
