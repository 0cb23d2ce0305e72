import { hasReason, WatchFanoutError } from "../../base/errors.ts";
import type { WatchEvent } from "../../model/event.ts";
import { isSameObject, type StoredObject } from "../../model/object.ts";
import type { Storage } from "../../storage/storage.ts";

/**
 * The last known change of a history, which identifies it. A store that was restored to an older state and has grown
 * since may have any revision, but hardly the same change at the same revision.
 */
export class StoreFingerprint {
  #object: StoredObject | undefined;
  #isDeletion = false;

  /** Takes the newest change of a listed state. */
  ofState(objects: readonly StoredObject[]): void {
    this.#object = undefined;
    this.#isDeletion = false;
    for (const object of objects) {
      if (object.modRevision > (this.#object?.modRevision ?? 0)) this.#object = object;
    }
  }

  of(event: WatchEvent | undefined): void {
    if (event === undefined) return;
    this.#object = event.object;
    this.#isDeletion = event.type === "DELETED";
  }

  /**
   * Rejects with HISTORY_CHANGED if the store does not have this change, or has not reached its revision. Resolves if
   * it has, and if the revision is compacted.
   */
  async check(storage: Storage, signal: AbortSignal): Promise<void> {
    // Copied at one moment, as changes may come during the request.
    const object = this.#object;
    const isDeletion = this.#isDeletion;
    if (object === undefined) return;
    const { key, modRevision } = object;
    const at = async (revision: number): Promise<StoredObject | undefined> => {
      const result = await storage.get({ key, at: { match: "EXACT", revision }, signal });
      return result.object;
    };
    try {
      const now = await at(modRevision);
      const isSame = isDeletion
        ? now === undefined && (await at(modRevision - 1)) !== undefined
        : now !== undefined && isSameObject(now, object);
      if (!isSame) throw notThisHistory(object);
    } catch (error) {
      if (!hasReason(error, "REVISION_TOO_OLD")) throw error;
    }
  }
}

function notThisHistory({ key, modRevision }: StoredObject): WatchFanoutError {
  return new WatchFanoutError(
    "HISTORY_CHANGED",
    `The store no longer has the change of ${JSON.stringify(key)} at revision ${modRevision}: its history ` +
      "has changed. Relist and watch from the list's revision.",
    { metadata: { history_id: "" } },
  );
}
