import { textOf } from "../protobuf/text.ts";
import { afterSpace, afterString, afterValue, keyOf } from "./json-text.ts";
import { canonicalTree, type MaskTree, maskTree, type ValueMask } from "./value-mask.ts";

/**
 * The masks of values that are JSON. A masked value is an object with the named members, as they are in the value: numbers
 * keep their text, whatever their size. What contains a named member stays, if it is an object, even if it has nothing
 * else. A path that leads through anything but objects names nothing, as one that leads nowhere; so a value that is no
 * object becomes `{}`. If a key occurs twice, the last one counts.
 */
export class JsonMasks {
  /** The last value, and its text: one write is shown by several masks, one after another. */
  #value: Uint8Array | undefined;
  #text: string | undefined;

  /** The mask of these paths. Throws a MaskPathError. */
  of(paths: readonly string[]): ValueMask {
    const tree = maskTree(paths);
    return {
      canonical: canonicalTree(tree),
      apply: (value) => {
        const text = this.#textOf(value);
        return text === undefined ? undefined : Buffer.from(masked(text, tree));
      },
    };
  }

  /** The text of the value, if it is JSON. */
  #textOf(value: Uint8Array): string | undefined {
    const known = this.#value;
    if (
      known?.buffer !== value.buffer ||
      known.byteOffset !== value.byteOffset ||
      known.byteLength !== value.byteLength
    ) {
      this.#value = value;
      this.#text = jsonText(value);
    }
    return this.#text;
  }
}

function jsonText(value: Uint8Array): string | undefined {
  try {
    const text = textOf(value);
    if (text === undefined) return undefined;
    JSON.parse(text);
    return text;
  } catch {
    // A SyntaxError, or any other error of the engine for a text that is too long or too deeply nested.
    return undefined;
  }
}

function masked(json: string, tree: MaskTree): string {
  const root = afterSpace(json, 0);
  if (json[root] !== "{") return "{}";
  const texts: string[] = [];
  addTexts(cutObject(json, root, tree).members, texts);
  return texts.join("");
}

/** What is left of an object: by its name, how each key is written, and its value, or what is left of that. */
type Members = Map<string, readonly [key: string, value: string | Members]>;

/**
 * Cuts the members of the tree out of the object at `start`, of a text that is JSON. It reads each character once, and nests
 * as deep as a path may. `end`: the position behind the object.
 */
function cutObject(
  json: string,
  start: number,
  tree: MaskTree,
): { readonly members: Members; readonly end: number } {
  const members: Members = new Map();
  let at = afterSpace(json, start + 1);
  while (json[at] === '"') {
    const keyEnd = afterString(json, at);
    const key = json.slice(at, keyEnd);
    const name = keyOf(key);
    const from = afterSpace(json, afterSpace(json, keyEnd) + 1);
    const below = tree.get(name);
    const cut =
      below !== undefined && json[from] === "{" ? cutObject(json, from, below) : undefined;
    const end = cut?.end ?? afterValue(json, from);
    if (cut !== undefined) members.set(name, [key, cut.members]);
    else if (below !== undefined) members.delete(name);
    else if (tree.has(name)) members.set(name, [key, json.slice(from, end)]);
    at = afterSpace(json, end);
    if (json[at] === ",") at = afterSpace(json, at + 1);
  }
  return { members, end: at + 1 };
}

/** Adds the texts of an object, to be joined once: at each level they would be copied as often as the object nests. */
function addTexts(members: Members, texts: string[]): void {
  let before = "{";
  for (const [key, value] of members.values()) {
    texts.push(before, key, ":");
    if (typeof value === "string") texts.push(value);
    else addTexts(value, texts);
    before = ",";
  }
  texts.push(members.size === 0 ? "{}" : "}");
}
