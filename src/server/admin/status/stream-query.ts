import { z } from "zod";
import { parseGroupId, type StreamGroupKey } from "./stream-report.ts";

/** What streams can be sorted by. */
export const streamSorts = [
  ...(["age", "identity", "resource", "state", "scope", "lag", "buffer", "sent"] as const),
] as const;

export type StreamSort = (typeof streamSorts)[number];

/** What a stream is sorted by, and its id, which no other stream has. */
export interface StreamPosition {
  readonly key: string | number;
  readonly id: number;
}

/** Which streams of all are requested. */
export interface StreamQuery {
  readonly sort: StreamSort;
  readonly order: "asc" | "desc";
  /** In lower case; empty: all streams. */
  readonly search: string;
  /** Only those of one group; undefined: of all. */
  readonly group: StreamGroupKey | undefined;
  /** Maximum number of streams. */
  readonly limit: number;
  /** Only streams after this one; undefined: from the first. */
  readonly after: StreamPosition | undefined;
}

/** A query that can't be answered. The message is a sentence for the user. */
export class StreamQueryError extends Error {
  override readonly name = "StreamQueryError";
}

const defaultLimit = 50;
const maxLimit = 500;
const maxSearchLength = 200;
/** Of a cursor whose text has 256 characters, each with an escape of 6 in JSON, in base64. */
const maxCursorLength = 2_400;

const parameters = ["sort", "order", "search", "group", "limit", "cursor"] as const;

const cursor = z.tuple([
  z.enum(streamSorts),
  z.enum(["asc", "desc"]),
  z.union([z.string(), z.number()]),
  z.number(),
]);

/** Parses the parameters of /status.json. Throws a StreamQueryError. */
export function parseStreamQuery(query: URLSearchParams): StreamQuery {
  const known: ReadonlySet<string> = new Set(parameters);
  for (const name of query.keys()) {
    if (!known.has(name)) {
      fail(`There is no parameter ${shown(name)}. The parameters are ${parameters.join(", ")}.`);
    }
    if (query.getAll(name).length > 1) fail(`The parameter ${name} is given more than once.`);
  }
  const sort = oneOf("sort", query.get("sort") ?? "age", streamSorts);
  const order = oneOf("order", query.get("order") ?? "desc", ["asc", "desc"]);
  const search = (query.get("search") ?? "").toLowerCase();
  if (search.length > maxSearchLength) {
    fail(`search has ${search.length} characters. The maximum is ${maxSearchLength}.`);
  }
  const limit = limitOf(query.get("limit"));
  const group = groupOf(query.get("group"));
  const after = positionOf(query.get("cursor"), sort, order);
  return { sort, order, search, group, limit, after };
}

/** The cursor of the page after `position`. */
export function cursorOf({ sort, order }: StreamQuery, { key, id }: StreamPosition): string {
  return Buffer.from(JSON.stringify([sort, order, key, id])).toString("base64url");
}

function limitOf(text: string | null): number {
  if (text === null) return defaultLimit;
  const limit = /^\d{1,6}$/.test(text) ? Number(text) : 0;
  if (limit >= 1 && limit <= maxLimit) return limit;
  return fail(`limit is ${shown(text)}. It must be a whole number from 1 to ${maxLimit}.`);
}

function groupOf(text: string | null): StreamGroupKey | undefined {
  if (text === null || text === "") return undefined;
  const group = parseGroupId(text);
  return (
    group ??
    fail("group is not the id of one that this service has returned. Leave it out for all.")
  );
}

function positionOf(text: string | null, sort: string, order: string): StreamPosition | undefined {
  if (text === null || text === "") return undefined;
  const parsed = cursor.safeParse(text.length > maxCursorLength ? undefined : decoded(text));
  if (!parsed.success) {
    return fail(
      "cursor is not one that this service has returned. Leave it out for the first page.",
    );
  }
  const [itsSort, itsOrder, key, id] = parsed.data;
  if (itsSort === sort && itsOrder === order) return { key, id };
  return fail(
    `cursor is of a list with sort=${itsSort} and order=${itsOrder}. Leave it out for the first page of another.`,
  );
}

function decoded(text: string): unknown {
  try {
    return JSON.parse(Buffer.from(text, "base64url").toString());
  } catch {
    return undefined;
  }
}

function oneOf<const T extends string>(name: string, text: string, allowed: readonly T[]): T {
  const found = allowed.find((each) => each === text);
  return found ?? fail(`${name} is ${shown(text)}. It must be one of ${allowed.join(", ")}.`);
}

function shown(text: string): string {
  return JSON.stringify(text.length <= 50 ? text : `${text.slice(0, 49)}…`);
}

function fail(message: string): never {
  throw new StreamQueryError(message);
}
