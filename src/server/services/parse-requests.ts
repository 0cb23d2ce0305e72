import { maxTimerMs } from "../../base/clock.ts";
import { invalidRequest, otherHistory, WatchFanoutError } from "../../base/errors.ts";
import type {
  CacheListRequest,
  CacheWatchRequest,
  Delivery,
  View,
} from "../../cacher/request/request.ts";
import type { Selection } from "../../cacher/request/selection.ts";
import { Shard } from "../../cacher/request/shard.ts";
import type { Identity } from "../../identity/identity.ts";
import type { EventType } from "../../model/event.ts";
import type { Access } from "../../policy/access.ts";
import type { Authorizer } from "../../policy/authorizer.ts";
import type {
  DeleteRequest,
  GetRequest,
  PutRequest,
  RevisionRequirement,
  WatchScope,
} from "../../storage/storage.ts";
import type { Duration__Output } from "../../wire/generated/google/protobuf/Duration.ts";
import type { DeleteRequest__Output } from "../../wire/generated/watchfanout/v1/DeleteRequest.ts";
import type { Delivery__Output } from "../../wire/generated/watchfanout/v1/Delivery.ts";
import type { EventType__Output } from "../../wire/generated/watchfanout/v1/EventType.ts";
import type { GetRequest__Output } from "../../wire/generated/watchfanout/v1/GetRequest.ts";
import type { ListRequest__Output } from "../../wire/generated/watchfanout/v1/ListRequest.ts";
import type { PutRequest__Output } from "../../wire/generated/watchfanout/v1/PutRequest.ts";
import type { RevisionMatch__Output } from "../../wire/generated/watchfanout/v1/RevisionMatch.ts";
import type { Shard__Output } from "../../wire/generated/watchfanout/v1/Shard.ts";
import type { WatchRequest__Output } from "../../wire/generated/watchfanout/v1/WatchRequest.ts";
import type { Asked } from "../calls/methods.ts";
import type { ServedResource } from "../calls/service-options.ts";
import {
  accessScopeOfList,
  accessScopeOfRange,
  intervalOfList,
  orderOf,
  rangeIdentity,
  scopeOfRange,
} from "./key-ranges.ts";
import { decodePageToken, pageSizeOf } from "./page-token.ts";
import { viewIdentity } from "./parse-view.ts";

/*
 * Converts requests of the wire to those of a Storage. An invalid field throws INVALID_REQUEST with the field's name.
 */

/** Maximum number of names that a message lists. */
const maxNamesListed = 10;

/** The resource of that name. Throws UNKNOWN_RESOURCE, with the names of the resources that the caller may know. */
export function resourceNamed<T>(
  {
    resources,
    authorizer,
  }: { readonly resources: ReadonlyMap<string, T>; readonly authorizer: Authorizer },
  { identity }: { readonly identity: Identity },
  name: string,
): T {
  const resource = resources.get(name);
  if (resource !== undefined) return resource;
  const known = [...resources.keys()].filter((each) => authorizer.mayKnow(identity, each));
  const names = known.slice(0, maxNamesListed).map((each) => JSON.stringify(each));
  const more = known.length > maxNamesListed ? ` and ${known.length - maxNamesListed} more` : "";
  throw new WatchFanoutError(
    "UNKNOWN_RESOURCE",
    `There is no resource ${JSON.stringify(name)}. The resources are: ${names.join(", ")}${more}.`,
    { metadata: { resource: name } },
  );
}

/** Throws HISTORY_CHANGED if `known` is not empty and is not the current history. */
export function checkHistory(known: string, current: string): void {
  if (known !== "" && known !== current) throw otherHistory(known, current);
}

/*
 * What requests ask for. Also of an invalid request: it is refused only after its caller's right has been checked.
 */

export function accessOfGet({ resource, key }: GetRequest__Output): Access {
  return { verb: "get", resource, scope: { key } };
}

export function accessOfList(request: ListRequest__Output): Access {
  return { verb: "list", resource: request.resource, scope: accessScopeOfList(request) };
}

