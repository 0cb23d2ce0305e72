import { WatchFanoutError } from "../../base/errors.ts";

/**
 * What was called was closed by whoever uses it. Otherwise a failure of its reason may pass; this one does not, so
 * that whoever tries again by itself leaves off.
 */
export class ClosedError extends WatchFanoutError {}
