import { isUtf8 } from "node:buffer";
import { afterSpace, afterString, afterValue, keyOf, openBrace } from "./json-text.ts";
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
  if (!isUtf8(value)) return undefined;
  try {
    const text = Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString("utf8");
    JSON.parse(text);
    return text;
  } catch {
    // A SyntaxError, or any other error of the engine for a text that is too long or too deeply nested.
    return undefined;
  }
}

function masked(json: string, tree: MaskTree): string {
  const root = afterSpace(json, 0);
  if (json.charCodeAt(root) !== openBrace) return "{}";
  const parts: string[] = [];
  writeObject(json, root, tree, parts);
  return parts.join("");
}

/** Appends the object at `start`, which is valid JSON, with the members of the tree. As deep as a path may be. */
function writeObject(json: string, start: number, tree: MaskTree, parts: string[]): void {
  parts.push("{");
  let separator = "";
  for (const [name, { key, from, to }] of membersOf(json, start, tree)) {
    const below = tree.get(name);
    if (below !== undefined && json.charCodeAt(from) !== openBrace) continue;
    parts.push(separator, key, ":");
    separator = ",";
    if (below === undefined) parts.push(json.slice(from, to));
    else writeObject(json, from, below, parts);
  }
  parts.push("}");
}

/** A member as it is written: its key, and the positions of its value. */
interface Member {
  readonly key: string;
  readonly from: number;
  readonly to: number;
}

/** The members that the tree names, of the object at `start`. */
function membersOf(json: string, start: number, tree: MaskTree): ReadonlyMap<string, Member> {
  const members = new Map<string, Member>();
  let at = afterSpace(json, start + 1);
  while (json[at] === '"') {
    const keyEnd = afterString(json, at);
    const key = json.slice(at, keyEnd);
    const from = afterSpace(json, afterSpace(json, keyEnd) + 1);
    const to = afterValue(json, from);
    const name = keyOf(key);
    if (tree.has(name)) members.set(name, { key, from, to });
    const next = afterSpace(json, to);
    if (json[next] !== ",") break;
    at = afterSpace(json, next + 1);
  }
  return members;
}