export function accessOfWatch(request: WatchRequest__Output): Access {
  const { resource, key = "", prefix = "", range } = request;
  if (range) return { verb: "watch", resource, scope: accessScopeOfRange(range) };
  return { verb: "watch", resource, scope: request.scope === "key" ? { key } : { prefix } };
}

/** With a lease also to delete the key, as the end of the lease does. */
export function accessOfPut(request: PutRequest__Output): Asked {
  const { resource, key, lease, ttl, return_current: reads } = request;
  const put: Access = { verb: "put", resource, scope: { key } };
  const isAttached = ttl !== null || lease !== "0";
  const others = [...(isAttached ? ["delete" as const] : []), ...(reads ? ["get" as const] : [])];
  return others.length === 0 ? put : [put, ...others.map((verb) => ({ ...put, verb }))];
}

export function accessOfDelete(request: DeleteRequest__Output): Asked {
  const { resource, key, return_current: reads } = request;
  const deletion: Access = { verb: "delete", resource, scope: { key } };
  return reads ? [deletion, { ...deletion, verb: "get" }] : deletion;
}

export function parseGet(request: GetRequest__Output): GetRequest {
  return {
    key: keyOf(request.key),
    at: requirementOf(request),
  };
}

/** A list, and the history of its revision: the request's, or its page token's. */
export interface ParsedList {
  readonly list: CacheListRequest;
  readonly historyId: string;
}

export function parseList(
  request: ListRequest__Output,
  selection: Selection | undefined,
  asked: View | "COUNT",
  maxBytes: number,
): ParsedList {
  const { prefix, page_token: token } = request;
  const at = requirementOf(request);
  const limit = pageSizeOf(request);
  const shard = shardOf(request);
  const view = asked === "COUNT" ? { countOnly: true } : { view: asked };
  const range = { interval: intervalOfList(request), order: orderOf(request) };
  const page = { prefix, ...range, limit, maxBytes, selection, shard, ...view };
  if (token === "") return { list: { ...page, at }, historyId: request.history_id };
  const { revision, startAfter, historyId } = decodePageToken(token, listIdentity(request));
  return { list: { ...page, startAfter, at: { match: "EXACT", revision } }, historyId };
}

/** The fields of a ListRequest that must not change between pages, for `encodePageToken`. */
export function listIdentity(request: ListRequest__Output): string {
  const { resource, prefix, label_selector, field_selector, revision, history_id } = request;
  const match = matches[request.revision_match];
  return JSON.stringify([
    ...[resource, prefix, label_selector, field_selector],
    ...[match, revision, history_id],
    // Left out where it is not asked for, so that tokens of servers without views stay valid.
    ...viewIdentity(request),
    ...(request.shard === null ? [] : [request.shard]),
    ...rangeIdentity(request),
  ]);
}

/** When a watch ends, in the clock's milliseconds; undefined: never. */
export interface WatchEnds {
  /** The call's deadline. */
  readonly deadline: number | undefined;
  /** When it reaches the maximum age and ends with DRAINING. */
  readonly expiresAt: number | undefined;
}

export function parseWatch(
  request: WatchRequest__Output,
  selection: Selection | undefined,
  view: View,
  ends: WatchEnds,
): CacheWatchRequest {
  return {
    scope: scopeOf(request),
    afterRevision: optionalRevisionOf("after_revision", request.after_revision),
    sendInitialEvents: request.send_initial_events,
    delivery: deliveries[request.delivery],
    withPrevious: request.include_previous,
    bookmarkIntervalMs: bookmarkIntervalOf(request),
    eagerBookmarks: request.eager_bookmarks,
    historyId: request.history_id,
    selection,
    shard: shardOf(request),
    eventTypes: eventTypesOf(request),
    view,
    ...ends,
  };
}

export function parsePut(request: PutRequest__Output): PutRequest {
  return {
    key: keyOf(request.key),
    value: request.value,
    expectedModRevision: optionalRevisionOf("expected_mod_revision", request.expected_mod_revision),
    ...attachmentOf(request),
    historyId: request.history_id,
  };
}

