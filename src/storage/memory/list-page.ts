import type sortedBTree from "sorted-btree";
import { compareKeys } from "../../model/key-order.ts";
import { estimatedBytes, type StoredObject } from "../../model/object.ts";
import type { ListRequest, ListResult } from "../storage.ts";
import type { KeyVersions } from "./key-versions.ts";

/** All keys that exist, or did in the history that is kept, in key order. */
export type KeyIndex = sortedBTree.default<string, KeyVersions>;

/** How many objects that follow a page are counted, one by one, before their number stays unknown. */
const maxCounted = 10_000;

/** How many objects a page looks at where a predicate picks them: then it is short, or empty. */
const maxScanned = 50_000;

/**
 * One page of a listing at `revision`. How many objects follow is unknown where a predicate picks, and
 * where there are so many that counting them for each page would hold everything else up.
 */
export function page(keys: KeyIndex, request: ListRequest, revision: number): ListResult {
  const { limit, maxBytes = 0, predicate } = request;
  const items: StoredObject[] = [];
  let bytes = 0;
  let full = false;
  let remaining = 0;
  let scanned = 0;
  /** The last key that a predicate was asked about. */
  let lookedAt = request.startAfter;
  for (const object of range(keys, request, revision)) {
    if (full) {
      remaining++;
      if (predicate !== undefined || remaining > maxCounted) break;
      continue;
    }
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
      full = true;
      remaining++;
      continue;
    }
    items.push(object);
    bytes += size;
    full = items.length === limit;
  }
  const known = predicate === undefined && remaining <= maxCounted;
  return {
    revision,
    items,
    next: remaining === 0 ? undefined : items.at(-1)?.key,
    remaining: remaining === 0 || known ? remaining : undefined,
  };
}

/** The objects at `revision` whose keys the request asks for, in key order. */
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
