import { isUtf8 } from "node:buffer";
import { createReadStream } from "node:fs";
import { z } from "zod";
import { invalidRequest, messageOf } from "../../base/errors.ts";
import { compareKeys } from "../../model/key-order.ts";
import type { StoredObject } from "../../model/object.ts";

/**
 * The file of an export: lines of JSON. The first has the revision of everything behind it, the last the number of objects,
 * which a file that was cut off lacks. The objects are in the order of the header's resources, and of their keys. Resources
 * of one store, which have the same history, have the same revision.
 */
const format = "watch-fanout-export/1";

/** Maximum size of a line, in bytes: above a value of any store, as base64. */
const maxLineBytes = 128 * 1024 * 1024;

const header = z.strictObject({
  format: z.literal(format),
  resources: z
    .array(
      z.strictObject({ name: z.string().min(1), revision: z.int().min(1), history_id: z.string() }),
    )
    .min(1),
  prefix: z.string(),
});
export type ExportHeader = z.infer<typeof header>;

const exported = z.strictObject({
  resource: z.string(),
  key: z.string().min(1),
  value: z.string().optional(),
  value_base64: z.base64().optional(),
  create_revision: z.int(),
  mod_revision: z.int(),
  version: z.int(),
  lease: z.string().optional(),
});

const footer = z.strictObject({ end: z.literal(true), objects: z.int().min(0) });

/** An object of the file. */
export interface ExportedObject {
  readonly resource: string;
  readonly key: string;
  readonly value: Buffer;
  /** Whether it was attached to a lease. */
  readonly hasLease: boolean;
}

export function headerLine(fields: Omit<ExportHeader, "format">): string {
  return lineOf({ format, ...fields });
}

/** An object with its value as text if it is UTF-8, otherwise as base64: both are exact. */
export function objectLine(resource: string, object: StoredObject): string {
  const { key, value, createRevision, modRevision, version, lease } = object;
  const bytes = Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  return lineOf({
    resource,
    key,
    ...(isUtf8(bytes) ? { value: bytes.toString() } : { value_base64: bytes.toString("base64") }),
    create_revision: createRevision,
    mod_revision: modRevision,
    version,
    ...(lease === 0n ? {} : { lease: String(lease) }),
  });
}

export function footerLine(objects: number): string {
  return lineOf({ end: true, objects });
}

function lineOf(fields: object): string {
  return `${JSON.stringify(fields)}\n`;
}

/** What a whole file has. */
export interface ExportSummary extends ExportHeader {
  readonly objects: number;
  readonly leased: number;
}

/**
 * Reads the whole file, so that nothing of one that is cut off or damaged is imported. Rejects with INVALID_REQUEST, with
 * the line.
 */
export async function checkExport(path: string): Promise<ExportSummary> {
  const items = exportItems(path);
  const first = await items.next();
  if (first.done || !("format" in first.value)) throw fault(path, 1, "the file is empty");
  let objects = 0;
  let leased = 0;
  for await (const item of items) {
    objects++;
    if ("hasLease" in item && item.hasLease) leased++;
  }
  return { ...first.value, objects, leased };
}

/** The objects of a file, in order. Rejects with INVALID_REQUEST at the first line that is not valid. */
export async function* exportedObjects(path: string): AsyncGenerator<ExportedObject, void, void> {
  for await (const item of exportItems(path)) if ("key" in item) yield item;
}

/** The header and the objects of a file. The footer is checked. */
async function* exportItems(
  path: string,
): AsyncGenerator<ExportHeader | ExportedObject, void, void> {
  let number = 0;
  let head: ExportHeader | undefined;
  let count = 0;
  let isComplete = false;
  let last = { resource: 0, key: "" };
  for await (const line of linesOf(path)) {
    number++;
    if (isComplete) throw fault(path, number, "there is more behind the last line of the export");
    const parsed = parsedLine(path, number, line);
    if (head === undefined) {
      head = checked(path, number, header, parsed);
      yield head;
    } else if ("end" in parsed) {
      const { objects } = checked(path, number, footer, parsed);
      if (objects !== count) {
        throw fault(path, number, `the export had ${objects} objects, and the file has ${count}`);
      }
      isComplete = true;
    } else {
      const object = checked(path, number, exported, parsed);
      const resource = head.resources.findIndex(({ name }) => name === object.resource);
      const isBehind =
        resource > last.resource ||
        (resource === last.resource && (last.key === "" || compareKeys(object.key, last.key) > 0));
      if (resource === -1 || !isBehind || !object.key.startsWith(head.prefix)) {
        throw fault(path, number, `the object ${JSON.stringify(object.key)} is not in its place`);
      }
      last = { resource, key: object.key };
      count++;
      yield decoded(path, number, object);
    }
  }
  if (!isComplete) {
    throw fault(path, number, "the file ends without the last line of an export: it was cut off");
  }
}

function decoded(path: string, number: number, object: z.infer<typeof exported>): ExportedObject {
  const { resource, key, value, value_base64: base64, lease } = object;
  if ((value === undefined) === (base64 === undefined)) {
    throw fault(path, number, "an object has value or value_base64");
  }
  const bytes = value === undefined ? Buffer.from(base64 ?? "", "base64") : Buffer.from(value);
  return { resource, key, value: bytes, hasLease: lease !== undefined };
}

function parsedLine(path: string, number: number, line: Buffer): object {
  try {
    if (!isUtf8(line)) throw new Error("it is not UTF-8");
    const parsed: unknown = JSON.parse(line.toString());
    if (typeof parsed === "object" && parsed !== null) return parsed;
  } catch (error) {
    throw fault(path, number, `the line is not JSON: ${messageOf(error)}`);
  }
  throw fault(path, number, "the line is not an object");
}

function checked<T>(path: string, number: number, type: z.ZodType<T>, parsed: object): T {
  const result = type.safeParse(parsed);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  throw fault(path, number, `${issue?.path.join(".") || "the line"}: ${issue?.message}`);
}

/** The lines of a file, split at line feeds only: a text may have other separators of lines. */
async function* linesOf(path: string): AsyncGenerator<Buffer, void, void> {
  let parts: Buffer[] = [];
  let bytes = 0;
  const stream: AsyncIterable<Buffer> = createReadStream(path, { highWaterMark: 256 * 1024 });
  try {
    for await (const chunk of stream) {
      let start = 0;
      for (let end = chunk.indexOf(0x0a); end !== -1; end = chunk.indexOf(0x0a, start)) {
        parts.push(chunk.subarray(start, end));
        yield parts.length === 1 ? (parts[0] ?? chunk) : Buffer.concat(parts);
        parts = [];
        bytes = 0;
        start = end + 1;
      }
      parts.push(chunk.subarray(start));
      bytes += chunk.length - start;
      if (bytes > maxLineBytes) throw new Error(`a line has more than ${maxLineBytes} bytes`);
    }
  } catch (error) {
    throw invalidRequest("file", `${path} can't be read: ${messageOf(error)}.`);
  }
  if (bytes > 0) yield Buffer.concat(parts);
}

function fault(path: string, line: number, problem: string): Error {
  return invalidRequest("file", `${path}:${line}: ${problem}.`);
}