/** The lease of a put, existing or new. Throws INVALID_REQUEST for both. */
export function attachmentOf(
  put: Pick<PutRequest__Output, "lease" | "ttl">,
): Required<Pick<PutRequest, "lease" | "ttlSeconds">> {
  const lease = leaseOf("lease", put.lease);
  const ttlSeconds = ttlOf(put);
  if (ttlSeconds !== undefined && lease !== 0n) {
    throw invalidRequest("ttl", "ttl and lease are both given. Give one, or neither.");
  }
  return { lease, ttlSeconds };
}

export function parseDelete(request: DeleteRequest__Output): DeleteRequest {
  const expected = optionalRevisionOf("expected_mod_revision", request.expected_mod_revision);
  if (expected === 0) {
    throw invalidRequest(
      "expected_mod_revision",
      "expected_mod_revision is 0, but an object that does not exist can't be deleted. Give the " +
        "object's mod_revision, or leave it out.",
    );
  }
  return {
    key: keyOf(request.key),
    expectedModRevision: expected,
    historyId: request.history_id,
  };
}

const matches = {
  REVISION_MATCH_UNSPECIFIED: "LINEARIZABLE",
  REVISION_MATCH_LINEARIZABLE: "LINEARIZABLE",
  REVISION_MATCH_ANY: "ANY",
  REVISION_MATCH_NOT_OLDER_THAN: "NOT_OLDER_THAN",
  REVISION_MATCH_EXACT: "EXACT",
} as const satisfies Record<RevisionMatch__Output, RevisionRequirement["match"]>;

/** How recent a response has to be. Throws INVALID_REQUEST for a revision that does not fit. */
export function requirementOf(
  request: Pick<GetRequest__Output, "revision" | "revision_match">,
): RevisionRequirement {
  const match = matches[request.revision_match];
  const revision = revisionOf("revision", request.revision);
  if (match === "EXACT" || match === "NOT_OLDER_THAN") {
    if (revision > 0) return { match, revision };
    throw invalidRequest(
      "revision",
      `revision is 0, but revision_match ${match} needs one of at least 1. Give one, or ask for ANY.`,
    );
  }
  if (revision === 0) return { match };
  throw invalidRequest(
    "revision",
    `revision is ${request.revision}, but revision_match ${match} allows none. Leave it out, or ask for EXACT ` +
      "or NOT_OLDER_THAN.",
  );
}

/** How old a response may be, in milliseconds; undefined: the request says how new it is, or the source is followed. */
export function stalenessOf(
  { staleForMs }: ServedResource,
  { match }: RevisionRequirement,
): number | undefined {
  return match === "ANY" || match === "NOT_OLDER_THAN" ? staleForMs : undefined;
}

/** Undefined: all types. */
function eventTypesOf({
  event_types: names,
}: WatchRequest__Output): CacheWatchRequest["eventTypes"] {
  return names.length === 0 ? undefined : names.map(eventTypeOf);
}

const eventTypes = {
  EVENT_TYPE_UNSPECIFIED: undefined,
  EVENT_TYPE_ADDED: "ADDED",
  EVENT_TYPE_MODIFIED: "MODIFIED",
  EVENT_TYPE_DELETED: "DELETED",
} as const satisfies Record<EventType__Output, EventType | undefined>;

function eventTypeOf(name: EventType__Output): EventType {
  const type = eventTypes[name];
  if (type !== undefined) return type;
  const names = Object.keys(eventTypes).slice(1).join(", ");
  throw invalidRequest("event_types", `event_types has ${name}. The types of events are ${names}.`);
}

/** Throws INVALID_REQUEST for a shard that is no part of the keys. */
function shardOf({ shard }: { readonly shard: Shard__Output | null }): Shard | undefined {
  if (shard === null) return undefined;
  return new Shard(
    shard.ranges.map(({ first, last }) => ({ first: BigInt(first), last: BigInt(last) })),
  );
}

