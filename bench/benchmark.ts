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
  readonly met: boolean;
}

export interface Ratio {
  /** Beside what. */
  readonly of: string;
  readonly value: number;
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
