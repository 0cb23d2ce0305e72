import { objectNotFound } from "../../base/errors.ts";
import { oneStep } from "../../base/event-loop-turns.ts";
import { objectShown, viewBytes } from "../../cacher/request/request.ts";
import type { StoredObject } from "../../model/object.ts";
import { encodedSize } from "../../model/object-encoding.ts";
import type { GetResult, ListResult } from "../../storage/storage.ts";
import {
  encodeItems,
  encodeListResponse,
  encodeObjectResponse,
  type PageHead,
  sizeOf,
  withStaleness,
} from "../../wire/encode.ts";
import type { GetRequest__Output } from "../../wire/generated/watchfanout/v1/GetRequest.ts";
import type { ListRequest__Output } from "../../wire/generated/watchfanout/v1/ListRequest.ts";
import type { WatchRequest__Output } from "../../wire/generated/watchfanout/v1/WatchRequest.ts";
import { expectedObjectBytes } from "../calls/call-admission.ts";
import type { Encode, MethodHandler, ServiceMethods, UnaryMethod } from "../calls/methods.ts";
import type { UnaryContext } from "../calls/service-context.ts";
import type { ServedResource } from "../calls/service-options.ts";
import { batchGetMethod } from "./batch-get-method.ts";
import { type CompressPage, pageCompression } from "./compressed-frames.ts";
import { historyMethod } from "./history-method.ts";
import { inHistory } from "./in-history.ts";
import { encodePageToken, pageTokenSize } from "./page-token.ts";
import {
  accessOfGet,
  accessOfList,
  listIdentity,
  type ParsedList,
  parseGet,
  parseList,
  resourceNamed,
  stalenessOf,
} from "./parse-requests.ts";
import { viewOf, viewOfList } from "./parse-view.ts";
import { resourcesMethod } from "./resources.ts";

/** Maximum size of a page, in bytes: below 4 MiB, the default maximum of gRPC clients. */
const maxPageBytes = 4 * 1024 ** 2 - 1024;

/** Lists, and values of a view, up to this size, in bytes, are read at once, which takes less than to queue them. */
const leastSliced = 1024;

/** The methods of watchfanout.v1.ListWatchService. `watch` handles the calls of Watch, which have a stream of responses. */
export function listWatchMethods(
  context: UnaryContext,
  watch: MethodHandler<WatchRequest__Output>,
): ServiceMethods {
  return {
    Get: {
      kind: "reads",
      access: accessOfGet,
      perform: async (request, call) => {
        const resource = resourceNamed(context, call, request.resource);
        const { signal, owner } = call;
        const get = { ...parseGet(request), signal, owner };
        const view = viewOf(resource, request);
        call.retain(call.requestBytes + viewBytes(view));
        const read = async (): Promise<GetResult> => {
          const reached = await resource.reach?.(get);
          const valueBytes = resource.valueBytes?.(get.key) ?? 0;
          const wait = call.admit(Math.max(valueBytes, expectedObjectBytes));
          if (wait !== undefined) await wait;
          return resource.get(get, reached);
        };
        const found = await inHistory(resource, request.history_id, signal, read);
        const { historyId, result } = found;
        const { revision, object } = result;
        if (object === undefined) throw objectNotFound(request.key, revision);
        // It takes 10 ms for 1 MiB, so callers take turns.
        const isLarge = typeof view !== "string" && object.valueBytes > leastSliced;
        const shown = isLarge
          ? await call.runInTimeSlices(oneStep(() => objectShown(object, view)))
          : objectShown(object, view);
        return () => {
          const response = encodeObjectResponse(revision, shown, historyId);
          const staleForMs = stalenessOf(resource, get.at);
          return staleForMs === undefined ? response : withStaleness(response, staleForMs);
        };
      },
    } satisfies UnaryMethod<GetRequest__Output>,
    List: {
      kind: "reads",
      access: accessOfList,
      perform: async (request, call) => {
        const resource = resourceNamed(context, call, request.resource);
        const { signal, owner } = call;
        call.retain(call.requestBytes);
        const parse = (): ParsedList => parsed(resource, request);
        // Selectors and a shard may be so long that many of them at once would delay other calls.
        const large = call.requestBytes > leastSliced;
        const { list, historyId: known } = large
          ? await call.runInTimeSlices(oneStep(parse))
          : parse();
        const { selection, shard, view } = list;
        const parsedBytes = (selection?.bytes ?? 0) + (shard?.bytes ?? 0) + viewBytes(view);
        call.retain(call.requestBytes + parsedBytes);
        const page = { ...list, signal, owner };
        const read = async (): Promise<ListResult> => {
          const reached = await resource.reach?.(page);
          const wait = call.admit(list.countOnly === true ? expectedObjectBytes : maxPageBytes);
          if (wait !== undefined) await wait;
          return resource.list(page, reached);
        };
        const { historyId, result } = await inHistory(resource, known, signal, read);
        const compressing = pageCompression(result, call, context.compressor);
        const compress = compressing && (await compressing);
        const staleFor = () => stalenessOf(resource, list.at);
        return () => encodePage(result, historyId, request, staleFor(), compress);
      },
    } satisfies UnaryMethod<ListRequest__Output>,
    BatchGet: batchGetMethod(context),
    Watch: watch,
    History: historyMethod(context),
    Resources: resourcesMethod(context),
  };
}

function parsed(resource: ServedResource, request: ListRequest__Output): ParsedList {
  const { label_selector, field_selector } = request;
  const selection = resource.select(label_selector, field_selector);
  return parseList(request, selection, viewOfList(resource, request), maxPageBytes);
}

/**
 * Encodes the page, or the items of it that fit one message. A Storage bounds pages by the estimated size of objects,
 * which may be less than their encoded size if keys are long and not ASCII.
 */
function encodePage(
  result: ListResult,
  historyId: string,
  request: ListRequest__Output,
  staleForMs: number | undefined,
  compress: CompressPage | undefined,
): ReturnType<Encode> {
  const { revision, chunks = [result.items], remaining, next } = result;
  const head = (startAfter: string | undefined, cut: number): PageHead => ({
    revision,
    nextPageToken:
      startAfter === undefined
        ? ""
        : encodePageToken({ revision, historyId, startAfter }, listIdentity(request)),
    remaining: remaining === undefined ? undefined : remaining + cut,
    historyId,
    staleForMs,
  });
  const whole = encodeListResponse(head(next, 0), chunks.flatMap(encodeItems));
  if (sizeOf(whole) <= maxPageBytes) return compress?.(whole) ?? whole;
  // Not before: a page makes the array only when it is read.
  const { items } = result;
  if (items.length <= 1) return whole;
  const kept = fittingItems(items, historyId);
  return encodeListResponse(head(kept.at(-1)?.key, items.length - kept.length), encodeItems(kept));
}

/** The items that fit one message with the page token; at least the first. */
function fittingItems(items: readonly StoredObject[], historyId: string): readonly StoredObject[] {
  const historyBytes = Buffer.byteLength(historyId);
  let bytes = 0;
  let count = 0;
  for (const item of items) {
    bytes += encodedSize(item);
    const token = pageTokenSize(Buffer.byteLength(item.key), historyBytes);
    if (count > 0 && bytes + token > maxPageBytes) break;
    count++;
  }
  // If all items fit and only the token does not, the last item is left out, which makes another token.
  return items.slice(0, Math.min(count, items.length - 1));
}
