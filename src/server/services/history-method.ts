import { hasReason, invalidRequest } from "../../base/errors.ts";
import { type EventType, WatchEvent } from "../../model/event.ts";
import type { Access } from "../../policy/access.ts";
import type { HistoryRequest, HistoryResult } from "../../storage/storage.ts";
import { encodeHistoryResponse, eventSize, type HistoryEnd } from "../../wire/encode.ts";
import type { HistoryRequest__Output } from "../../wire/generated/watchfanout/v1/HistoryRequest.ts";
import type { UnaryMethod } from "../calls/methods.ts";
import type { UnaryContext } from "../calls/service-context.ts";
import type { ServedResource } from "../calls/service-options.ts";
import { inHistory } from "./in-history.ts";
import { decodePageToken, encodePageToken, pageSizeOf } from "./page-token.ts";
import { keyOf, resourceNamed, revisionOf } from "./parse-requests.ts";
import { isOfKeys } from "./parse-view.ts";

/** Maximum number of changes of a page, each of which may be a read of the store. */
const maxPageSize = 1_000;

/** Maximum size of the changes of a page, in bytes: below 4 MiB, the default maximum of gRPC clients. */
const maxPageBytes = 4 * 1024 ** 2 - 1024;

/** A page of a history as the storage is asked for it, and what is known from the pages before. */
interface ParsedHistory {
  readonly page: HistoryRequest;
  /** The request's history, or its page token's. */
  readonly historyId: string;
  /** The revision of the first page; undefined: this is the first. */
  readonly revision: number | undefined;
  /** The type of the last change of the pages before; undefined: they have no change. */
  readonly last: EventType | undefined;
}

/** The method History: a page of the changes of one object, from the store. */
export function historyMethod(context: UnaryContext): UnaryMethod<HistoryRequest__Output> {
  return {
    kind: "reads",
    access: accessOfHistory,
    perform: async (request, call) => {
      const resource = resourceNamed(context, call, request.resource);
      const { signal, owner } = call;
      const parsed = parseHistory(request);
      call.retain(call.requestBytes);
      const read = async (): Promise<HistoryResult> => {
        const wait = call.admit(maxPageBytes);
        if (wait !== undefined) await wait;
        return readPage(resource, parsed, { ...parsed.page, signal, owner });
      };
      const { historyId, result } = await inHistory(resource, parsed.historyId, signal, read);
      return () => [encodePage(request, parsed, result, historyId)];
    },
  };
}

function accessOfHistory({ resource, key }: HistoryRequest__Output): Access {
  return { verb: "get", resource, scope: { key } };
}

function parseHistory(request: HistoryRequest__Output): ParsedHistory {
  const { page_token: token, history_id } = request;
  const limit = pageSizeOf(request, maxPageSize);
  const revision = revisionOf("revision", request.revision);
  const page = {
    key: keyOf(request.key),
    upTo: revision === 0 ? undefined : revision,
    limit,
    maxBytes: maxPageBytes,
    keysOnly: isOfKeys(request.view),
  };
  if (token === "") return { page, historyId: history_id, revision: undefined, last: undefined };
  const position = decodePageToken(token, identityOf(request));
  const [type = "", first = ""] = position.startAfter.split(" ");
  return {
    page: { ...page, upTo: position.revision },
    historyId: position.historyId,
    revision: revisionOf("page_token", /^\d{1,16}$/.test(first) ? first : "0"),
    last: isEventType(type) ? type : undefined,
  };
}

function isEventType(text: string): text is EventType {
  return text === "ADDED" || text === "MODIFIED" || text === "DELETED";
}

/** The fields that must not change between pages. */
function identityOf({ resource, key, revision, history_id, view }: HistoryRequest__Output): string {
  return JSON.stringify(["history", resource, key, revision, history_id, view]);
}

/** Reads a page. One that follows another, and was compacted meanwhile, is the last one, and has no changes. */
async function readPage(
  resource: ServedResource,
  { revision }: ParsedHistory,
  page: HistoryRequest,
): Promise<HistoryResult> {
  if (resource.history === undefined) {
    throw invalidRequest("resource", "This resource has no histories.");
  }
  try {
    return await resource.history(page);
  } catch (error) {
    if (revision === undefined || !hasReason(error, "REVISION_TOO_OLD")) throw error;
    const oldestRevision = Number(error.metadata["oldest_revision"] ?? page.upTo);
    return { revision, events: [], next: undefined, oldestRevision, isLimited: false };
  }
}

/** Encodes the page, or the changes of it that fit one message. */
function encodePage(
  request: HistoryRequest__Output,
  { page, revision: first, last: lastBefore }: ParsedHistory,
  result: HistoryResult,
  historyId: string,
): Uint8Array {
  const revision = first ?? result.revision;
  const events = page.keysOnly === true ? result.events.map(withoutValue) : result.events;
  const { count, bytes } = fitting(events);
  const next = events[count]?.revision ?? result.next;
  const last = events[count - 1]?.type ?? lastBefore;
  return encodeHistoryResponse({
    ...{ revision, historyId, events: events.slice(0, count), eventsSize: bytes },
    nextPageToken:
      next === undefined
        ? ""
        : encodePageToken(
            { revision: next, historyId, startAfter: `${last ?? ""} ${revision}` },
            identityOf(request),
          ),
    end: next === undefined ? endOf(result, last) : undefined,
    oldestRevision: next === undefined ? (result.oldestRevision ?? 0) : 0,
  });
}

/** Why a history ends whose oldest change has this type; undefined: it has no changes. */
function endOf({ isLimited }: HistoryResult, oldest: EventType | undefined): HistoryEnd {
  if (isLimited) return "LIMIT";
  return oldest === undefined || oldest === "ADDED" ? "CREATION" : "COMPACTION";
}

function withoutValue({ type, object }: WatchEvent): WatchEvent {
  return new WatchEvent(type, object.withoutValue(), undefined);
}

/**
 * The number of changes that fit one message, at least one if there is any, and their encoded size. A Storage bounds them by
 * their estimated size, which is less if the key is long and not ASCII.
 */
function fitting(events: readonly WatchEvent[]): {
  readonly count: number;
  readonly bytes: number;
} {
  let bytes = 0;
  let count = 0;
  for (const event of events) {
    const size = eventSize(event);
    if (count > 0 && bytes + size > maxPageBytes) break;
    bytes += size;
    count++;
  }
  return { count, bytes };
}
