/** One of the benchmarks that main.ts runs by name. */
export interface Benchmark {
  readonly name: string;
  /** The options and their defaults. */
  readonly options: Readonly<Record<string, string>>;
  /** Whether it runs only when it is named on the command line. */
  readonly onlyByName?: true;
  /** Runs it, and prints its progress by `say`. */
  run(settings: Settings, say: Say): Promise<Outcome>;
}

/** Prints one line. */
export type Say = (line: string) => void;

/** The result of a benchmark. */
export interface Outcome {
  /** Its rows of the table at the end. */
  readonly rows: readonly Row[];
  /** All numbers, for scripts. */
  readonly results: unknown;
}

/** One row of the table at the end: a number for each server, their ratio, and the goal. */
export interface Row {
  readonly what: string;
  readonly unit: string;
  readonly watchFanout: number;
  readonly etcd?: number | undefined;
  readonly grpcProxy?: number | undefined;
  /** The number of watch-fanout beside the others. */
  readonly ratios: readonly Ratio[];
  readonly goal: string;
  /** Undefined if the measurement that it is compared with failed. */
  readonly met: boolean | undefined;
}

export interface Ratio {
  /** The name of what it is compared with. */
  readonly of: string;
  readonly value: number;
}

/** The options of one run: whole numbers above 0, or 0 where that is the default; some options take several. */
export class Settings {
  readonly #values: ReadonlyMap<string, readonly number[]>;

  /**
   * Parses numbers that are separated by commas. `mayBeNone`: the options that may be 0. Throws a UsageError for anything
   * else.
   */
  constructor(values: ReadonlyMap<string, string>, mayBeNone: ReadonlySet<string> = new Set()) {
    this.#values = new Map(
      Array.from(values, ([name, text]) => [
        name,
        text.split(",").map((one) => wholeNumber(name, one, mayBeNone.has(name) ? 0 : 1)),
      ]),
    );
  }

  /** The first number of an option. */
  number(name: string): number {
    return this.#values.get(name)?.[0] ?? Number.NaN;
  }

  numbers(name: string): readonly number[] {
    return this.#values.get(name) ?? [];
  }
}

export class UsageError extends Error {}

function wholeNumber(name: string, text: string, least: 0 | 1): number {
  const value = Number(text);
  if (text !== "" && Number.isSafeInteger(value) && value >= least) return value;
  const bound = least === 0 ? "" : " above 0";
  throw new UsageError(`--${name}: ${JSON.stringify(text)} is not a whole number${bound}.`);
}
