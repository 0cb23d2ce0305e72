import { objectNotFound } from "../../base/errors.ts";
import type { TimeSlicedWork } from "../../base/time-slices.ts";
import type { Selection } from "../../cacher/request/selection.ts";
import type { StoredObject } from "../../model/object.ts";
import type { ListResult } from "../../storage/storage.ts";
import {
  encodeItems,
  encodeListResponse,
  encodeObjectResponse,
  itemSize,
  type PageHead,
} from "../../wire/encode.ts";
import { sizeOf } from "../../wire/frame-parts.ts";
import type { GetRequest__Output } from "../../wire/generated/watchfanout/v1/GetRequest.ts";
import type { ListRequest__Output } from "../../wire/generated/watchfanout/v1/ListRequest.ts";
import type { CallContext, ServedResource } from "../calls/call-context.ts";
import type { ServiceHandlers } from "../calls/methods.ts";
import { unary } from "../calls/unary-call.ts";
import { expectedObjectBytes } from "../limits/expected-sizes.ts";
import { encodePageToken, pageTokenSize } from "./page-token.ts";
import {
  checkHistory,
  listIdentity,
  parseGet,
  parseList,
  resourceNamed,
} from "./parse-requests.ts";
import { watchHandler } from "./watch-handler.ts";

const service = "watchfanout.v1.ListWatchService";

/** How large a page becomes, in bytes: below 4 MiB, the most that a gRPC client takes by default. */
const maxPageBytes = 4 * 1024 ** 2 - 1024;

/** Below so many bytes the selectors of a request are read at once: that takes less than to wait for a turn. */
const leastSliced = 1024;

/** How the methods of watchfanout.v1.ListWatchService are served, by name. */
export function listWatchMethods(context: CallContext): ServiceHandlers {
  const { resources } = context;
  return {
    Get: unary<GetRequest__Output>(context, `${service}/Get`, async (request, call) => {
      const resource = resourceNamed(resources, request.resource);
      const { signal, connection: owner } = call;
      const admit = (): Promise<void> | undefined => call.admit(expectedObjectBytes);
      const get = { ...parseGet(request), signal, owner, admit };
      call.retain(call.requestBytes);
      const { revision, object } = await inHistory(resource, request.history_id, signal, () =>
        resource.get(get),
      );
      if (object === undefined) throw objectNotFound(request.key, revision);
      return () => encodeObjectResponse(revision, object, resource.currentHistoryId);
    }),
    List: unary<ListRequest__Output>(context, `${service}/List`, async (request, call) => {
      const resource = resourceNamed(resources, request.resource);
      const { signal, connection: owner } = call;
      call.retain(call.requestBytes);
      const large = call.requestBytes > leastSliced;
      const selection = large
        ? await context.parsingSelectors.run(owner, parsingSelectors(resource, request), signal)
        : resource.select(request.label_selector, request.field_selector);
      call.retain(call.requestBytes + (selection?.bytes ?? 0));
      const { list, historyId } = parseList(request, selection, maxPageBytes);
      const admit = (): Promise<void> | undefined => call.admit(maxPageBytes);
      const result = await inHistory(resource, historyId, signal, () =>
        resource.list({ ...list, signal, owner, admit }),
      );
      return () => encodePage(result, request, resource.currentHistoryId);
    }),
    Watch: watchHandler(context),
  };
}

/** Reads the selectors of a List, which may be so long that many of them in one turn would hold up others. */
// biome-ignore lint/correctness/useYield: it is one step.
function* parsingSelectors(
  resource: ServedResource,
  { label_selector, field_selector }: ListRequest__Output,
): TimeSlicedWork<Selection | undefined> {
  return resource.select(label_selector, field_selector);
}

/**
 * What `read` answers, if that is of the history called `known`; empty: of any. The history may become
 * another while it is read, so it is looked at before and after.
 */
async function inHistory<T>(
  resource: ServedResource,
  known: string,
  signal: AbortSignal,
  read: () => Promise<T>,
): Promise<T> {
  await resource.findHistory?.(signal);
  if (resource.ready) checkHistory(known, resource.currentHistoryId);
  const answer = await read();
  if (known !== "") await resource.findHistory?.(signal);
  checkHistory(known, resource.currentHistoryId);
  return answer;
}

/**
 * The page, or as much of it as fits a message. A Storage bounds pages by what objects cost to hold,
 * which for long keys beyond ASCII may be less than their encoding.
 */
function encodePage(
  result: ListResult,
  request: ListRequest__Output,
  historyId: string,
): readonly Uint8Array[] {
  const { revision, items, chunks = [items], remaining, next } = result;
  const head = (startAfter: string | undefined, cut: number): PageHead => ({
    revision,
    nextPageToken:
      startAfter === undefined
        ? ""
        : encodePageToken({ revision, historyId, startAfter }, listIdentity(request)),
    remaining: remaining === undefined ? undefined : remaining + cut,
    historyId,
  });
  const whole = encodeListResponse(head(next, 0), chunks.flatMap(encodeItems));
  if (sizeOf(whole) <= maxPageBytes || items.length <= 1) return whole;
  const kept = fittingItems(items, historyId);
  return encodeListResponse(head(kept.at(-1)?.key, items.length - kept.length), encodeItems(kept));
}

/** Of items that do not all fit one message, those that do, with the token that follows; the first at least. */
function fittingItems(items: readonly StoredObject[], historyId: string): readonly StoredObject[] {
  const historyBytes = Buffer.byteLength(historyId);
  let bytes = 0;
  let count = 0;
  for (const item of items) {
    bytes += itemSize(item);
    const token = pageTokenSize(Buffer.byteLength(item.key), historyBytes);
    if (count > 0 && bytes + token > maxPageBytes) break;
    count++;
  }
  // Where the token is what does not fit, one item less makes another.
  return items.slice(0, Math.min(count, items.length - 1));
}
