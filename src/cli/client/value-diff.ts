import { isUtf8 } from "node:buffer";
import { styleText } from "node:util";
import { structuredPatch } from "diff";
import type { StoredObject } from "../../model/object.ts";
import { bytesOf, printableText } from "../output/printable.ts";

/** An object at one revision. */
export interface DiffSide {
  readonly revision: number;
  /** Undefined: it does not exist. */
  readonly object: StoredObject | undefined;
}

/** Number of unchanged lines around each change. */
const contextLines = 3;

/** Time after which two values count as completely different, in milliseconds. */
const timeoutMs = 5_000;

/** The difference of two values in unified format, line by line; nothing if they are equal. */
export function* diffLines(
  key: string,
  before: DiffSide,
  after: DiffSide,
  hasColours: boolean,
): Generator<string, void, void> {
  const colour = (name: "bold" | "cyan" | "green" | "red", text: string): string =>
    hasColours ? styleText(name, text, { validateStream: false }) : text;
  if (before.object && after.object && hasSameBytes(before.object, after.object)) return;
  yield `${colour("bold", `--- ${titleOf(key, before)}`)}\n`;
  yield `${colour("bold", `+++ ${titleOf(key, after)}`)}\n`;
  const old = textOf(before);
  const newer = textOf(after);
  if (old === undefined || newer === undefined) {
    yield `The values are not text: ${sizeOf(before)} and ${sizeOf(after)}.\n`;
    return;
  }
  const options = { context: contextLines, timeout: timeoutMs };
  const patch = structuredPatch("", "", old, newer, "", "", options);
  if (patch === undefined) {
    yield `The values differ in too many lines: ${sizeOf(before)} and ${sizeOf(after)}.\n`;
    return;
  }
  if (patch.hunks.length === 0) yield "They are the same JSON, in another form.\n";
  for (const { oldStart, oldLines, newStart, newLines, lines } of patch.hunks) {
    const range = `-${rangeOf(oldStart, oldLines)} +${rangeOf(newStart, newLines)}`;
    yield `${colour("cyan", `@@ ${range} @@`)}\n`;
    for (const line of lines) {
      const shown = printableText(line);
      if (line.startsWith("+")) yield `${colour("green", shown)}\n`;
      else yield `${line.startsWith("-") ? colour("red", shown) : shown}\n`;
    }
  }
}

function titleOf(key: string, { revision, object }: DiffSide): string {
  const name = printableText(key);
  return object === undefined
    ? `${name} does not exist at revision ${revision}`
    : `${name} at revision ${revision}, last changed at ${object.modRevision}`;
}

/** As in unified format: an empty range begins behind the line before it. */
function rangeOf(start: number, lines: number): string {
  return `${lines === 0 ? start - 1 : start},${lines}`;
}

function sizeOf({ object }: DiffSide): string {
  return bytesOf(object?.valueBytes ?? 0);
}

function hasSameBytes(one: StoredObject, other: StoredObject): boolean {
  return Buffer.compare(one.value, other.value) === 0;
}

/** The value as lines of text, formatted if it is JSON; undefined if it is not text. */
function textOf({ object }: DiffSide): string | undefined {
  if (object === undefined) return "";
  if (!isUtf8(object.value)) return undefined;
  const text = Buffer.from(object.value).toString();
  const formatted = formattedJson(text) ?? text;
  return formatted === "" || formatted.endsWith("\n") ? formatted : `${formatted}\n`;
}

/** Depth above which JSON is not formatted: its indentation would be larger than the value. */
const maxDepth = 100;

const tokens = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s"{}[\],:]+/g;

/**
 * JSON with one member or element in a line; undefined if it is no JSON, or too deep. Numbers, texts and members that are
 * there twice stay as they are written.
 */
export function formattedJson(text: string): string | undefined {
  try {
    JSON.parse(text);
  } catch {
    return undefined;
  }
  let formatted = "";
  let depth = 0;
  let before = "";
  const newLine = (): string => `\n${"  ".repeat(depth)}`;
  for (const [token] of text.matchAll(tokens)) {
    const closes = token === "}" || token === "]";
    const isEmpty = closes && (before === "{" || before === "[");
    if (closes) depth--;
    if (closes && !isEmpty) formatted += newLine();
    else if (!closes && (before === "{" || before === "[" || before === ","))
      formatted += newLine();
    formatted += token === ":" ? ": " : token;
    if (token === "{" || token === "[") depth++;
    if (depth > maxDepth) return undefined;
    before = token;
  }
  return formatted;
}
