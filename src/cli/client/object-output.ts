import type { CountResult, ObjectResult, Page } from "../../client/watch/client-calls.ts";
import type { StoredObject } from "../../model/object.ts";
import { type CommandIo, tableOptions } from "../output/command-io.ts";
import { printableBytes, printableText } from "../output/printable.ts";
import { attributesJson, objectResultJson, pageJson } from "../output/proto-json.ts";
import { Table } from "../output/table.ts";
import type { Format } from "./client-options.ts";
import type { Session } from "./client-session.ts";

function objectTable(io: CommandIo): Table {
  return new Table(["KEY", "REVISION", "VERSION", "VALUE"], tableOptions(io));
}

/** The value, or what the service sent in place of it, as JSON. */
export function shownBytes({ attributes, value }: StoredObject): Uint8Array {
  return attributes === undefined ? value : Buffer.from(JSON.stringify(attributesJson(attributes)));
}

function objectRow(object: StoredObject): string[] {
  return [
    printableText(object.key),
    String(object.modRevision),
    String(object.version),
    printableBytes(shownBytes(object)),
  ];
}

/** Prints one object. As `value`: exactly its bytes. */
export async function printObject(
  { output, io, say }: Session,
  format: Format,
  result: ObjectResult,
): Promise<void> {
  warnIfStale(say, result.staleForMs);
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
  { output, io, say }: Session,
  format: Format,
  pages: AsyncIterable<Page>,
): Promise<void> {
  const table = objectTable(io);
  for await (const page of pages) {
    warnIfStale(say, page.staleForMs);
    if (format === "json") await output.write(pageJson(page));
    else if (format === "table") await output.write(table.format(page.items.map(objectRow)));
    else for (const item of page.items) await printValueLine(output, item);
  }
}

/** Prints the number of objects. As JSON: a ListResponse. */
export async function printCount(
  { output, say }: Session,
  format: Format,
  { count, ...page }: CountResult,
): Promise<void> {
  warnIfStale(say, page.staleForMs);
  if (format !== "json") return output.write(`${count}\n`);
  await output.write(
    pageJson({ ...page, items: [], remainingItemCount: count, nextPageToken: "" }),
  );
}

function warnIfStale(say: Session["say"], staleForMs: number | undefined): void {
  if (staleForMs === undefined) return;
  const seconds = (staleForMs / 1_000).toFixed(1);
  say(`The server can't reach its own source: this may be ${seconds} s old.`);
}

export async function printValueLine(
  output: Session["output"],
  object: StoredObject,
): Promise<void> {
  await output.write(shownBytes(object));
  await output.write("\n");
}
