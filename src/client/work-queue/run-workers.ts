import { SpanStatusCode, trace } from "@opentelemetry/api";
import { invalidRequest, toError } from "../../base/errors.ts";
import { emitWarning } from "../../base/warning.ts";
import type { RateLimiter } from "./rate-limiter.ts";
import type { WorkQueue } from "./work-queue.ts";

/** Options of `runWorkers`. */
export interface RunWorkersOptions<K> {
  /**
   * Aborting it stops the workers: they take no further keys and finish those in progress. Default: they run until
   * the queue is shut down.
   */
  readonly signal?: AbortSignal | undefined;
  /**
   * Called with what `work` throws, unless it only reports the stop, after the key was added again. If it throws, all
   * workers stop and `runWorkers` rejects with that. Default: a process warning.
   */
  readonly onError?: ((error: unknown, key: K) => void) | undefined;
  /** Determines when a failed key is added again. Default: that of the queue. */
  readonly rateLimiter?: RateLimiter | undefined;
}

/**
 * Processes the keys of the queue with `count` workers. If `work` throws, the key is added again after the delay of
 * the rate limiter; otherwise its failures are forgotten. `done` is called in any case.
 *
 * Resolves when the queue is shut down or the signal is aborted, and all work in progress has ended. The signal that
 * `work` receives is aborted when the workers stop, so that it can end early: to throw then is not a failure of the
 * key, which remains in the queue unless that is shut down.
 *
 * Each key is processed in its own OpenTelemetry span. Throws INVALID_REQUEST for a count that is not a whole number
 * of at least 1.
 */
export async function runWorkers<K extends NonNullable<unknown>>(
  count: number,
  queue: WorkQueue<K>,
  work: (key: K, signal: AbortSignal) => unknown,
  options: RunWorkersOptions<K> = {},
): Promise<void> {
  if (!Number.isSafeInteger(count) || count < 1) {
    throw invalidRequest("count", `count is ${count}: it must be a whole number, at least 1.`);
  }
  const { signal } = options;
  const stopping = new AbortController();
  const stop = (): void => stopping.abort(signal?.reason);
  if (signal?.aborted === true) stop();
  signal?.addEventListener("abort", stop);
  const workers = Array.from({ length: count }, async () => {
    try {
      await runWorker(queue, work, options, stopping.signal);
    } catch (error) {
      stopping.abort(error);
      throw error;
    }
  });
  const outcomes = await Promise.allSettled(workers);
  signal?.removeEventListener("abort", stop);
  for (const outcome of outcomes) if (outcome.status === "rejected") throw outcome.reason;
}

async function runWorker<K extends NonNullable<unknown>>(
  queue: WorkQueue<K>,
  work: (key: K, signal: AbortSignal) => unknown,
  options: RunWorkersOptions<K>,
  stopping: AbortSignal,
): Promise<void> {
  for (;;) {
    const key = await nextKey(queue, stopping);
    if (key === undefined) return;
    try {
      // The workers may have been stopped after the key was taken.
      if (stopping.aborted) queue.add(key);
      else await workOn(key, queue, work, options, stopping);
    } finally {
      queue.done(key);
    }
  }
}

/** Undefined when the worker must stop. */
async function nextKey<K extends NonNullable<unknown>>(
  queue: WorkQueue<K>,
  signal: AbortSignal,
): Promise<K | undefined> {
  try {
    return await queue.get({ signal });
  } catch (error) {
    if (signal.aborted) return undefined;
    throw error;
  }
}

async function workOn<K extends NonNullable<unknown>>(
  key: K,
  queue: WorkQueue<K>,
  work: (key: K, signal: AbortSignal) => unknown,
  options: RunWorkersOptions<K>,
  stopping: AbortSignal,
): Promise<void> {
  const { rateLimiter, onError = warn } = options;
  try {
    await inSpan(queue.name, key, () => work(key, stopping));
  } catch (error) {
    if (stopping.aborted) queue.add(key);
    else queue.addRateLimited(key, rateLimiter);
    if (!isAbort(error, stopping)) onError(error, key);
    return;
  }
  queue.forget(key, rateLimiter);
}

function inSpan(name: string, key: unknown, work: () => unknown): Promise<unknown> {
  const attributes = {
    queue: name,
    ...(typeof key === "string" ? { key } : {}),
  };
  const tracer = trace.getTracer("watch-fanout");
  return tracer.startActiveSpan("work on a key", { attributes }, async (span) => {
    try {
      return await work();
    } catch (error) {
      const thrown = toError(error);
      span.recordException(thrown);
      span.setStatus({ code: SpanStatusCode.ERROR, message: thrown.message });
      throw error;
    } finally {
      span.end();
    }
  });
}

/** Whether `error` only reports that `signal` was aborted. */
function isAbort(error: unknown, signal: AbortSignal): boolean {
  if (!signal.aborted) return false;
  return error === signal.reason || (error instanceof Error && error.name === "AbortError");
}

function warn(error: unknown, key: unknown): void {
  const why = error instanceof Error ? (error.stack ?? error.message) : String(error);
  emitWarning(`A worker failed at ${String(key)}, which will be retried: ${why}`);
}
