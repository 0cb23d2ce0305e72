import type { StoredObject } from "../../model/object.ts";

/** The answer to a call about one object. */
export interface ObjectResult {
  /** Get: the revision that the answer is true at. Put and delete: the revision of the write. */
  readonly revision: number;
  /** Get and put: as it stands. Delete: as it stood. */
  readonly object: StoredObject;
  readonly historyId: string;
}

export interface Page {
  /** The same on every page of one listing. A watch after it continues the listing without a gap. */
  readonly revision: number;
  /** In key order. */
  readonly items: readonly StoredObject[];
  /** How many objects follow this page, where the server knows. */
  readonly remainingItemCount: number | undefined;
  /** Empty on the last page. */
  readonly nextPageToken: string;
  readonly historyId: string;
}
