import { inspect } from "node:util";
import type { z } from "zod";
import type { OptionName } from "./options.ts";

/** A step towards a part of a value: the index of an element, or a key. */
export type Step = string | number;

/** The source of a value, as messages name it. `path` leads to a part of the value. */
export type Origin = (path?: readonly Step[]) => string;

/** The unchecked value of one option. */
export interface Setting {
  readonly value: unknown;
  readonly origin: Origin;
}

/** The unchecked values of the options that were given. */
export type Settings = ReadonlyMap<OptionName, Setting>;

/** Formats a path, for example `resources[0].prefix`. */
export function formatPath(path: readonly Step[]): string {
  return path
    .map((step) => (typeof step === "number" ? `[${step}]` : `.${step}`))
    .join("")
    .replace(/^\./, "");
}

/** The origin of a value that was given as text: its parts have names but no positions. */
export function textOrigin(source: string): Origin {
  return (path = []) => {
    const part = formatPath(path.filter((step) => typeof step === "string"));
    return part === "" ? source : `${source} (${part})`;
  };
}

/** An invalid value for a message: cut to 200 characters, without the password of a URL. */
export function showValue(value: unknown): string {
  const text =
    typeof value === "string"
      ? JSON.stringify(value.length > 200 ? `${value.slice(0, 200)}…` : value)
      : inspect(value, { depth: 2, breakLength: Number.POSITIVE_INFINITY, maxArrayLength: 10 });
  return text.replace(/\/\/[^/@\s]*@/g, "//(hidden)@");
}

/** A mapping in a file: what it is called, and the keys that it may have. */
export interface KnownMapping {
  readonly what: string;
  readonly keys: readonly string[];
}

/**
 * Turns an issue of zod into sentences. `place` names the source of a part of the value that was checked, `mappingAt` is the
 * mapping at a path, and `shown` is the invalid value.
 */
export function describeIssue(
  issue: z.core.$ZodIssue,
  place: (path: readonly Step[]) => string,
  mappingAt: (path: readonly Step[]) => KnownMapping,
  shown: string = showValue(issue.input),
): readonly string[] {
  const path = issue.path.filter((step) => typeof step !== "symbol");
  if (issue.code === "unrecognized_keys") {
    const { what, keys } = mappingAt(path);
    return issue.keys.map((key) => {
      const problem = `${what} has no such key. Its keys are ${keys.join(", ")}.`;
      return `${place([...path, key])}: ${problem}${didYouMean(key, keys)}`;
    });
  }
  if (issue.input === undefined) return [`${place(path)}: is missing.`];
  return [`${place(path)}: ${shown} ${issue.message}.`];
}

/**
 * The problems of a configuration. Each is a sentence that begins with the source of the value (a flag, a variable, or a
 * line and key of the file) and says what is accepted.
 */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(problems.join("\n"));
    this.problems = problems;
  }
}

/**
 * The name that is most similar to `text`; undefined if none is similar. At most a third of its letters, or one if that is
 * more, may be wrong, missing, superfluous or swapped with a neighbour.
 */
export function nearest(text: string, names: Iterable<string>): string | undefined {
  let best: string | undefined;
  let bestDistance = Math.max(1, Math.floor(text.length / 3)) + 1;
  for (const name of names) {
    if (Math.abs(name.length - text.length) >= bestDistance) continue;
    const distance = editDistance(text, name);
    if (distance < bestDistance) {
      best = name;
      bestDistance = distance;
    }
  }
  return best;
}

/** A question to append to a message about an unknown name; empty if no name is similar. */
export function didYouMean(text: string, names: Iterable<string>): string {
  const meant = nearest(text, names);
  return meant === undefined ? "" : ` Did you mean ${JSON.stringify(meant)}?`;
}

/** The optimal string alignment distance. Only the last two rows of the table are in memory. */
function editDistance(a: string, b: string): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1] ? 0 : 1;
      const steps = [at(last, j) + 1, at(row, j - 1) + 1, at(last, j - 1) + same];
      const swapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      if (swapped) steps.push(at(beforeLast, j - 2) + 1);
      row.push(Math.min(...steps));
    }
    beforeLast = last;
    last = row;
  }
  return at(last, b.length);
}

function at(row: readonly number[], index: number): number {
  return row[index] ?? Number.POSITIVE_INFINITY;
}
