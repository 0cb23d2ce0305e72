import type { Clock } from "../clock.ts";

/** Resolves after `delayMs`, or at once when the signal is aborted. */
export function pause(
  clock: Clock,
  delayMs: number,
  signal: AbortSignal | undefined,
): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted === true) return resolve();
    const done = (): void => {
      timer.cancel();
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = clock.setTimeout(done, delayMs);
    signal?.addEventListener("abort", done);
  });
}
