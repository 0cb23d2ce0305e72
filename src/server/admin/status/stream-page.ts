import type { TimeSlicedWork } from "../../../base/event-loop-turns.ts";
import type { OpenStream } from "../../kernel/open-streams.ts";
import type { StreamReport, StreamsReport } from "./status.ts";
import { cursorOf, type StreamPosition, type StreamQuery } from "./stream-query.ts";
import {
  cut,
  isOfGroup,
  matches,
  reportOf,
  type StreamsOrigin,
  scopeText,
  stateOf,
  textLength,
} from "./stream-report.ts";

/** Number of streams that are looked at in one step. */
const streamsPerStep = 32;
/** Length of the scopes and selectors that are searched in one step, in UTF-16 code units. Those of a stream may be long. */
const textPerStep = 64 * 1024;
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
  const { limit, after, group } = query;
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
    if (group !== undefined && !isOfGroup(stream, group)) continue;
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
