/** One of the benchmarks that main.ts runs by name. */
export interface Benchmark {
  readonly name: string;
  /** The options that it takes, and what they are unless given. */
  readonly options: Readonly<Record<string, string>>;
  /** Whether it runs only when it is asked for by name. */
  readonly onlyByName?: true;
  /** Runs it, and tells people by `say`, line by line, what it sees. */
  run(settings: Settings, say: Say): Promise<Outcome>;
}

/** Tells people one line. */
export type Say = (line: string) => void;

/** What a benchmark found. */
export interface Outcome {
  /** Its part of the table at the end. */
  readonly rows: readonly Row[];
  /** All numbers, for scripts. */
  readonly results: unknown;
}

/** One line of the table at the end: one number of each server, how they compare, and what was aimed at. */
export interface Row {
  readonly what: string;
  readonly unit: string;
  readonly watchFanout: number;
  readonly etcd?: number | undefined;
  readonly grpcProxy?: number | undefined;
  /** watch-fanout's number beside others'. */
  readonly ratios: readonly Ratio[];
  readonly goal: string;
  /** undefined: what it would be compared with failed. */
  readonly met: boolean | undefined;
}

export interface Ratio {
  /** Beside what. */
  readonly of: string;
  readonly value: number;
}

/** The options of one run: whole numbers above 0, of which some options take several. */
export class Settings {
  readonly #values: ReadonlyMap<string, readonly number[]>;

  /** Several are separated by commas. Throws a UsageError of anything else. */
  constructor(values: ReadonlyMap<string, string>) {
    this.#values = new Map(
      Array.from(values, ([name, text]) => [
        name,
        text.split(",").map((one) => wholeNumber(name, one)),
      ]),
    );
  }

  /** The first, where several were given. */
  number(name: string): number {
    return this.#values.get(name)?.[0] ?? Number.NaN;
  }

  numbers(name: string): readonly number[] {
    return this.#values.get(name) ?? [];
  }
}

export class UsageError extends Error {}

function wholeNumber(name: string, text: string): number {
  const value = Number(text);
  if (Number.isSafeInteger(value) && value > 0) return value;
  throw new UsageError(`--${name}: ${JSON.stringify(text)} is not a whole number above 0.`);
}
