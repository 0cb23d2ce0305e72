import { HistoryPage } from "../../storage/history-page.ts";
import type { HistoryRequest, HistoryResult } from "../../storage/storage.ts";
import type { ClientCalls } from "../watch/client-calls.ts";

/**
 * Reads a page of a history from another server. There a history is continued by a page token, here by a revision: so the
 * pages of the server are read until one has changes, or is the last.
 */
export async function readHistory(
  client: ClientCalls,
  resource: string,
  request: HistoryRequest,
): Promise<HistoryResult & { readonly historyId: string }> {
  const { key, upTo, limit, keysOnly, signal } = request;
  const view = keysOnly === true ? "KEYS" : "FULL";
  const joined = new HistoryPage(request);
  const options = { revision: upTo, pageSize: limit, view, signal } as const;
  for await (const page of client.history(resource, key, options)) {
    const { revision, historyId, events, nextPageToken, end, oldestRevision = revision } = page;
    for (const event of events) {
      if (!joined.add(event)) return { ...joined.continued(revision, event.revision), historyId };
    }
    if (nextPageToken === "") {
      return { ...joined.finished(revision, oldestRevision, end === "LIMIT"), historyId };
    }
    const last = events.at(-1);
    if (last !== undefined) return { ...joined.continued(revision, last.revision - 1), historyId };
  }
  throw new Error("A history has at least one page.");
}