const deliveries = {
  DELIVERY_UNSPECIFIED: "EVERY_EVENT",
  DELIVERY_EVERY_EVENT: "EVERY_EVENT",
  DELIVERY_LATEST_STATE: "LATEST_STATE",
} as const satisfies Record<Delivery__Output, Delivery>;

function scopeOf(request: WatchRequest__Output): WatchScope {
  if (request.range) return scopeOfRange(request.range);
  if (request.scope === "key") return { key: keyOf(request.key ?? "") };
  return { prefix: request.prefix ?? "" };
}

/** etcd's maximum for a lease, in seconds: about 285 years. */
const maxTtlSeconds = 9_000_000_000;

/** The TTL in whole seconds, rounded up; undefined if absent. */
export function ttlOf({ ttl }: Pick<PutRequest__Output, "ttl">): number | undefined {
  if (ttl === null) return undefined;
  const seconds = Math.ceil(durationOf("ttl", ttl) / 1_000);
  if (seconds >= 1 && seconds <= maxTtlSeconds) return seconds;
  throw invalidRequest(
    "ttl",
    `ttl is ${seconds} s when rounded up. It must be at least 1 s and at most ${maxTtlSeconds} s.`,
  );
}

const minBookmarkIntervalMs = 1_000;

function bookmarkIntervalOf(request: WatchRequest__Output): number | undefined {
  if (request.bookmark_interval === null) return undefined;
  const ms = durationOf("bookmark_interval", request.bookmark_interval);
  if (ms < minBookmarkIntervalMs) {
    throw invalidRequest(
      "bookmark_interval",
      `bookmark_interval is ${ms / 1_000} s. It must be at least 1 s.`,
    );
  }
  // An interval above the maximum of a timer, about 24 days, is reduced to it.
  return Math.min(ms, maxTimerMs);
}

/**
 * Parses a revision: an int64 that is not negative. No store reaches the largest integer that a `number` holds exactly,
 * so larger revisions become that integer: it is above the store's revision, and no object has it.
 */
export function revisionOf(field: string, text: string): number {
  const value = BigInt(text);
  if (value < 0n) throw invalidRequest(field, `${field} is ${text}. It must not be negative.`);
  return value > maxRevision ? Number.MAX_SAFE_INTEGER : Number(value);
}

const maxRevision = BigInt(Number.MAX_SAFE_INTEGER);

/** Like `revisionOf`, for an optional field. */
function optionalRevisionOf(field: string, text: string | undefined): number | undefined {
  return text === undefined ? undefined : revisionOf(field, text);
}

/** Parses a number of something, which is not negative. One that no `number` holds exactly is reduced to the largest. */
export function amountOf(field: string, text: string): number {
  return revisionOf(field, text);
}

/** Parses a lease id; 0: no lease. */
export function leaseOf(field: string, text: string): bigint {
  const value = BigInt(text);
  if (value < 0n) throw invalidRequest(field, `${field} is ${text}. A lease is never negative.`);
  return value;
}

/** Throws INVALID_REQUEST if a request names no lease. */
export function requiredLease(text: string): bigint {
  const lease = leaseOf("lease", text);
  if (lease > 0n) return lease;
  throw invalidRequest(
    "lease",
    "lease is 0, which is no lease. Give the id that Grant has returned.",
  );
}

/** The bounds of google.protobuf.Duration, about 10,000 years. */
const maxDurationSeconds = 315_576_000_000;

/** Converts a duration to milliseconds. */
function durationOf(field: string, { seconds, nanos }: Duration__Output): number {
  const whole = Number(seconds);
  if (Math.abs(whole) > maxDurationSeconds || Math.abs(nanos) > 999_999_999 || whole * nanos < 0) {
    throw invalidRequest(
      field,
      `${field} is ${seconds} s and ${nanos} ns, an invalid google.protobuf.Duration: seconds go up ` +
        `to ${maxDurationSeconds}, nanos up to 999999999, and both have the same sign.`,
    );
  }
  return whole * 1_000 + nanos / 1e6;
}

/** Checks that a key is not empty. */
export function keyOf(key: string): string {
  if (key === "") throw invalidRequest("key", "key is empty. Give the key of an object.");
  return key;
}
