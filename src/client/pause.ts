import type { Clock } from "../clock.ts";

/** Resolves after `delayMs`, or at once when one of the signals is aborted. */
export function pause(
  clock: Clock,
  delayMs: number,
  ...signals: readonly (AbortSignal | undefined)[]
): Promise<void> {
  return new Promise((resolve) => {
    if (signals.some((signal) => signal?.aborted === true)) return resolve();
    const done = (): void => {
      timer.cancel();
      for (const signal of signals) signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = clock.setTimeout(done, delayMs);
    for (const signal of signals) signal?.addEventListener("abort", done);
  });
}
