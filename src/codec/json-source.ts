/**
 * Returns the text of the number at the end of `steps` in `json`, which has been parsed before, so the number exists.
 * Works without recursion, so any depth is possible. Why not with the reviver of `JSON.parse`:
 * docs/decisions/json-numbers.md.
 */
export function sourceOfNumber(json: string, steps: readonly string[]): string {
  let at = afterSpace(json, 0);
  for (const step of steps) {
    at = json[at] === "[" ? elementAt(json, at, Number(step)) : memberAt(json, at, step);
  }
  // A substring would keep the whole text alive.
  return Buffer.from(json.slice(at, afterScalar(json, at)), "latin1").toString("latin1");
}

/** Returns the start of an element of the array at `at`. */
function elementAt(json: string, at: number, index: number): number {
  let element = afterSpace(json, at + 1);
  for (let i = 0; i < index; i++) {
    const comma = afterSpace(json, afterValue(json, element));
    element = afterSpace(json, comma + 1);
  }
  return element;
}

/** Returns the start of the value of the last member with this key, of the object at `at`. */
function memberAt(json: string, at: number, wanted: string): number {
  let found = at;
  let position = at;
  do {
    const key = afterSpace(json, position + 1);
    const keyEnd = afterString(json, key);
    const colon = afterSpace(json, keyEnd);
    const value = afterSpace(json, colon + 1);
    if (keyOf(json.slice(key, keyEnd)) === wanted) found = value;
    position = afterSpace(json, afterValue(json, value));
  } while (json[position] === ",");
  return found;
}

function keyOf(quoted: string): unknown {
  return quoted.includes("\\") ? JSON.parse(quoted) : quoted.slice(1, -1);
}

function afterValue(json: string, start: number): number {
  const first = json[start];
  if (first === '"') return afterString(json, start);
  if (first !== "{" && first !== "[") return afterScalar(json, start);
  let depth = 0;
  let at = start;
  do {
    const character = json[at];
    if (character === '"') {
      at = afterString(json, at);
      continue;
    }
    if (character === "{" || character === "[") depth++;
    else if (character === "}" || character === "]") depth--;
    at++;
  } while (depth > 0 && at < json.length);
  return at;
}

function afterString(json: string, start: number): number {
  let at = start + 1;
  while (at < json.length && json[at] !== '"') at += json[at] === "\\" ? 2 : 1;
  return at + 1;
}

function afterScalar(json: string, start: number): number {
  let at = start;
  while (at < json.length && !/[\s,\]}]/.test(json.charAt(at))) at++;
  return at;
}

function afterSpace(json: string, start: number): number {
  let at = start;
  while (/\s/.test(json.charAt(at))) at++;
  return at;
}
