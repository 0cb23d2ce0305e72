import { invalidRequest, upstreamUnavailable, WatchFanoutError } from "../../base/errors.ts";
import type { Reached } from "../../cacher/request/request.ts";
import type { StoredObject } from "../../model/object.ts";
import { encodedSize } from "../../model/object-encoding.ts";
import type { Access } from "../../policy/access.ts";
import type { GetResult, RevisionRequirement } from "../../storage/storage.ts";
import { durationOf } from "../../wire/encode.ts";
import type { BatchGetRequest__Output } from "../../wire/generated/watchfanout/v1/BatchGetRequest.ts";
import type { ObjectName__Output } from "../../wire/generated/watchfanout/v1/ObjectName.ts";
import { objectMessage } from "../../wire/object-message.ts";
import { listWatchService } from "../../wire/services.ts";
import { expectedObjectBytes } from "../calls/call-admission.ts";
import type { Asked, UnaryCall, UnaryMethod } from "../calls/methods.ts";
import type { UnaryContext } from "../calls/service-context.ts";
import type { ServedResource } from "../calls/service-options.ts";
import { inHistory } from "./in-history.ts";
import { keyOf, requirementOf, resourceNamed, stalenessOf } from "./parse-requests.ts";

/** Maximum number of objects of one request. */
const maxObjects = 1_000;

/** Maximum size of the objects of a response, in bytes: below 4 MiB, the default maximum of gRPC clients. */
const maxResponseBytes = 4 * 1024 ** 2 - 16 * 1024;

/** Number of objects that are read at once: without a cache each may have any size. */
const readsAtOnce = 16;

interface Named {
  readonly resource: ServedResource;
  readonly key: string;
}

/** The method BatchGet: several objects at one revision. */
export function batchGetMethod(context: UnaryContext): UnaryMethod<BatchGetRequest__Output> {
  return {
    kind: "reads",
    access: accessOfBatchGet,
    perform: async (request, call) => {
      checkNames(request.objects);
      const names = request.objects.map(({ resource, key }): Named => {
        return { resource: resourceNamed(context, call, resource), key: keyOf(key) };
      });
      checkOneStore(context, request.objects);
      const at = requirementOf(request);
      call.retain(call.requestBytes);
      const reached = await reach(names, at, call);
      const wait = call.admit(Math.min(names.length * expectedObjectBytes, maxResponseBytes));
      if (wait !== undefined) await wait;
      const found = await readAll(names, at, reached, request.history_id, call);
      const { revision, historyId, objects } = found;
      return () => {
        const ages = names.map(({ resource }) => stalenessOf(resource, at) ?? -1);
        const staleForMs = Math.max(...ages);
        const message = listWatchService.BatchGet.responseSerialize({
          ...{ revision, history_id: historyId },
          objects: objects.map((object) => ({ object: objectMessage(object) })),
          ...(staleForMs < 0 ? {} : { stale_for: durationOf(staleForMs) }),
        });
        return [message];
      };
    },
  };
}

function accessOfBatchGet({ objects }: BatchGetRequest__Output): Asked | undefined {
  const [first, ...others] = objects.map(
    ({ resource, key }): Access => ({ verb: "get", resource, scope: { key } }),
  );
  return first && [first, ...others];
}

function checkNames(names: readonly ObjectName__Output[]): void {
  if (names.length === 0) throw invalidRequest("objects", "objects is empty. Name at least one.");
  if (names.length > maxObjects) {
    throw invalidRequest(
      "objects",
      `objects has ${names.length} names, above the limit of ${maxObjects}. Divide the request, and ask for the revision of ` +
        "the first response in the others (EXACT).",
    );
  }
  const seen = new Set<string>();
  for (const { resource, key } of names) {
    const name = JSON.stringify([resource, key]);
    if (seen.has(name)) throw invalidRequest("objects", `${name} comes twice. Name it once.`);
    seen.add(name);
  }
}

/** Throws INVALID_REQUEST for resources that are not known to share their revisions. */
function checkOneStore({ store }: UnaryContext, names: readonly ObjectName__Output[]): void {
  const distinct = [...new Set(names.map(({ resource }) => resource))];
  if (distinct.length === 1) return;
  const others = distinct.filter((name) => store?.has(name) !== true);
  if (others.length === 0) return;
  const list = others.map((name) => JSON.stringify(name)).join(", ");
  throw invalidRequest(
    "objects",
    `The resources are not of one store: ${list}. Revisions have a meaning within one store: get the objects of each alone.`,
  );
}

