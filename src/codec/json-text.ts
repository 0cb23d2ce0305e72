/*
 * Positions in a text that is known to be JSON. They find a part of a value without making the rest of it, work without
 * recursion, so that any depth is possible, and see parts as they are written.
 */

const tab = 0x09;
const lineFeed = 0x0a;
const carriageReturn = 0x0d;
const space = 0x20;
const quote = 0x22;
const comma = 0x2c;
const openBracket = 0x5b;
const backslash = 0x5c;
const closeBracket = 0x5d;
const openBrace = 0x7b;
const closeBrace = 0x7d;

/** The key that is written as `quoted`. */
export function keyOf(quoted: string): string {
  return quoted.includes("\\") ? (JSON.parse(quoted) as string) : quoted.slice(1, -1);
}

/** The position behind the value at `start`. */
export function afterValue(json: string, start: number): number {
  const first = json.charCodeAt(start);
  if (first === quote) return afterString(json, start);
  if (first !== openBrace && first !== openBracket) return afterScalar(json, start);
  let depth = 0;
  let at = start;
  do {
    const code = json.charCodeAt(at);
    if (code === quote) {
      at = afterString(json, at);
      continue;
    }
    if (code === openBrace || code === openBracket) depth++;
    else if (code === closeBrace || code === closeBracket) depth--;
    at++;
  } while (depth > 0 && at < json.length);
  return at;
}

/** The position behind the text at `start`. */
export function afterString(json: string, start: number): number {
  for (let from = start + 1; ; ) {
    const end = json.indexOf('"', from);
    if (end < 0) return json.length;
    let slashes = 0;
    while (json.charCodeAt(end - 1 - slashes) === backslash) slashes++;
    if (slashes % 2 === 0) return end + 1;
    from = end + 1;
  }
}

/** The position behind the number or word at `start`. */
export function afterScalar(json: string, start: number): number {
  let at = start;
  while (at < json.length && !endsScalar(json.charCodeAt(at))) at++;
  return at;
}

function endsScalar(code: number): boolean {
  return code === comma || code === closeBrace || code === closeBracket || isSpace(code);
}

/** The position of what follows the space at `start`, if there is any. */
export function afterSpace(json: string, start: number): number {
  let at = start;
  while (isSpace(json.charCodeAt(at))) at++;
  return at;
}

function isSpace(code: number): boolean {
  return code === space || code === lineFeed || code === tab || code === carriageReturn;
}
