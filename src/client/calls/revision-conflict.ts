import { revisionConflict, WatchFanoutError } from "../../base/errors.ts";
import type { StoredObject } from "../../model/object.ts";

/** The error REVISION_CONFLICT of a write with `returnCurrent`: it has the object that was not as expected. */
export class RevisionConflict extends WatchFanoutError {
  /** The current object; undefined: it does not exist. */
  readonly current: StoredObject | undefined;
  /** A revision at which it was so. */
  readonly revision: number;
  /** The history that the revision belongs to; empty if the server does not know it. */
  readonly historyId: string;

  /** `expected`: the mod revision that was required. */
  constructor(
    key: string,
    expected: number,
    found: {
      readonly current: StoredObject | undefined;
      readonly revision: number;
      readonly historyId: string;
    },
  ) {
    const { message, metadata } = revisionConflict(key, expected, found.current?.modRevision ?? 0);
    super("REVISION_CONFLICT", message, { metadata });
    this.current = found.current;
    this.revision = found.revision;
    this.historyId = found.historyId;
  }
}
