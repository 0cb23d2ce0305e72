import { WatchFanoutError } from "../../base/errors.ts";

/** Sends a write that has a request id, until it is answered. `onUnknown` is called when an answer was lost. */
type SendRepeatedly<Response> = (onUnknown: (error: WatchFanoutError) => void) => Promise<Response>;

/**
 * Settles as a write does that is sent again, with the same request id, when its answer was lost.
 *
 * After a lost answer, most others say nothing about the request that was sent first: a refusal is one of the repetition
 * only. Even a condition that does not hold need not be final, since the first request may still be on its way to the store,
 * and arrive when the condition holds again. `settles` says of an answer or an error, which is not a success, whether the
 * first request can't have been applied, now or later. Otherwise this rejects with the first OUTCOME_UNKNOWN.
 */
export async function repeatedWrite<Response>(
  send: SendRepeatedly<Response>,
  hasSucceeded: (response: Response) => boolean,
  settles: (error: WatchFanoutError | undefined) => boolean,
): Promise<Response> {
  let unknown: WatchFanoutError | undefined;
  try {
    const response = await send((error) => {
      unknown ??= error;
    });
    if (unknown === undefined || hasSucceeded(response) || settles(undefined)) return response;
  } catch (error) {
    const isSettled = error instanceof WatchFanoutError && settles(error);
    if (unknown === undefined || isSettled || !(error instanceof WatchFanoutError)) throw error;
  }
  throw unknown;
}
