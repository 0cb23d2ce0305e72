import { hasReason, invalidRequest, type WatchFanoutError } from "../base/errors.ts";
import { memoryOverheadBytes } from "../model/event.ts";
import { estimatedBytes, type StoredObject } from "../model/object.ts";
import { checkSameHistory } from "../storage/checks.ts";
import type { Storage } from "../storage/storage.ts";
import type { ReflectorOptions } from "./reflector-target.ts";

/** Maximum size of one page in bytes, if the list is bounded in bytes. */
const maxPageBytes = 8 * 1024 ** 2;

/** Maximum attempts of one list, each at a newer revision because the one before was compacted. */
const maxAttempts = 4;

type ListOptions = Pick<ReflectorOptions, "storage" | "scope" | "pageSize" | "maxBytes">;

interface Listed {
  readonly objects: readonly StoredObject[];
  /** As that of a ListResult. */
  readonly historyId: string | undefined;
}

/** The store's revision. With `mayBeCached`, and if that can't be asked, the revision of what another server has of it. */
export async function revisionToList(
  storage: Storage,
  mayBeCached: boolean,
  signal: AbortSignal,
): Promise<number> {
  try {
    return await storage.currentRevision(signal);
  } catch (error) {
    const isAway = hasReason(error, "UPSTREAM_UNAVAILABLE");
    const cached = mayBeCached && isAway ? storage.cachedRevision?.(signal) : undefined;
    if (cached === undefined) throw error;
    return cached;
  }
}

/**
 * Lists the whole state of a scope at one revision, page by page: at `revision`, or at a later one if that is
 * compacted.
 */
export async function listState(
  options: ListOptions,
  revision: number,
  signal: AbortSignal,
): Promise<Listed & { readonly revision: number }> {
  let at = revision;
  for (let attempt = 1; ; attempt++) {
    try {
      return { ...(await listAt(options, at, signal)), revision: at };
    } catch (error) {
      if (!hasReason(error, "REVISION_TOO_OLD") || attempt === maxAttempts) throw error;
      const oldest = Number(error.metadata["oldest_revision"] ?? Number.NaN);
      at = oldest > at ? oldest : await options.storage.currentRevision(signal);
    }
  }
}

async function listAt(
  options: ListOptions,
  revision: number,
  signal: AbortSignal,
): Promise<Listed> {
  const { storage, scope = { prefix: "" }, maxBytes = 0 } = options;
  const { pageSize = maxBytes > 0 ? 50_000 : 0 } = options;
  const at = { match: "EXACT", revision } as const;
  if ("key" in scope) {
    const { object, historyId } = await storage.get({ key: scope.key, at, signal });
    return { objects: object === undefined ? [] : [object], historyId };
  }
  const { prefix } = scope;
  const objects: StoredObject[] = [];
  // A number of objects alone does not bound the size of a page.
  const pageBytes = Math.min(maxBytes, maxPageBytes);
  let startAfter: string | undefined;
  let bytes = 0;
  let historyId: string | undefined;
  do {
    const page = await storage.list({
      ...{ prefix, startAfter, at, signal },
      limit: pageSize,
      maxBytes: pageBytes,
    });
    checkSameHistory(historyId, page.historyId);
    // A page may name none, as it was received with the one before.
    historyId ||= page.historyId;
    // Not copied: a large state would take twice its array.
    const isWhole = objects.length === 0 && page.next === undefined && maxBytes === 0;
    if (isWhole) return { objects: page.items, historyId };
    for (const object of page.items) {
      objects.push(object);
      bytes += estimatedBytes(object) + memoryOverheadBytes;
    }
    if (maxBytes > 0 && bytes > maxBytes) throw stateTooLarge(maxBytes);
    startAfter = page.next;
  } while (startAfter !== undefined);
  return { objects, historyId };
}

function stateTooLarge(maxBytes: number): WatchFanoutError {
  return invalidRequest(
    "maxBytes",
    `The objects to hold take more than the limit of ${maxBytes} bytes. Follow fewer, by a prefix or selectors, or ` +
      "raise maxBytes.",
  );
}
