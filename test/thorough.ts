/**
 * Whether the tests do all that they do again and again, as `npm run test:thorough` demands, which CI runs: it runs the tests
 * that import this module or have costly cases, also those of the conformance suite of storages, all that run with the embedded
 * store, and the rows of the contract on a file. `npm test` does a part of it, so that it takes minutes.
 */
export const isThorough: boolean = (process.env["THOROUGH"] ?? "") !== "";

/** How often a test repeats something: `all` times in a thorough run, `some` times in others. */
export function rounds(all: number, some: number): number {
  return isThorough ? all : some;
}
