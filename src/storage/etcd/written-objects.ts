import type { StoredObject } from "../../model/object.ts";
import type { Storage, WrittenAfterRequest, WrittenObjects } from "../storage.ts";

/** Keys per page, few enough not to block the event loop for long. */
const pageSize = 10_000;

/**
 * Serves `writtenAfter` by reading every key below `prefix`, for storages where etcd's own count includes keys that
 * are no objects of the resource.
 */
export async function scanWrittenObjects(
  storage: Storage,
  prefix: string,
  { revision, after, limit, signal }: WrittenAfterRequest,
): Promise<WrittenObjects> {
  const at = { match: "EXACT", revision } as const;
  const written: StoredObject[] = [];
  let total = 0;
  let startAfter: string | undefined;
  do {
    const page = { prefix, startAfter, limit: pageSize, keysOnly: true, at, signal };
    const { items, next } = await storage.list(page);
    total += items.length;
    for (const object of items) {
      if (object.modRevision > after && written.length < limit) written.push(object);
    }
    startAfter = next;
  } while (startAfter !== undefined);
  return { written, total };
}
