import { textOf } from "../protobuf/text.ts";
import { Attributes, noAttributes } from "../selector/attributes.ts";
import { type Codec, CodecError, type CodecProblem, defaultLabelsPath } from "./codec.ts";
import { JsonMasks } from "./json-mask.ts";
import { afterScalar, afterSpace, afterString, afterValue, keyOf } from "./json-text.ts";
import { parseFieldPath, parsePath } from "./path.ts";
import type { ValueMask } from "./value-mask.ts";

export interface JsonCodecOptions {
  /** The path of the object whose members are the labels. Default: `metadata.labels`. */
  readonly labels?: string | undefined;
  /** The paths of the fields. Default: none. */
  readonly fields?: readonly string[] | undefined;
}

interface Field {
  readonly name: string;
  readonly steps: readonly string[];
}

/**
 * Attributes of values that are JSON (RFC 8259) in UTF-8.
 *
 * A path consists of keys; in an array, of indexes from 0. A field is a string, `true` or `false`, or a number as
 * JavaScript writes it (`1.0` and `1e0` are `1`). Numbers beyond ±2^53 keep their text, as a double would make
 * different identifiers equal. Anything else (null, an object, an array, nothing) is an absent field. If a key occurs
 * twice, the last one counts.
 *
 * Labels are the members that are strings; others are left out, as Kubernetes has no other labels.
 */
export class JsonCodec implements Codec {
  readonly name = "json";
  readonly hasAttributes = true;
  readonly declaredFields: ReadonlySet<string>;
  readonly #labels: readonly string[];
  readonly #fields: readonly Field[];
  readonly #masks = new JsonMasks();

  /** Throws a CodecError for an invalid path. */
  constructor({ labels = defaultLabelsPath, fields = [] }: JsonCodecOptions = {}) {
    const problems: CodecProblem[] = [];
    const labelsPath = parsePath(labels);
    if (labelsPath.problem !== undefined) {
      problems.push({ at: ["labels"], message: labelsPath.problem });
    }
    const parsed = new Map<string, Field>();
    for (const [index, name] of fields.entries()) {
      const path = parseFieldPath(name);
      if (path.problem === undefined) parsed.set(name, { name, steps: path.steps });
      else problems.push({ at: ["fields", index], message: path.problem });
    }
    if (labelsPath.problem !== undefined || problems.length > 0) throw new CodecError(problems);
    this.declaredFields = new Set(parsed.keys());
    this.#labels = labelsPath.steps;
    this.#fields = [...parsed.values()];
  }

  maskOf(paths: readonly string[]): ValueMask {
    return this.#masks.of(paths);
  }

  attributesOf(value: Uint8Array): Attributes | undefined {
    let text: string | undefined;
    let root: unknown;
    try {
      text = textOf(value);
      if (text === undefined) return undefined;
      root = JSON.parse(text);
    } catch {
      // A SyntaxError, or any other error of the engine for a text that is too long or too deeply nested.
      return undefined;
    }
    const labels = labelsIn(memberAt(root, this.#labels));
    const fields = new Map<string, string>();
    for (const { name, steps } of this.#fields) {
      const field = scalarText(memberAt(root, steps), text, steps);
      if (field !== "") fields.set(name, field);
    }
    return labels.size + fields.size === 0 ? noAttributes : new Attributes(labels, fields);
  }
}

const arrayIndex = /^(?:0|[1-9]\d*)$/;

/**
 * Returns the part of a parsed value that a path leads to; undefined if it leads nowhere. Follows own members only, so
 * neither `__proto__` nor `length` leads anywhere unless the value has such a key.
 */
export function memberAt(root: unknown, steps: readonly string[]): unknown {
  let value = root;
  for (const step of steps) {
    if (typeof value !== "object" || value === null) return undefined;
    const exists = Array.isArray(value) ? arrayIndex.test(step) : Object.hasOwn(value, step);
    if (!exists) return undefined;
    value = (value as Readonly<Record<string, unknown>>)[step];
  }
  return value;
}

/** Returns the members that are strings. */
export function labelsIn(value: unknown): ReadonlyMap<string, string> {
  const labels = new Map<string, string>();
  if (typeof value !== "object" || value === null || Array.isArray(value)) return labels;
  for (const [key, label] of Object.entries(value)) {
    if (typeof label === "string") labels.set(key, label);
  }
  return labels;
}

/** Returns the empty string for anything but a scalar. */
function scalarText(value: unknown, json: string, steps: readonly string[]): string {
  switch (typeof value) {
    case "string":
      return value;
    case "boolean":
      return String(value);
    case "number":
      return Math.abs(value) <= Number.MAX_SAFE_INTEGER
        ? String(value)
        : sourceOfNumber(json, steps);
    default:
      return "";
  }
}

/**
 * Returns the text of the number at the end of `steps` in `json`, which has been parsed before, so the number exists.
 * Works without recursion, so any depth is possible. Why not with the reviver of `JSON.parse`:
 * docs/decisions/values.md.
 */
function sourceOfNumber(json: string, steps: readonly string[]): string {
  let at = afterSpace(json, 0);
  for (const step of steps) {
    at = json[at] === "[" ? elementStart(json, at, Number(step)) : memberStart(json, at, step);
  }
  // A substring would keep the whole text alive.
  return Buffer.from(json.slice(at, afterScalar(json, at)), "latin1").toString("latin1");
}

/** Returns the start of an element of the array at `at`. */
function elementStart(json: string, at: number, index: number): number {
  let element = afterSpace(json, at + 1);
  for (let i = 0; i < index; i++) {
    const comma = afterSpace(json, afterValue(json, element));
    element = afterSpace(json, comma + 1);
  }
  return element;
}

/** Returns the start of the value of the last member with this key, of the object at `at`. */
function memberStart(json: string, at: number, wanted: string): number {
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
