import type { Clock } from "../../base/clock.ts";
import type { RateLimiter } from "./rate-limiter.ts";

export interface WorkQueueOptions<K> {
  /** Under which name the queue has metrics and spans. Without one it has no metrics. */
  readonly name?: string | undefined;
  /**
   * What tells keys apart, as a Map does: of `{ namespace, name }` for example `${namespace}/${name}`. Needed
   * where keys are objects; of all others the default is the key itself.
   */
  readonly keyOf?: ((key: K) => unknown) | undefined;
  /** Says when a key that failed comes again. Default: `defaultControllerRateLimiter()`. */
  readonly rateLimiter?: RateLimiter | undefined;
  /**
   * How many different keys the queue may know at once, those that wait, that wait for their time and that are
   * being worked on. One more is refused with a WorkQueueFullError; a key that is known always gets in, so that
   * a worker can always put its own back. Default 1,000,000.
   */
  readonly maxKeys?: number | undefined;
  /** Default: the machine's own time, which keeps the process alive while a key waits for its time. */
  readonly clock?: Clock | undefined;
}

/** A queue has as many different keys as it may know. What was added was not taken in. */
export class WorkQueueFullError extends Error {
  override readonly name = "WorkQueueFullError";
  readonly maxKeys: number;

  constructor(item: unknown, maxKeys: number) {
    super(
      `The work queue did not take in ${named(item)}: it knows ${maxKeys} keys already, all that it may. ` +
        "Do the workers keep up? Else raise maxKeys.",
    );
    this.maxKeys = maxKeys;
  }
}

/** A key as messages have it. */
export function named(item: unknown): string {
  return typeof item === "string" ? JSON.stringify(item) : String(item);
}
