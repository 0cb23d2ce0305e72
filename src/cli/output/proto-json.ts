import type { ResourceInfo } from "../../client/resource-info.ts";
import type {
  AtomicBatch,
  HistoryPage,
  ObjectResult,
  Page,
} from "../../client/watch/client-calls.ts";
import type { WatchEvent } from "../../model/event.ts";
import type { ShownAttributes, StoredObject } from "../../model/object.ts";

/**
 * Messages of the wire contract as proto3 JSON: the proto's field names, 64-bit numbers as strings,
 * bytes as base64, enums by name. Fields without presence are always included, so that a script can rely on `.items` and
 * `.events`. One message is one line.
 */
export function objectResultJson(result: ObjectResult): string {
  return line({
    revision: String(result.revision),
    object: objectMessage(result.object),
    history_id: result.historyId,
    ...staleness(result),
  });
}

/** A page as a ListResponse. */
export function pageJson(page: Page): string {
  return line({
    revision: String(page.revision),
    items: page.items.map(objectMessage),
    next_page_token: page.nextPageToken,
    ...(page.remainingItemCount === undefined
      ? {}
      : { remaining_item_count: String(page.remainingItemCount) }),
    history_id: page.historyId,
    ...staleness(page),
  });
}

/** A page of a history as a HistoryResponse. */
export function historyPageJson(page: HistoryPage): string {
  return line({
    revision: String(page.revision),
    events: page.events.map(eventMessage),
    next_page_token: page.nextPageToken,
    history_id: page.historyId,
    end: `HISTORY_END_${page.end ?? "UNSPECIFIED"}`,
    oldest_revision: String(page.oldestRevision ?? 0),
  });
}

/** Resources as a ResourcesResponse. */
export function resourcesJson(resources: readonly ResourceInfo[]): string {
  return line({
    resources: resources.map((resource) => ({
      name: resource.name,
      codec: `CODEC_${(resource.codec ?? "unspecified").toUpperCase()}`,
      cached: resource.isCached,
      revision: String(resource.revision),
      history_id: resource.historyId,
      readable_in_full: resource.isReadableInFull,
      ...staleness(resource),
      fields: resource.fields,
      indexed_fields: resource.indexedFields,
      oldest_revision: String(resource.oldestRevision),
      views: resource.views.map((view) => `VIEW_${view}`),
    })),
    has_more: false,
  });
}

function staleness({ staleForMs }: { readonly staleForMs?: number | undefined }): object {
  return staleForMs === undefined ? {} : { stale_for: `${(staleForMs / 1_000).toFixed(3)}s` };
}

/**
 * A batch as WatchResponses: one, or several if it is larger than `maxBytes`. Only the last has the revision, as on the
 * wire. Each begins with `source`, which says what it is of if that may be several.
 */
export function* batchJson(
  batch: AtomicBatch,
  maxBytes: number = 4 * 1024 * 1024,
  source: object = {},
): Generator<string> {
  let events: WatchEvent[] = [];
  let bytes = 0;
  for (const event of batch.events) {
    if (events.length > 0 && bytes + event.estimatedBytes > maxBytes) {
      yield line({ ...source, ...responseMessage(batch, events, false) });
      events = [];
      bytes = 0;
    }
    events.push(event);
    bytes += event.estimatedBytes;
  }
  yield line({ ...source, ...responseMessage(batch, events, true) });
}

function responseMessage(
  batch: AtomicBatch,
  events: readonly WatchEvent[],
  closes: boolean,
): object {
  return {
    ...(closes ? { revision: String(batch.revision) } : {}),
    events: events.map(eventMessage),
    initial_events_end: closes && batch.initial,
    history_id: batch.historyId,
  };
}

function eventMessage(event: WatchEvent): object {
  return {
    type: `EVENT_TYPE_${event.type}`,
    object: objectMessage(event.object),
    ...(event.previous === undefined ? {} : { previous: objectMessage(event.previous) }),
  };
}

function objectMessage(object: StoredObject): object {
  return {
    key: object.key,
    value: Buffer.from(object.value).toString("base64"),
    create_revision: String(object.createRevision),
    mod_revision: String(object.modRevision),
    version: String(object.version),
    lease: String(object.lease),
    ...(object.attributes && attributesJson(object.attributes)),
  };
}

/** What a view shows in place of a value, as the fields of a StoredObject that only such an object has. */
export function attributesJson({ labels, fields, isUndecodable }: ShownAttributes): object {
  if (isUndecodable) return { undecodable: true };
  return { attributes: { labels: Object.fromEntries(labels), fields: Object.fromEntries(fields) } };
}

function line(message: object): string {
  return `${JSON.stringify(message)}\n`;
}
