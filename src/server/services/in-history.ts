import { hasReason, upstreamUnavailable } from "../../base/errors.ts";
import type { GetResult } from "../../storage/storage.ts";
import type { ServedResource } from "../calls/service-options.ts";
import { checkHistory } from "./parse-requests.ts";

/**
 * Returns the result of `read` and its history. Throws HISTORY_CHANGED if that is not `known`; empty: any history. The
 * history may change during the read, so it is checked before and after. It may change again before the response is encoded.
 */
export async function inHistory<T extends Pick<GetResult, "historyId">>(
  resource: ServedResource,
  known: string,
  signal: AbortSignal,
  read: () => Promise<T>,
): Promise<{ readonly result: T; readonly historyId: string }> {
  const before = await historyOf(resource, signal);
  if (resource.ready) checkHistory(known, before);
  const result = await read().catch(async (error: unknown) => {
    // A page token of another history may name an object that this one does not have.
    const isOfToken = known !== "" && hasReason(error, "INVALID_REQUEST");
    if (isOfToken) checkHistory(known, await historyOf(resource, signal));
    throw error;
  });
  const historyId = result.historyId ?? (await historyOf(resource, signal));
  checkHistory(known, historyId);
  const isSame = before === "" || historyId === "" || historyId === before;
  if (isSame || result.historyId !== undefined) return { result, historyId };
  throw upstreamUnavailable("The store's history has changed during the read. Try again.");
}

/** The history that the resource has now. */
async function historyOf(resource: ServedResource, signal: AbortSignal): Promise<string> {
  return (await resource.findHistory?.(signal)) ?? resource.currentHistoryId;
}
