import type { DeletePrefixResult, TransactionResult } from "../../client/calls/transaction.ts";
import type { ResourceInfo } from "../../client/resource-info.ts";
import type {
  AtomicBatch,
  CountResult,
  HistoryPage,
  ObjectResult,
  Page,
} from "../../client/watch/client-calls.ts";
import type { WatchEvent } from "../../model/event.ts";
import type { StoredObject } from "../../model/object.ts";
import { type CommandIo, tableOptions } from "../output/command-io.ts";
import { printableBytes, printableText } from "../output/printable.ts";
import { Table } from "../output/table.ts";
import type { ClientOptions } from "./client-options.ts";
import type { Session } from "./client-session.ts";
import { attributesJson, DecodedPrinter } from "./decoded/decoded-printer.ts";
import { isDecoded } from "./decoded/output-format.ts";
import { checkAge, type StaleOptions } from "./staleness.ts";

/** The options that say how objects are shown. */
interface ShownOptions extends ClientOptions, StaleOptions {
  readonly keysOnly?: true;
}

function objectTable(io: CommandIo): Table {
  return new Table(["KEY", "REVISION", "VERSION", "VALUE"], tableOptions(io));
}

/** The value, or what the service sent in place of it, as JSON. */
export function shownBytes({ attributes, value }: StoredObject): Uint8Array {
  return attributes === undefined ? value : Buffer.from(JSON.stringify(attributesJson(attributes)));
}

/** The columns from KEY on. */
export function objectRow(object: StoredObject): string[] {
  return [
    printableText(object.key),
    String(object.modRevision),
    String(object.version),
    printableBytes(shownBytes(object)),
  ];
}

/** Prints one object. As `value`: exactly its bytes. */
export async function printObject(
  session: Session,
  options: ShownOptions,
  result: ObjectResult,
): Promise<void> {
  const { output, io, say } = session;
  checkAge(say, result.staleForMs, options);
  const { resource, output: format } = options;
  if (isDecoded(format)) {
    const printer = await DecodedPrinter.open(session, { ...options, output: format }, [resource]);
    return printer.printObject(resource, result.object);
  }
  switch (format) {
    case "json":
      return output.write(objectResultJson(result));
    case "table":
      return output.write(objectTable(io).format([objectRow(result.object)]));
    case "value":
      await output.write(shownBytes(result.object));
      // So that the prompt begins on a new line.
      if (io.stdout.isTTY === true) await output.write("\n");
  }
}

/** Prints pages as they arrive. As `value`: each object's bytes, and a line end. */
export async function printPages(
  session: Session,
  options: ShownOptions,
  pages: AsyncIterable<Page> | Iterable<Page>,
): Promise<void> {
  const { output, io, say } = session;
  const { resource, output: format } = options;
  if (isDecoded(format)) {
    const printer = await DecodedPrinter.open(session, { ...options, output: format }, [resource]);
    return printer.printPages(resource, withWarnings(say, options, pages));
  }
  const table = objectTable(io);
  for await (const page of withWarnings(say, options, pages)) {
    if (format === "json") await output.write(pageJson(page));
    else if (format === "table") await output.write(table.format(page.items.map(objectRow)));
    else for (const item of page.items) await printValueLine(output, item);
  }
}

async function* withWarnings(
  say: Session["say"],
  options: StaleOptions,
  pages: AsyncIterable<Page> | Iterable<Page>,
): AsyncGenerator<Page, void, void> {
  for await (const page of pages) {
    checkAge(say, page.staleForMs, options);
    yield page;
  }
}

/** Prints the number of objects. As JSON: a ListResponse. */
export async function printCount(
  { output, say }: Session,
  options: ShownOptions,
  { count, ...page }: CountResult,
): Promise<void> {
  checkAge(say, page.staleForMs, options);
  if (options.output !== "json") return output.write(`${count}\n`);
  await output.write(
    pageJson({ ...page, items: [], remainingItemCount: count, nextPageToken: "" }),
  );
}

export async function printValueLine(
  output: Session["output"],
  object: StoredObject,
): Promise<void> {
  await output.write(shownBytes(object));
  await output.write("\n");
}

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

/** The outcome of a transaction as a TransactResponse. */
export function transactionJson(result: TransactionResult): string {
  return line({
    succeeded: result.succeeded,
    revision: String(result.revision),
    history_id: result.historyId,
    results: result.results.map(({ object }) => optionalObject(object)),
    compares: result.compares.map(({ held, object }) => ({ held, ...optionalObject(object) })),
  });
}

function optionalObject(object: StoredObject | undefined): object {
  return object === undefined ? {} : { object: objectMessage(object) };
}

/** The outcome of the deletion of a prefix as a DeletePrefixResponse. */
export function deletePrefixJson({ revision, deleted, historyId }: DeletePrefixResult): string {
  return line({
    revision: String(revision),
    deleted: String(deleted),
    history_id: historyId,
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

/** A message as a line of JSON. */
export function line(message: object): string {
  return `${JSON.stringify(message)}\n`;
}
