import type sortedBTree from "sorted-btree";
import { compareKeys } from "../../model/key-order.ts";
import { estimatedBytes, type StoredObject } from "../../model/object.ts";
import type { ListRequest, ListResult } from "../storage.ts";
import type { KeyVersions } from "./key-versions.ts";

/** All keys that exist or existed in the kept history, in key order. */
export type KeyIndex = sortedBTree.default<string, KeyVersions>;

/** Maximum number of objects after a page that are counted one by one; above it their number is unknown. */
const maxCounted = 10_000;

/** Maximum number of objects that a page with a predicate reads. Such a page may be short or empty. */
const maxScanned = 50_000;

/**
 * Returns one page of a list at `revision`. The number of remaining objects is unknown with a predicate, and if
 * counting them for each page would block the event loop.
 */
export function page(keys: KeyIndex, request: ListRequest, revision: number): ListResult {
  const { limit, maxBytes = 0, predicate } = request;
  const items: StoredObject[] = [];
  let bytes = 0;
  let isFull = false;
  let remaining = 0;
  let scanned = 0;
  /** The last key that the predicate has checked. */
  let lookedAt = request.startAfter;
  for (const kept of range(keys, request, revision)) {
    if (isFull) {
      remaining++;
      if (predicate !== undefined || remaining > maxCounted) break;
      continue;
    }
    const object = kept.withoutAttributes();
    if (predicate !== undefined) {
      if (scanned === maxScanned) {
        return { revision, items, next: lookedAt, remaining: undefined };
      }
      scanned++;
      lookedAt = object.key;
      if (!predicate(object)) continue;
    }
    const size = estimatedBytes(object);
    if (items.length > 0 && maxBytes > 0 && bytes + size > maxBytes) {
      isFull = true;
      remaining++;
      continue;
    }
    items.push(object);
    bytes += size;
    isFull = items.length === limit;
  }
  const known = predicate === undefined && remaining <= maxCounted;
  return {
    revision,
    items,
    next: remaining === 0 ? undefined : items.at(-1)?.key,
    remaining: remaining === 0 || known ? remaining : undefined,
  };
}

/** The objects at `revision` whose keys the request selects, in key order. */
function* range(
  keys: KeyIndex,
  request: ListRequest,
  revision: number,
): Generator<StoredObject, void, void> {
  const { prefix, startAfter } = request;
  const continues = startAfter !== undefined && compareKeys(startAfter, prefix) >= 0;
  for (const [key, versions] of keys.entries(continues ? startAfter : prefix)) {
    if (continues && key === startAfter) continue;
    if (!key.startsWith(prefix)) return;
    const object = versions.at(revision);
    if (object !== undefined) yield object;
  }
}
