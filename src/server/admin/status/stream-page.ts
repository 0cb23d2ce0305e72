import type { TimeSlicedWork } from "../../../base/time-slices.ts";
import { callerOf } from "../../limits/callers.ts";
import type { OpenStream } from "../../limits/open-streams.ts";
import type { StreamReport, StreamsReport } from "./status.ts";
import { cursorOf, type StreamPosition, type StreamQuery } from "./stream-query.ts";

/** Number of streams that are looked at in one step. */
const streamsPerStep = 32;
/** Length of the scopes and selectors that are searched in one step, in UTF-16 code units. Those of a stream may be long. */
const textPerStep = 64 * 1024;
/** Maximum length of a text that a client chose, in UTF-16 code units. */
const maxText = 256;
/** Ids of a process are below this number, so that those of all workers are different. */
const idsPerWorker = 2 ** 42;

/** A stream of a page, with its position in the order. */
interface PageEntry extends StreamPosition {
  readonly report: StreamReport;
}

/** The first streams of a process that a query is for. Can be sent between processes. */
export interface StreamPage {
  readonly total: number;
  readonly matched: number;
  readonly byState: Readonly<Record<string, number>>;
  readonly entries: readonly PageEntry[];
  /** Whether there are further streams after these. */
  readonly hasMore: boolean;
}

/** A process and its clock. */
interface StreamsOrigin {
  /** 0: the only process. */
  readonly worker: number;
  readonly now: number;
  /** What makes a time of the clock one of the day, in milliseconds: the same for all pages of the process. */
  readonly epochMs: number;
}

/** A stream that may be on the page. */
interface Candidate extends StreamPosition {
  readonly stream: OpenStream;
}

/**
 * Finds the page of a query in one pass over all streams, in time slices. It holds at most twice as many streams as the
 * page has, and reads of the others only what they are searched and sorted by.
 */
export function* selectStreams(
  streams: Iterable<OpenStream>,
  query: StreamQuery,
  origin: StreamsOrigin,
): TimeSlicedWork<StreamPage> {
  const { limit, after } = query;
  const compare = comparison(query);
  const byState: Record<string, number> = Object.create(null);
  const found: Candidate[] = [];
  let [seen, total, matched, following] = [0, 0, 0, 0];
  let searchedText = 0;
  let last: Candidate | undefined;
  for (const stream of streams) {
    if (++seen % streamsPerStep === 0 || searchedText >= textPerStep) {
      searchedText = 0;
      yield;
    }
    if (stream.id === undefined) continue;
    total++;
    if (query.search !== "") {
      searchedText += textLength(stream);
      if (!matches(stream, query.search)) continue;
    }
    matched++;
    const state = stateOf(stream);
    byState[state] = (byState[state] ?? 0) + 1;
    const position = {
      key: keyOf(stream, query, origin),
      id: stream.id + origin.worker * idsPerWorker,
    };
    if (after !== undefined && compare(position, after) <= 0) continue;
    following++;
    if (last !== undefined && compare(position, last) > 0) continue;
    found.push({ ...position, stream });
    if (found.length < 2 * limit) continue;
    found.sort(compare).length = limit;
    last = found.at(-1);
  }
  yield;
  const entries = found
    .sort(compare)
    .slice(0, limit)
    .map(({ key, id, stream }) => ({ key, id, report: reportOf(stream, id, origin) }));
  return { total, matched, byState, entries, hasMore: following > entries.length };
}

/** Merges the pages of several processes. */
export function mergePages(query: StreamQuery, pages: readonly StreamPage[]): StreamsReport {
  const byState: Record<string, number> = Object.create(null);
  for (const page of pages) {
    for (const [state, count] of Object.entries(page.byState)) {
      byState[state] = (byState[state] ?? 0) + count;
    }
  }
  const all = pages.flatMap(({ entries }) => entries).sort(comparison(query));
  const entries = all.slice(0, query.limit);
  const last = entries.at(-1);
  const hasMore = all.length > entries.length || pages.some((page) => page.hasMore);
  return {
    total: pages.reduce((sum, { total }) => sum + total, 0),
    matched: pages.reduce((sum, { matched }) => sum + matched, 0),
    byState,
    items: entries.map(({ report }) => report),
    next: hasMore && last !== undefined ? cursorOf(query, last) : undefined,
  };
}

