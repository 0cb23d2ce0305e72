import { z } from "zod";
import type { OpenStream } from "../../kernel/open-streams.ts";
import type { StreamGroup, StreamScope } from "./status.ts";
import { clientOf, kindOf, shownScope, stateOf } from "./stream-report.ts";

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
