import { createRequire } from "node:module";
import type { JSONPathQuery } from "json-p3";
import { messageOf } from "../../../base/errors.ts";

/** A decoded document, or a part of it: as JSON, with `bigint` for whole numbers that a number can't hold. */
export type Json =
  | string
  | number
  | bigint
  | boolean
  | null
  | readonly Json[]
  | { readonly [name: string]: Json };

/** Maximum depth of a decoded value. Everything that reads documents may use recursion. */
export const maxValueDepth = 200;

/** Loaded with the first path: other commands start faster without it. */
const loadJsonPath = (): typeof import("json-p3") => createRequire(import.meta.url)("json-p3");

/** A path in kubectl's dialect, compiled. Evaluation only looks values up: it runs no code of the expression. */
export class JsonPath {
  readonly #query: JSONPathQuery;
  /** Whether it begins with `$`, and so at the root even where another value is current. */
  readonly isAbsolute: boolean;

  /** Throws an error whose message is a part of a sentence if `text` is no path. */
  constructor(text: string) {
    this.isAbsolute = text.startsWith("$");
    const { JSONPathEnvironment, JSONPathError } = loadJsonPath();
    // Documents have a few levels around a value.
    const environment = new JSONPathEnvironment({ maxRecursionDepth: maxValueDepth + 10 });
    try {
      this.#query = environment.compile(`$${standardPath(text.replace(/^[$@]/, ""))}`);
    } catch (error) {
      if (!(error instanceof JSONPathError)) throw error;
      throw new Error(`the path ${JSON.stringify(text)} is not valid: ${messageOf(error)}`);
    }
  }

  /** The values that the path leads to, in order; none if it leads nowhere. */
  valuesIn(document: Json): readonly Json[] {
    // The library declares mutable JSON without bigint, and only passes such values through.
    return this.#query.query(document as Parameters<JSONPathQuery["query"]>[0]).values() as Json[];
  }
}

/**
 * A path in kubectl's dialect as in RFC 9535. There, a name behind a dot has no dashes and no escapes: it is quoted here.
 */
function standardPath(text: string): string {
  if (text === ".") return "";
  // The dot before the first name may be left out.
  const path = /^[.[]|^$/.test(text) ? text : `.${text}`;
  let standard = "";
  let at = 0;
  while (at < path.length) {
    if (path[at] === "[") {
      const end = bracketEnd(path, at);
      standard += path.slice(at, end);
      at = end;
      continue;
    }
    const [, dots = "", name = ""] = /^(\.{0,2})((?:\\.|[^.[\\])*)/s.exec(path.slice(at)) ?? [];
    if (dots === "" || (name === "" && (dots === "." || path[at + 2] !== "["))) {
      throw new Error(`the path ${JSON.stringify(text)} has no name at its character ${at + 1}`);
    }
    standard += dots === ".." ? ".." : "";
    if (name !== "") {
      standard += name === "*" ? "[*]" : `[${JSON.stringify(name.replace(/\\(.)/gs, "$1"))}]`;
    }
    at += dots.length + name.length;
  }
  return standard;
}

/** The position behind the bracket that closes the one at `start`. */
function bracketEnd(path: string, start: number): number {
  const end = closingPosition(path, start, "[", "]");
  if (end === -1) throw new Error(`the path ${JSON.stringify(path)} has a [ without its ]`);
  return end + 1;
}

/** The position of what closes the bracket at `start`, outside of quotes; -1 if nothing does. */
export function closingPosition(text: string, start: number, open: string, close: string): number {
  let depth = 0;
  let quote = "";
  for (let at = start; at < text.length; at++) {
    const character = text[at] ?? "";
    if (character === "\\") at++;
    else if (quote !== "") quote = character === quote ? "" : quote;
    else if (character === '"' || character === "'") quote = character;
    else if (character === open) depth++;
    else if (character === close && --depth === 0) return at;
  }
  return -1;
}

/** A value as output shows it: a string as it is, anything else as JSON. */
export function textOf(value: Json): string {
  return typeof value === "string" ? value : jsonText(value);
}

/** A value as JSON, with all digits of large numbers. */
function jsonText(value: Json): string {
  if (typeof value === "bigint") return String(value);
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  if (isArray(value)) return `[${value.map(jsonText).join(",")}]`;
  const members = Object.entries(value).map(
    ([name, member]) => `${JSON.stringify(name)}:${jsonText(member)}`,
  );
  return `{${members.join(",")}}`;
}

function isArray(value: object): value is readonly Json[] {
  return Array.isArray(value);
}
