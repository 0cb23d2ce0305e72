/*
 * What texts cost to keep. V8 (node's JavaScript engine) keeps a text in one byte for each UTF-16 unit if all of
 * them are below 256, and in two bytes otherwise; and a part that was cut out of a longer text, from 13 units on,
 * as a reference that keeps the longer one alive.
 */

/** What is around the units of a text, in bytes: its map, hash and length, and padding. */
const headBytes = 20;

/** From this length on V8 does not copy what is cut out of a longer text. */
const leastSlice = 13;

/** How many bytes a text takes that stands by itself. */
export function textBytes(text: string): number {
  return headBytes + (isWide(text) ? 2 * text.length : text.length);
}

/** Whether a text takes two bytes for each UTF-16 unit. */
export function isWide(text: string): boolean {
  return wideUnit.test(text);
}

/** Of a text that is kept in one byte per unit the engine knows at once that this is not in there. */
const wideUnit = /[\u0100-\uffff]/;

/** The same text, which keeps no longer one alive that it was cut out of, nor parts that it was put together from. */
export function ownText(text: string): string {
  if (text.length < leastSlice) return text;
  const encoding = text.isWellFormed() ? "utf8" : "utf16le";
  return Buffer.from(text, encoding).toString(encoding);
}
