import { SpanStatusCode, trace } from "@opentelemetry/api";
import { invalidRequest } from "../../base/errors.ts";
import type { RateLimiter } from "./rate-limiter.ts";
import type { WorkQueue } from "./work-queue.ts";

export interface RunWorkersOptions<K> {
  /**
   * Aborting it stops the workers: they take no more keys, and what they are at is theirs to finish. Default:
   * they work until the queue is shut down.
   */
  readonly signal?: AbortSignal | undefined;
  /**
   * Told of what `work` throws, other than for being stopped, once the key is on its way into the queue again. What it throws
   * itself stops all workers, and `runWorkers` rejects with it. Default: a warning of the process.
   */
  readonly onError?: ((error: unknown, key: K) => void) | undefined;
  /** Says when keys that failed come again. Default: the queue's own. */
  readonly rateLimiter?: RateLimiter | undefined;
}

/**
 * Works on the queue's keys, `count` of them at a time. A key for which `work` throws comes again when the rate
 * limiter lets it; one for which it does not is forgotten by the limiter. Whatever happens, the queue is told
 * that the key is done.
 *
 * Resolves once the queue is shut down or the signal is aborted, and all that had been begun has ended. The
 * signal that `work` gets is aborted when the workers are to stop, so that it may end early: to throw then is no
 * failure of the key, which stays in the queue, as far as that is open.
 *
 * Each key is worked on in a span of its own. Throws INVALID_REQUEST of a count that is not at least 1.
 */
export async function runWorkers<K extends NonNullable<unknown>>(
  count: number,
  queue: WorkQueue<K>,
  work: (key: K, signal: AbortSignal) => unknown,
  options: RunWorkersOptions<K> = {},
): Promise<void> {
  if (!Number.isSafeInteger(count) || count < 1) {
    throw invalidRequest("count", `${count} is no number of workers: 1 is the least.`);
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
      // The workers may have been told to stop between the key's coming and now.
      if (stopping.aborted) queue.add(key);
      else await workOn(key, queue, work, options, stopping);
    } finally {
      queue.done(key);
    }
  }
}

/** Undefined when the worker is to stop. */
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
      const thrown = error instanceof Error ? error : new Error(String(error));
      span.recordException(thrown);
      span.setStatus({ code: SpanStatusCode.ERROR, message: thrown.message });
      throw error;
    } finally {
      span.end();
    }
  });
}

/** Whether `error` says no more than that `signal` was aborted. */
function isAbort(error: unknown, signal: AbortSignal): boolean {
  if (!signal.aborted) return false;
  return error === signal.reason || (error instanceof Error && error.name === "AbortError");
}

function warn(error: unknown, key: unknown): void {
  const why = error instanceof Error ? (error.stack ?? error.message) : String(error);
  process.emitWarning(`A worker failed on ${String(key)}, which will come again: ${why}`);
}
