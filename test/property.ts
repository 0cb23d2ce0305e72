// biome-ignore lint/style/noRestrictedImports: this is the module that all others import instead.
import fc from "fast-check";

/**
 * fast-check with one seed, so that every run of `npm test` checks the same cases. `PROPERTY_SEED=random`, as set by
 * `npm run test:random`, checks other cases each time; a number repeats the cases of a failure.
 */
const seed = process.env["PROPERTY_SEED"] ?? "1";
if (seed !== "random") fc.configureGlobal({ seed: Number(seed) });

export default fc;
