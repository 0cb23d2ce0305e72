import { until as untilWithin } from "../../src/testing/until.ts";

/** As `until` of watch-fanout/testing, with the time that a busy machine may need. */
export const until: typeof untilWithin = (what, condition, options = { timeoutMs: 60_000 }) =>
  untilWithin(what, condition, options);
