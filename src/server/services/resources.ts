import { invalidRequest, WatchFanoutError } from "../../base/errors.ts";
import type { Identity } from "../../identity/identity.ts";
import { durationOf } from "../../wire/encode.ts";
import type { Resource } from "../../wire/generated/watchfanout/v1/Resource.ts";
import type { ResourcesRequest__Output } from "../../wire/generated/watchfanout/v1/ResourcesRequest.ts";
import { listWatchService } from "../../wire/services.ts";
import { isPathRefusal } from "../../wire/via.ts";
import type { UnaryMethod } from "../calls/methods.ts";
import type { UnaryContext } from "../calls/service-context.ts";
import type { CodecKind, RelayedUpstream } from "../calls/service-options.ts";
import { pageSizeOf } from "./page-token.ts";

/** Maximum number of resources per response. */
const maxResources = 1_000;

/**
 * Size of one resource in a response, in bytes, estimated: a name has at most 63 characters, a history id 36, and prefixes of
 * keys are short.
 */
const resourceBytes = 256;

/** Maximum number of paths that a relay has checked at once. Further ones are checked up to this relay only. */
const maxPathChecks = 16;

const views: NonNullable<Resource["views"]> = ["VIEW_FULL", "VIEW_KEYS", "VIEW_COUNT"];

const codecKinds = {
  opaque: "CODEC_OPAQUE",
  json: "CODEC_JSON",
  protobuf: "CODEC_PROTOBUF",
} as const satisfies Record<CodecKind, string>;

/**
 * The method Resources, which lists what the caller may read. Before a relay answers another relay, it asks the
 * server that it follows itself, so that a loop of relays is found before one of them uses it.
 */
export function resourcesMethod(context: UnaryContext): UnaryMethod<ResourcesRequest__Output> {
  const { authorizer, resources, upstream } = context;
  const checkPath = upstream && boundedCheck(upstream);
  const sorted = [...resources.keys()].sort();
  return {
    kind: "reads",
    access: "open",
    perform: async (request, { via, identity, signal, admit }) => {
      const after = afterOf(request);
      const limit = pageSizeOf(request, maxResources);
      if (request.check_path && via !== undefined) await checkPath?.(via, signal);
      const names = sorted.filter((name) => name > after);
      const wait = admit(Math.min(names.length, limit) * resourceBytes);
      if (wait !== undefined) await wait;
      return () => {
        const readable = names.filter((name) => authorizer.mayRead(identity, name));
        const listed = readable.slice(0, limit);
        const hasMore = listed.length < readable.length;
        const message = listWatchService.Resources.responseSerialize({
          resources: listed.map((name) => resourceMessage(context, identity, name)),
          has_more: hasMore,
          next_page_token: hasMore ? tokenAfter(listed.at(-1) ?? after) : "",
        });
        return [message];
      };
    },
  };
}

/** The name that the page begins after. Throws INVALID_REQUEST for a token that no page had. */
function afterOf({ after_name: after, page_token: token }: ResourcesRequest__Output): string {
  if (token === "") return after;
  if (after !== "") {
    throw invalidRequest(
      "page_token",
      "page_token and after_name are both given. Give page_token alone.",
    );
  }
  const name = Buffer.from(token, "base64url").toString();
  if (tokenAfter(name) === token) return name;
  throw invalidRequest(
    "page_token",
    "page_token is invalid. Send next_page_token of the previous page, unchanged.",
  );
}

function tokenAfter(name: string): string {
  return Buffer.from(name).toString("base64url");
}

/** Rejects if the path is refused. What can't be found out does not matter to the response. */
function boundedCheck(upstream: RelayedUpstream): RelayedUpstream["checkPath"] {
  let checks = 0;
  return async (via, signal) => {
    if (checks >= maxPathChecks) return;
    checks++;
    try {
      await upstream.checkPath(via, signal);
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof WatchFanoutError) || isPathRefusal(error)) throw error;
    } finally {
      checks--;
    }
  };
}

function resourceMessage(
  { authorizer, resources, codecs, etcdKeys }: UnaryContext,
  identity: Identity,
  name: string,
) {
  const resource = resources.get(name);
  const { revision, oldestRevision = 0, staleForMs, fields } = resource ?? {};
  // etcd's API is for callers that may do everything.
  const keys = authorizer.isLimited(identity) ? undefined : etcdKeys?.get(name);
  const scope = { prefix: "" };
  const mayReadAll = (["get", "list", "watch"] as const).every(
    (verb) => authorizer.decide(identity, { verb, resource: name, scope }).allowed,
  );
  return {
    name,
    codec: codecKinds[codecs?.get(name) ?? "opaque"],
    cached: revision !== undefined,
    revision: revision ?? 0,
    history_id: resource?.currentHistoryId ?? "",
    readable_in_full: mayReadAll,
    ...(staleForMs === undefined ? {} : { stale_for: durationOf(staleForMs) }),
    fields: [...(fields?.declared ?? [])],
    indexed_fields: [...(fields?.indexed ?? [])],
    oldest_revision: Number.isFinite(oldestRevision) ? oldestRevision : 0,
    views: resource?.hasAttributes === true ? [...views, "VIEW_ATTRIBUTES" as const] : views,
    ...(keys && { etcd_keys: { prefix: keys.prefix, history_key: keys.historyKey } }),
  };
}
