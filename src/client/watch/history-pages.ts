import { listedSlab, Slabs } from "../../model/slabs.ts";
import { checkSameHistory } from "../../storage/checks.ts";
import type { HistoryResponse__Output as WireResponse } from "../../wire/generated/watchfanout/v1/HistoryResponse.ts";
import { broken, decodeEvent, decodeRevision } from "../calls/decode.ts";
import type { HistoryPage } from "./client-calls.ts";
import { checkObject } from "./response-checks.ts";

/** Maximum number of consecutive pages without a change. */
const maxEmptyPages = 1_000;

const ends: Readonly<Record<string, HistoryPage["end"]>> = {
  HISTORY_END_CREATION: "CREATION",
  HISTORY_END_COMPACTION: "COMPACTION",
  HISTORY_END_LIMIT: "LIMIT",
};

/**
 * Decodes a page of the history of `key`, which was requested up to `requested`. Throws INTERNAL for changes of another key,
 * out of order, or above that revision, and for a last page without a reason.
 */
export function decodeHistoryPage(
  key: string,
  response: WireResponse,
  requested: number | undefined,
): HistoryPage {
  const { next_page_token: nextPageToken, history_id: historyId } = response;
  const slabs = new Slabs(listedSlab);
  const revision = decodeRevision(response.revision);
  const events = response.events.map((event) => decodeEvent(event, slabs));
  const isLast = nextPageToken === "";
  const end = isLast ? ends[response.end] : undefined;
  if (isLast && end === undefined) throw broken(`a history that ends for ${response.end}`);
  if (requested && requested !== revision) {
    throw broken(`a history up to ${revision} for one up to ${requested}`);
  }
  let last = revision + 1;
  for (const { object } of events) {
    checkObject(key, object, revision);
    if (object.modRevision >= last) {
      throw broken(`a change of revision ${object.modRevision} after that of ${last}`);
    }
    last = object.modRevision;
  }
  const oldestRevision = isLast ? decodeRevision(response.oldest_revision) : undefined;
  return { revision, events, nextPageToken, historyId, end, oldestRevision };
}

/** Checks that the pages of a history are of one state and make progress. */
export class JoinedHistory {
  #revision: number | undefined;
  /** The revision of the oldest change so far. */
  #last = Infinity;
  #historyId = "";
  #emptyPages = 0;

  /** Throws INTERNAL if the server violates the contract, HISTORY_CHANGED for a page of another history of the store. */
  check({ events, revision, historyId }: HistoryPage): void {
    this.#revision ??= revision;
    if (revision !== this.#revision) {
      throw broken(`a page up to revision ${revision} in a history up to ${this.#revision}`);
    }
    checkSameHistory(this.#historyId, historyId);
    if (historyId !== "") this.#historyId = historyId;
    const [first] = events;
    if (first === undefined) {
      if (++this.#emptyPages > maxEmptyPages) {
        throw broken(`more than ${maxEmptyPages} pages in a row without a change`);
      }
      return;
    }
    this.#emptyPages = 0;
    if (first.revision >= this.#last) {
      throw broken(`a change of revision ${first.revision} after that of ${this.#last}`);
    }
    this.#last = events.at(-1)?.revision ?? this.#last;
  }
}
