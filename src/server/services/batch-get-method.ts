import { invalidRequest, upstreamUnavailable, WatchFanoutError } from "../../base/errors.ts";
import type { Reached } from "../../cacher/request/request.ts";
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
      const { revision, found } = await readAll(names, at, reached, (name, each) =>
        readOne(name, each, reached, request.history_id, call),
      );
      const historyId = oneHistory(found);
      checkSize(found, revision);
      return () => {
        const ages = names.map(({ resource }) => stalenessOf(resource, at) ?? -1);
        const staleForMs = Math.max(...ages);
        const message = listWatchService.BatchGet.responseSerialize({
          ...{ revision, history_id: historyId },
          objects: found.map(({ result }) => ({ object: objectMessage(result.object) })),
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

interface Found {
  readonly result: GetResult;
  readonly historyId: string;
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

/** Reads all objects at one revision. */
async function readAll(
  names: readonly Named[],
  at: RevisionRequirement,
  reached: ReachedRevision | undefined,
  read: (name: Named, at: RevisionRequirement) => Promise<Found>,
): Promise<{ readonly revision: number; readonly found: readonly Found[] }> {
  const atOnce = (all: readonly Named[], revision: number): Promise<Found[]> =>
    Promise.all(all.map((name) => read(name, { match: "EXACT", revision })));
  if (reached !== undefined) {
    const { revision } = reached;
    return { revision, found: await atOnce(names, revision) };
  }
  const [first, ...others] = names;
  const begun = await read(first as Named, at);
  const { revision } = begun.result;
  return { revision, found: [begun, ...(await atOnce(others, revision))] };
}

function readOne(
  { resource, key }: Named,
  at: RevisionRequirement,
  reached: ReachedRevision | undefined,
  known: string,
  { signal, owner }: UnaryCall,
): Promise<Found> {
  const get = { key, at, signal, owner };
  return inHistory(resource, known, signal, () => resource.get(get, reached?.caches.get(resource)));
}

/** The history that all results are of. Throws UPSTREAM_UNAVAILABLE if they differ. */
function oneHistory(found: readonly Found[]): string {
  const ids = new Set(found.map(({ historyId }) => historyId));
  const [id = ""] = ids;
  if (ids.size <= 1) return id;
  throw upstreamUnavailable("The store's history has changed during the read. Try again.");
}

function checkSize(found: readonly Found[], revision: number): void {
  let bytes = 0;
  for (const { result } of found) bytes += result.object ? 8 + encodedSize(result.object) : 4;
  if (bytes <= maxResponseBytes) return;
  throw new WatchFanoutError(
    "LIST_TOO_LARGE",
    `The objects have ${bytes} bytes at revision ${revision}, above the limit of ${maxResponseBytes} for one response. Get ` +
      "fewer at once, and the others at the same revision (EXACT).",
    { metadata: { limit: String(maxResponseBytes), revision: String(revision) } },
  );
}
