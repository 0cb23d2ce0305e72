import { invalidRequest } from "../../base/errors.ts";
import type { StoredObject } from "../../model/object.ts";
import type {
  DeletePrefixRequest,
  DeletePrefixResult,
  Store,
  StoreWrite,
  TransactRequest,
  TransactResult,
} from "../../storage/store.ts";
import type { UnaryContext } from "../calls/service-context.ts";
import type { ServedResource } from "../calls/service-options.ts";

/** A result, with the id of the history that its revision belongs to; empty if that can't be determined. */
type InHistory<T> = T & { readonly historyId: string };

/** The service's store. Throws INVALID_REQUEST if there is no store. */
export function storeOf({ store }: Pick<UnaryContext, "store">): Store {
  if (store !== undefined) return store;
  throw invalidRequest(
    "resource",
    "This server has no store that its resources share, which transactions, request ids, validate_only, return_current and " +
      "DeletePrefix need: it was started without `store`. Put or Delete without them.",
  );
}

/** Executes a transaction. Every resource that it writes learns what its result says of the history. */
export function transact(
  context: Pick<UnaryContext, "store" | "resources">,
  request: TransactRequest,
): Promise<InHistory<TransactResult>> {
  const store = storeOf(context);
  const { operations, compares, signal } = request;
  const names = new Set([...operations, ...compares].map(({ resource }) => resource));
  const written = (name: string) => (result: TransactResult) =>
    result.results.find((_, i) => operations[i]?.resource === name)?.object;
  return followed(context, store.transact(request), names, written, signal);
}

/** Deletes what begins with a prefix. As `transact`. */
export function deletePrefix(
  context: Pick<UnaryContext, "store" | "resources">,
  request: DeletePrefixRequest,
): Promise<InHistory<DeletePrefixResult>> {
  const writing = storeOf(context).deletePrefix(request);
  return followed(
    context,
    writing,
    new Set([request.resource]),
    () => () => undefined,
    request.signal,
  );
}

async function followed<T extends StoreWrite>(
  { resources }: Pick<UnaryContext, "resources">,
  writing: Promise<T>,
  names: ReadonlySet<string>,
  written: (name: string) => (result: T) => StoredObject | undefined,
  signal: AbortSignal = new AbortController().signal,
): Promise<InHistory<T>> {
  const touched = [...names].map((name) => resources.get(name));
  const learning = [...names].map((name) =>
    resources.get(name)?.historyOfWrite?.(writing, written(name), signal),
  );
  const ids = await Promise.all(learning);
  const result = await writing;
  const known = ids.filter((id) => id !== undefined);
  return { ...result, historyId: agreed(known) ?? result.historyId ?? currentOf(touched) };
}

/** The id that all have; empty if they differ; undefined: no resource has one. */
function agreed(ids: readonly string[]): string | undefined {
  return ids.every((id) => id === ids[0]) ? ids[0] : "";
}

function currentOf([first]: readonly (ServedResource | undefined)[]): string {
  return first?.currentHistoryId ?? "";
}
