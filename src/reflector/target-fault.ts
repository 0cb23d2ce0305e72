/** Wraps an error that the target threw: it is not the storage's, so a retry does not help. */
export class TargetFault extends Error {}

/**
 * Calls the target.
 *
 * @throws TargetFault with the target's error as its cause
 */
export function callTarget<T>(call: () => T): T {
  try {
    return call();
  } catch (error) {
    throw targetFault(error);
  }
}

export function targetFault(cause: unknown): TargetFault {
  return new TargetFault("The target failed.", { cause });
}