/** A revision that the caches have reached. */
interface ReachedRevision {
  readonly revision: number;
  readonly caches: ReadonlyMap<ServedResource, Reached>;
}

/** Waits until all caches have a revision that meets the requirement. Undefined: only a read can find one. */
async function reach(
  names: readonly Named[],
  at: RevisionRequirement,
  { signal, owner }: UnaryCall,
): Promise<ReachedRevision | undefined> {
  const revision = await revisionOf(names, at, signal);
  if (revision === undefined) return undefined;
  const caches = new Map<ServedResource, Reached>();
  const exact = { match: "EXACT", revision } as const;
  const waits = new Map(names.map(({ resource, key }) => [resource, key]));
  await Promise.all(
    [...waits].map(async ([resource, key]) => {
      const reached = await resource.reach?.({ key, at: exact, signal, owner });
      if (reached !== undefined) caches.set(resource, reached);
    }),
  );
  return { revision, caches };
}

/** The newest revision that all caches have, if it meets the requirement. */
async function revisionOf(
  names: readonly Named[],
  at: RevisionRequirement,
  signal: AbortSignal,
): Promise<number | undefined> {
  if (at.match === "EXACT") return at.revision;
  const cached = names.filter(({ resource }) => resource.revision !== undefined);
  const [first] = cached;
  if (first === undefined) return undefined;
  if (at.match === "LINEARIZABLE") {
    const reached = await first.resource.reach?.({ key: first.key, at, signal });
    return reached?.isLate === false ? first.resource.revision : undefined;
  }
  const least = Math.min(...cached.map(({ resource }) => resource.revision ?? 0));
  // A cache that is not ready is at 0, and refuses its read.
  return Math.max(at.match === "ANY" ? 1 : at.revision, least);
}

/** All objects at one revision, and its history. */
interface Found {
  readonly revision: number;
  readonly historyId: string;
  /** In the order of their names. */
  readonly objects: readonly (StoredObject | undefined)[];
}

/** Reads all objects, those of one resource after those of another. Without a reached revision the first read finds it. */
async function readAll(
  names: readonly Named[],
  at: RevisionRequirement,
  reached: ReachedRevision | undefined,
  known: string,
  { signal, owner }: UnaryCall,
): Promise<Found> {
  const objects = new Array<StoredObject | undefined>(names.length);
  const ids = new Set<string>();
  let revision = reached?.revision;
  let bytes = 0;
  for (const resource of new Set(names.map((name) => name.resource))) {
    const positions = names.flatMap((name, i) => (name.resource === resource ? [i] : []));
    const read = async (): Promise<Pick<GetResult, "historyId">> => {
      let historyId: string | undefined;
      while (positions.length > 0) {
        const required = revision === undefined ? at : ({ match: "EXACT", revision } as const);
        const slice = positions.splice(0, revision === undefined ? 1 : readsAtOnce);
        const results = await Promise.all(
          slice.map((i) => {
            const get = { key: names[i]?.key ?? "", at: required, signal, owner };
            return resource.get(get, reached?.caches.get(resource));
          }),
        );
        results.forEach((result, j) => {
          revision ??= result.revision;
          historyId = result.historyId;
          if (historyId !== undefined) ids.add(historyId);
          objects[slice[j] ?? 0] = result.object;
          bytes += result.object === undefined ? 4 : 8 + encodedSize(result.object);
        });
        if (bytes > maxResponseBytes) throw tooLarge(revision ?? 0);
      }
      return { historyId };
    };
    ids.add((await inHistory(resource, known, signal, read)).historyId);
  }
  const [historyId = ""] = ids;
  if (ids.size <= 1) return { revision: revision ?? 0, historyId, objects };
  throw upstreamUnavailable("The store's history has changed during the read. Try again.");
}

function tooLarge(revision: number): WatchFanoutError {
  return new WatchFanoutError(
    "LIST_TOO_LARGE",
    `The objects are above the limit of ${maxResponseBytes} bytes for one response at revision ${revision}. Get fewer at once, ` +
      "and the others at the same revision (EXACT).",
    { metadata: { limit: String(maxResponseBytes), revision: String(revision) } },
  );
}
