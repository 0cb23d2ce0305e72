import type { Clock } from "../../base/clock.ts";
import type { RateLimiter } from "./rate-limiter.ts";

/** Options of a WorkQueue. */
export interface WorkQueueOptions<K> {
  /** The name in metrics and spans. Without a name the queue has no metrics. */
  readonly name?: string | undefined;
  /**
   * Returns the identity of a key, compared as the keys of a Map: for `{ namespace, name }`, for example,
   * `${namespace}/${name}`. Required for keys that are objects. Default: the key itself.
   */
  readonly keyOf?: ((key: K) => unknown) | undefined;
  /** Determines when a failed key is added again. Default: `defaultControllerRateLimiter()`. */
  readonly rateLimiter?: RateLimiter | undefined;
  /**
   * Maximum number of distinct keys: queued, delayed and in progress. A further one is refused with a
   * WorkQueueFullError; a known key is always accepted, so that a worker can add its own key again. Default
   * 1,000,000.
   */
  readonly maxKeys?: number | undefined;
  /** Default: the system time, with timers that keep the process alive while a key is delayed. */
  readonly clock?: Clock | undefined;
}

/** The queue holds `maxKeys` distinct keys. The key was not added. */
export class WorkQueueFullError extends Error {
  override readonly name = "WorkQueueFullError";
  /** The bound of the queue. */
  readonly maxKeys: number;

  constructor(item: unknown, maxKeys: number) {
    super(
      `The work queue did not accept ${named(item)}: it already holds ${maxKeys} keys, its maximum. ` +
        "Check whether the workers keep up, or raise maxKeys.",
    );
    this.maxKeys = maxKeys;
  }
}

/** A key in an error message. */
export function named(item: unknown): string {
  return typeof item === "string" ? JSON.stringify(item) : String(item);
}
