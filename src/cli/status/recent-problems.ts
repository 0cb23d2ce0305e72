import type { Problem } from "../../server/admin/status/status.ts";
import { cutText } from "../output/printable.ts";

/** Number of different lines that are kept, and the maximum length of each, in UTF-16 code units. */
const maxProblems = 50;
const maxLength = 400;

const levels: readonly Problem["level"][] = ["warn", "error", "fatal"];

/** A number that is not part of a name, such as a port or a duration, but not the 1 of "r1". */
const number = /(?<![\p{L}\p{N}_-])\d+(?:\.\d+)*/gu;

/** The last lines of the log of level warn or above. Those that differ in numbers only are one, with their count. */
export class RecentProblems {
  /** By `keyOf`, the one that was repeated last at the end. */
  readonly #problems = new Map<string, Problem>();

  /** Adds a line of the log if its level is high enough. `textOf` makes its text, without time and level. */
  offer(line: { readonly level: string; readonly time: string }, textOf: () => string): void {
    const { time } = line;
    const level = levels.find((each) => each === line.level);
    if (level === undefined) return;
    const text = cutText(textOf(), maxLength);
    addTo(this.#problems, { at: time, firstAt: time, count: 1, level, text });
    const [oldest] = this.#problems.keys();
    if (this.#problems.size > maxProblems && oldest !== undefined) this.#problems.delete(oldest);
  }

  /** The newest first. */
  get newest(): readonly Problem[] {
    return [...this.#problems.values()].reverse();
  }
}

/** The newest problems of several processes. */
export function newestOf(all: readonly (readonly Problem[])[]): readonly Problem[] {
  const merged = new Map<string, Problem>();
  for (const problem of all.flat().sort((a, b) => (a.at < b.at ? -1 : 1))) addTo(merged, problem);
  return [...merged.values()].reverse().slice(0, maxProblems);
}

/** Adds a problem that is newer than the others, and is one with an earlier one if only numbers differ. */
function addTo(problems: Map<string, Problem>, problem: Problem): void {
  const key = `${problem.level} ${problem.text.replace(number, "#")}`;
  const before = problems.get(key);
  // To the end.
  problems.delete(key);
  const { at, text } = problem;
  problems.set(
    key,
    before === undefined
      ? problem
      : {
          ...{ ...before, at, text, count: before.count + problem.count },
          firstAt: before.firstAt < problem.firstAt ? before.firstAt : problem.firstAt,
        },
  );
}