function comparison({ order }: StreamQuery): (a: StreamPosition, b: StreamPosition) => number {
  const sign = order === "asc" ? 1 : -1;
  return (a, b) => {
    if (a.key !== b.key) return a.key < b.key ? -sign : sign;
    return sign * (a.id - b.id);
  };
}

/** What the stream is sorted by. A cursor has it, so that of a time is not relative to now. */
function keyOf(
  stream: OpenStream,
  { sort }: StreamQuery,
  { epochMs }: StreamsOrigin,
): string | number {
  switch (sort) {
    case "age":
      return stream.openedAt === undefined ? -Number.MAX_VALUE : -(stream.openedAt + epochMs);
    case "identity":
      return cut(stream.identity.name);
    case "resource":
      return stream.resource ?? "";
    case "state":
      return stateOf(stream);
    case "scope":
      return cut(scopeText(stream));
    case "lag":
      return stream.watchStatus?.lagRevisions ?? -1;
    case "buffer":
      return stream.watchStatus?.bufferFill ?? -1;
    case "sent":
      return stream.sent ?? -1;
  }
}

const noSelectors = { label: "", field: "" };

function stateOf({ watchStatus }: OpenStream): string {
  return watchStatus?.state ?? "open";
}

function scopeText({ watchStatus }: OpenStream): string {
  const scope = watchStatus?.scope;
  if (scope === undefined) return "";
  if ("key" in scope) return scope.key;
  return "prefix" in scope ? scope.prefix : scope.from;
}

function textLength(stream: OpenStream): number {
  const { label, field } = stream.watchStatus?.selectors ?? noSelectors;
  return scopeText(stream).length + label.length + field.length;
}

function matches(stream: OpenStream, search: string): boolean {
  const { identity, owner, resource = "", streamKind = "", watchStatus } = stream;
  const isFound = (text: string): boolean => text.toLowerCase().includes(search);
  if (isFound(identity.name) || isFound(resource) || isFound(scopeText(stream))) return true;
  if (isFound(stateOf(stream)) || isFound(streamKind)) return true;
  if (isFound(callerOf(owner)?.title ?? "")) return true;
  if (watchStatus === undefined) return false;
  const { label, field } = watchStatus.selectors;
  return isFound(label) || isFound(field);
}

function reportOf(stream: OpenStream, id: number, { worker, now }: StreamsOrigin): StreamReport {
  const { identity, owner, resource, openedAt, watchStatus, sent, streamKind = "watch" } = stream;
  const { label, field } = watchStatus?.selectors ?? noSelectors;
  const caller = identity.source === "none" ? callerOf(owner)?.title : undefined;
  return {
    ...{ id, worker, kind: streamKind, identity: cut(identity.name), resource },
    caller: caller === undefined ? undefined : cut(caller),
    state: stateOf(stream),
    scope: watchStatus && shownScope(watchStatus.scope),
    labelSelector: label === "" ? undefined : cut(label),
    fieldSelector: field === "" ? undefined : cut(field),
    ageSeconds: openedAt === undefined ? undefined : Math.max(0, (now - openedAt) / 1_000),
    lagRevisions: watchStatus?.lagRevisions,
    bufferFill: watchStatus?.bufferFill,
    messagesSent: sent,
  };
}

type WatchedScope = NonNullable<OpenStream["watchStatus"]>["scope"];

function shownScope(scope: WatchedScope): StreamReport["scope"] {
  if ("key" in scope) return { key: cut(scope.key) };
  if ("prefix" in scope) return { prefix: cut(scope.prefix) };
  return { from: cut(scope.from), to: scope.to === undefined ? null : cut(scope.to) };
}

function cut(text: string): string {
  return text.length <= maxText ? text : `${text.slice(0, maxText - 1)}…`;
}
