import type { StoredObject } from "../../model/object.ts";
import type { KeptRequest } from "../journal/journal.ts";
import type {
  CompareResult,
  DeletePrefixRequest,
  DeletePrefixResult,
  OperationResult,
  Operation as StoreOperation,
  TransactRequest,
  TransactResult,
} from "../store.ts";
import {
  changedTwice,
  FoundObjects,
  fingerprintOf,
  holds,
  tooManyToDelete,
} from "../transaction-checks.ts";
import type { Resources } from "./resource-keys.ts";
import type { StoreDraft } from "./store-draft.ts";

/** The result of a transaction that is executed in `draft`, without what all results have. */
export type Transacted = Pick<TransactResult, "compares" | "results" | "succeeded">;

const nothing = { compares: [], results: [] };

/** Executes a transaction. */
export function transactIn(
  draft: StoreDraft,
  request: TransactRequest,
  resources: Resources,
): Transacted {
  const { compares, operations, validateOnly = false, returnCurrent = false } = request;
  const found = compares.map((compare): CompareResult => {
    const object = currentIn(draft, resources, compare);
    return { held: holds(compare, object), object };
  });
  if (!found.every(({ held }) => held)) {
    const shown = returnCurrent ? found : [];
    const sizes = new FoundObjects();
    for (const { object } of shown) sizes.add(object);
    return { ...nothing, succeeded: false, compares: shown };
  }
  if (validateOnly) return { ...nothing, succeeded: true };
  const sizes = new FoundObjects();
  const granted = new Map<number, bigint>();
  const results = operations.map((operation): OperationResult => {
    const before = currentIn(draft, resources, operation);
    const object = execute(draft, resources, operation, granted);
    return {
      object,
      ...(request.returnPrevious === true ? shownPrevious(before, sizes) : noPrevious),
    };
  });
  remember(draft, request);
  return { ...nothing, succeeded: true, results };
}

/** Deletes what begins with a prefix. Returns the number of objects. Throws TRANSACTION_TOO_LARGE above `limit`. */
export function deletePrefixIn(
  draft: StoreDraft,
  request: DeletePrefixRequest,
  resources: Resources,
  limit: number,
): Pick<DeletePrefixResult, "deleted"> {
  const keys = resources.of(request.resource);
  const { from, to } = keys.wholeInterval(request);
  const found: string[] = [];
  for (const { key } of draft.range(from, to)) if (keys.has(key)) found.push(key);
  const deleted = found.length;
  if (request.validateOnly === true) return { deleted };
  if (deleted > limit) throw tooManyToDelete(request, deleted, limit);
  for (const key of found) draft.delete(key);
  remember(draft, request);
  return { deleted };
}

/** The results of a transaction that was executed before. `at` returns the object of a whole key at a revision. */
export async function resultsOf(
  { operations, returnPrevious = false }: TransactRequest,
  { revision, before }: KeptRequest,
  resources: Resources,
  at: (key: string, revision: number) => Promise<StoredObject | undefined>,
): Promise<readonly OperationResult[]> {
  const sizes = new FoundObjects();
  const results: OperationResult[] = [];
  for (const operation of operations) {
    const keys = resources.of(operation.resource);
    const shownAt = async (then: number): Promise<StoredObject | undefined> => {
      const object = await at(keys.whole(operation.key), then);
      return object && keys.shown(object);
    };
    results.push({
      object: operation.type === "put" ? await shownAt(revision) : undefined,
      ...(returnPrevious ? shownPrevious(await shownAt(before), sizes) : noPrevious),
    });
  }
  return results;
}

/** Throws INVALID_REQUEST if two operations change the same key. */
export function checkDistinct(operations: readonly StoreOperation[], resources: Resources): void {
  const changed = new Map<string, StoreOperation>();
  for (const operation of operations) {
    const key = resources.whole(operation);
    const other = changed.get(key);
    if (other !== undefined) throw changedTwice(operation, other);
    changed.set(key, operation);
  }
}

function currentIn(
  draft: StoreDraft,
  resources: Resources,
  { resource, key }: { readonly resource: string; readonly key: string },
): StoredObject | undefined {
  const keys = resources.of(resource);
  const object = draft.get(keys.whole(key));
  return object && keys.shown(object);
}

/** Executes one operation. `granted`: the leases of this transaction by their length. Returns the object of a put. */
function execute(
  draft: StoreDraft,
  resources: Resources,
  operation: StoreOperation,
  granted: Map<number, bigint>,
): StoredObject | undefined {
  const keys = resources.of(operation.resource);
  const key = keys.whole(operation.key);
  if (operation.type === "delete") {
    draft.delete(key);
    return undefined;
  }
  const { value, ttlSeconds } = operation;
  let { lease = 0n } = operation;
  if (ttlSeconds !== undefined) {
    lease = granted.get(ttlSeconds) ?? draft.grant(ttlSeconds, false);
    granted.set(ttlSeconds, lease);
  }
  return keys.shown(draft.put(key, value, lease));
}

/** Has the request remembered, if it has an id and is not one that only compares. */
function remember(draft: StoreDraft, request: TransactRequest | DeletePrefixRequest): void {
  const { requestId: id = "" } = request;
  if (id === "" || ("operations" in request && request.operations.length === 0)) return;
  const fingerprint = fingerprintOf(request);
  draft.request = { id, fingerprint, revision: draft.after, before: draft.before };
}

const noPrevious = { previous: undefined };

/** The object before a transaction, unless all of them are too large for one result. */
function shownPrevious(
  previous: StoredObject | undefined,
  sizes: FoundObjects,
): Pick<OperationResult, "previous" | "previousLeftOut"> {
  return sizes.fit(previous) ? { previous } : { previous: undefined, previousLeftOut: true };
}
