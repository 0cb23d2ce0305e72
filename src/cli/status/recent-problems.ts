import { z } from "zod";
import type { Problem } from "../../server/admin/status/status.ts";

/** Number of lines that are kept, and the maximum length of each, in UTF-16 code units. */
const maxProblems = 50;
const maxLength = 400;

const levels: Readonly<Record<string, Problem["level"]>> = {
  ...{ 40: "warn", 50: "error", 60: "fatal" },
  ...{ warn: "warn", error: "error", fatal: "fatal" },
};

const entry = z.looseObject({ level: z.union([z.number(), z.string()]), time: z.string() });

/** The last lines of the log of level warn or above. */
export class RecentProblems {
  readonly #problems: Problem[] = [];

  /** Adds a line of the log, as JSON, if its level is high enough. `format` makes its text, without time and level. */
  offer(line: string, format: (line: string) => string): void {
    const { level, time } = entry.parse(JSON.parse(line));
    const name = levels[level];
    if (name === undefined) return;
    const text = format(line);
    const shown = text.length <= maxLength ? text : `${text.slice(0, maxLength - 1)}…`;
    this.#problems.push({ at: time, level: name, text: shown });
    if (this.#problems.length > maxProblems) this.#problems.shift();
  }

  /** The newest first. */
  get newest(): readonly Problem[] {
    return this.#problems.toReversed();
  }
}

/** The newest problems of several processes. */
export function newestOf(all: readonly (readonly Problem[])[]): readonly Problem[] {
  const byTime = all.flat().sort((a, b) => (a.at < b.at ? 1 : -1));
  return byTime.slice(0, maxProblems);
}
