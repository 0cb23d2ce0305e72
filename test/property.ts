// biome-ignore lint/style/noRestrictedImports: this is the module that all others import instead.
import fc from "fast-check";
import { isThorough } from "./thorough.ts";

/**
 * fast-check with one seed, so that every run of `npm test` checks the same cases. `PROPERTY_SEED=random`, as set by
 * `npm run test:random`, checks other cases each time; a number repeats the cases of a failure.
 */
const fixedSeed = "1";
const seed = process.env["PROPERTY_SEED"] ?? fixedSeed;
if (seed !== "random") fc.configureGlobal({ seed: Number(seed) });

/** A quarter of the cases that are the same on every run is checked; fewer where mutants are judged. */
const divisor = Number(process.env["PROPERTY_DIVISOR"] ?? 4);
/** Of costly cases a twelfth is checked, except in a thorough run. */
const costlyDivisor = isThorough ? divisor : Math.max(12, divisor);

/** The number of cases to check of `count`: all random ones, and a part of those that are the same on every run. */
export function runs(count: number): number {
  return seed === fixedSeed ? Math.ceil(count / divisor) : count;
}

/** The same for cases of which each opens files or connections, or makes many calls: a smaller part. */
export function costlyRuns(count: number): number {
  return seed === fixedSeed ? Math.ceil(count / costlyDivisor) : count;
}

export default fc;
