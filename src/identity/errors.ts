import { WatchFanoutError } from "../base/errors.ts";

/**
 * The credential of a call is missing, wrong or expired. `problem` is a sentence about the credential, `remedy` one that
 * says what to do. Neither has a part of the credential.
 */
export function unauthenticated(problem: string, remedy: string): WatchFanoutError {
  return new WatchFanoutError("UNAUTHENTICATED", `${problem} ${remedy}`);
}
