import { z } from "zod";
import type { OpenStream } from "../../kernel/open-streams.ts";
import { callerOf } from "../../limits/callers.ts";
import type { StreamGroup, StreamReport, StreamScope } from "./status.ts";

/** Maximum length of a text that a client chose, in UTF-16 code units. */
const maxText = 256;

/** How long an event may be unread, or a watch not live, until the stream is behind, in milliseconds. */
export const behindAfterMs = 5_000;

/** A process and its clock. */
export interface StreamsOrigin {
  /** 0: the only process. */
  readonly worker: number;
  readonly now: number;
  /** What makes a time of the clock one of the day, in milliseconds: the same for all pages of the process. */
  readonly epochMs: number;
}

/** Whose a stream is: its identity, and for an anonymous one what limits count against, such as its host. */
export interface StreamClient {
  readonly identity: string;
  readonly caller: string | undefined;
}

type WatchedScope = NonNullable<OpenStream["watchStatus"]>["scope"];

const noSelectors = { label: "", field: "" };

export function stateOf({ watchStatus }: OpenStream): string {
  return watchStatus?.state ?? "open";
}

export function kindOf({ streamKind = "watch" }: OpenStream): string {
  return streamKind;
}

export function clientOf({ identity, owner }: OpenStream): StreamClient {
  const caller = identity.source === "none" ? callerOf(owner)?.title : undefined;
  return { identity: cut(identity.name), caller: caller === undefined ? undefined : cut(caller) };
}

/** The key or the beginning of what is watched, not cut; empty without a scope. */
export function scopeText({ watchStatus }: OpenStream): string {
  const scope = watchStatus?.scope;
  if (scope === undefined) return "";
  if ("key" in scope) return scope.key;
  return "prefix" in scope ? scope.prefix : scope.from;
}

/**
 * When the oldest event arrived that the client has not read, or when it was sent the message that it has not accepted, in
 * the clock's milliseconds; of a watch that has not become live, when it was opened. Undefined: it has read everything, or
 * it is not known.
 */
export function unreadSince(stream: OpenStream, now: number): number | undefined {
  const { watchStatus, openedAt, outstandingMs = 0 } = stream;
  const outstandingSince = outstandingMs > 0 ? now - outstandingMs : Infinity;
  const { state, unreadSince: unread } = watchStatus ?? {};
  const isLive = state !== "starting" && state !== "initial";
  const since = Math.min(outstandingSince, unread ?? (isLive ? undefined : openedAt) ?? Infinity);
  return since === Infinity ? undefined : since;
}

/** Whether the search text, in lower case, is found in a stream. */
export function matches(stream: OpenStream, search: string): boolean {
  const { identity, owner, resource = "", streamKind = "", watchStatus } = stream;
  const isFound = (text: string): boolean => text.toLowerCase().includes(search);
  if (isFound(identity.name) || isFound(resource) || isFound(scopeText(stream))) return true;
  if (isFound(stateOf(stream)) || isFound(streamKind)) return true;
  if (isFound(callerOf(owner)?.title ?? "")) return true;
  if (watchStatus === undefined) return false;
  const { label, field } = watchStatus.selectors;
  return isFound(label) || isFound(field);
}

/** Length of the texts that are searched, without the short ones. */
export function textLength(stream: OpenStream): number {
  const { label, field } = stream.watchStatus?.selectors ?? noSelectors;
  return scopeText(stream).length + label.length + field.length;
}

export function reportOf(
  stream: OpenStream,
  id: number,
  { worker, now }: StreamsOrigin,
): StreamReport {
  const { resource, openedAt, watchStatus, sent } = stream;
  const { label, field } = watchStatus?.selectors ?? noSelectors;
  const unread = unreadSince(stream, now);
  return {
    ...{ id, worker, kind: kindOf(stream), ...clientOf(stream), resource },
    state: stateOf(stream),
    scope: watchStatus && shownScope(watchStatus.scope),
    labelSelector: label === "" ? undefined : cut(label),
    fieldSelector: field === "" ? undefined : cut(field),
    ageSeconds: openedAt === undefined ? undefined : Math.max(0, (now - openedAt) / 1_000),
    lagRevisions: watchStatus?.lagRevisions,
    behindSeconds:
      unread === undefined || now - unread < behindAfterMs ? undefined : (now - unread) / 1_000,
    bufferFill: watchStatus?.bufferFill,
    messagesSent: sent,
  };
}

export function shownScope(scope: WatchedScope): StreamScope {
  if ("key" in scope) return { key: cut(scope.key) };
  if ("prefix" in scope) return { prefix: cut(scope.prefix) };
  return { from: cut(scope.from), to: scope.to === undefined ? null : cut(scope.to) };
}

export function cut(text: string): string {
  return text.length <= maxText ? text : `${text.slice(0, maxText - 1)}…`;
}

/** What the streams of a group have in common. */
export type StreamGroupKey = z.infer<typeof groupKey>;

/** Of five texts of 256 characters, each with an escape of 6 in JSON, in base64. */
const maxIdLength = 12_000;

const scope = z.union([
  z.strictObject({ key: z.string() }),
  z.strictObject({ prefix: z.string() }),
  z.strictObject({ from: z.string(), to: z.string().nullable() }),
]);

const groupKey = z.strictObject({
  identity: z.string(),
  caller: z.string().optional(),
  resource: z.string().optional(),
  kind: z.string(),
  state: z.string(),
  /** Absent: any. */
  scope: scope.optional(),
});

/** The id by which the streams of a group are requested: what they have in common, so nothing is kept for it. */
export function groupIdOf(group: Omit<StreamGroup, "id">): string | undefined {
  const { identity, caller, resource, kind, state } = group;
  if (identity === undefined) return undefined;
  const key: StreamGroupKey = { identity, caller, resource, kind, state, scope: group.scope };
  return Buffer.from(JSON.stringify(key)).toString("base64url");
}

/** Undefined: it is not the id of a group. */
export function parseGroupId(id: string): StreamGroupKey | undefined {
  if (id.length > maxIdLength) return undefined;
  try {
    return groupKey.parse(JSON.parse(Buffer.from(id, "base64url").toString()));
  } catch {
    return undefined;
  }
}

/** Whether a stream is one of the group. */
export function isOfGroup(stream: OpenStream, group: StreamGroupKey): boolean {
  if (stateOf(stream) !== group.state || kindOf(stream) !== group.kind) return false;
  if (stream.resource !== group.resource) return false;
  const { identity, caller } = clientOf(stream);
  if (identity !== group.identity || caller !== group.caller) return false;
  if (group.scope === undefined) return true;
  const watched = stream.watchStatus?.scope;
  return watched !== undefined && scopeKey(shownScope(watched)) === scopeKey(group.scope);
}

/** The same text for the same scope, and another for every other one. */
export function scopeKey(of: StreamScope): string {
  if ("key" in of) return `key ${of.key}`;
  if ("prefix" in of) return `prefix ${of.prefix}`;
  return `range ${JSON.stringify([of.from, of.to])}`;
}
