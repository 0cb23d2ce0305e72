/** One of the benchmarks that main.ts runs by name. */
export interface Benchmark {
  readonly name: string;
  /** The options that it takes, and what they are unless given. */
  readonly options: Readonly<Record<string, string>>;
  /** Runs it, tells people by `say`, line by line, and resolves to the numbers for scripts. */
  run(settings: Settings, say: (line: string) => void): Promise<object>;
}

/** The options of one run. Each throws a UsageError for what is not a whole number above 0. */
export class Settings {
  readonly #values: ReadonlyMap<string, string>;

  constructor(values: ReadonlyMap<string, string>) {
    this.#values = values;
  }

  number(name: string): number {
    return wholeNumber(name, this.#values.get(name) ?? "");
  }

  /** Several, separated by commas. */
  numbers(name: string): number[] {
    const texts = (this.#values.get(name) ?? "").split(",");
    return texts.map((text) => wholeNumber(name, text));
  }
}

export class UsageError extends Error {}

function wholeNumber(name: string, text: string): number {
  const value = Number(text);
  if (Number.isSafeInteger(value) && value > 0) return value;
  throw new UsageError(`--${name}: ${JSON.stringify(text)} is not a whole number above 0.`);
}

/** The middle one, or the mean of the two in the middle; of an odd run it is not moved by. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length / 2;
  const low = sorted[Math.ceil(middle) - 1] ?? Number.NaN;
  const high = sorted[Math.floor(middle)] ?? Number.NaN;
  return (low + high) / 2;
}

/** A ratio for people. */
export function times(ratio: number): string {
  return `${ratio.toPrecision(ratio >= 100 ? 3 : 2)} ×`;
}

/** A line of a table: each cell on the right of its column. */
export function tableLine(cells: readonly string[], widths: readonly number[]): string {
  return cells.map((cell, i) => cell.padStart(widths[i] ?? 0)).join("  ");
}
