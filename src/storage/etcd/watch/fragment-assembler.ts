import { WatchFanoutError } from "../../../base/errors.ts";
import { memoryOverheadBytes, type WatchEvent } from "../../../model/event.ts";

const defaultMaxRevisionBytes = 256 * 1024 ** 2;

/** Complete revisions, in order. */
interface AssembledRevisions {
  /** The last of them: everything up to it has come. */
  readonly revision: number;
  readonly events: readonly WatchEvent[];
}

/**
 * Joins etcd's responses to complete revisions.
 *
 * etcd never splits a revision between two reads of its store: a batch for an unsynced watch ends before the first
 * event of the next revision. Only with `fragment`, one such batch comes as several responses, all but the last of
 * which are marked as fragments. So the last revision of a fragment may be incomplete and is held; all before it are
 * complete.
 *
 * etcd bounds what a transaction writes (--max-txn-ops, --max-request-bytes), but not what it deletes: a range of any
 * number of keys. So the held size of one revision is bounded here. Above the bound, history is lost: a list of what is
 * left costs less than the events of all that was deleted.
 */
export class FragmentAssembler {
  readonly #maxBytes: number;
  #open: WatchEvent[] = [];
  #openBytes = 0;
  /** The revision of the held events; 0: nothing is held. */
  #openRevision = 0;
  #whole: WatchEvent[] = [];
  #wholeRevision = 0;

  /** `maxBytes`: maximum size of the held events of one revision, in bytes. */
  constructor(maxBytes: number = defaultMaxRevisionBytes) {
    this.#maxBytes = maxBytes;
  }

  /** Whether a revision is incomplete. */
  get isOpen(): boolean {
    return this.#openRevision !== 0;
  }

  /** Adds an event, or only its revision if the event is not for the reader. Throws HISTORY_LOST above the bound. */
  add(revision: number, event: WatchEvent | undefined): void {
    if (revision !== this.#openRevision) {
      this.#close();
      this.#openRevision = revision;
    }
    if (event === undefined) return;
    this.#open.push(event);
    this.#openBytes += event.estimatedBytes + memoryOverheadBytes;
    if (this.#openBytes > this.#maxBytes) throw tooLarge(revision, this.#maxBytes);
  }

  /** To be called after all events of a response. Returns what is complete, if anything is. */
  endResponse(isFragment: boolean): AssembledRevisions | undefined {
    if (!isFragment) this.#close();
    if (this.#wholeRevision === 0) return undefined;
    const whole = { revision: this.#wholeRevision, events: this.#whole };
    this.#whole = [];
    this.#wholeRevision = 0;
    return whole;
  }

  #close(): void {
    if (this.#openRevision === 0) return;
    this.#wholeRevision = this.#openRevision;
    if (this.#whole.length === 0) this.#whole = this.#open;
    else for (const event of this.#open) this.#whole.push(event);
    this.#open = [];
    this.#openBytes = 0;
    this.#openRevision = 0;
  }
}

function tooLarge(revision: number, maxBytes: number): WatchFanoutError {
  return new WatchFanoutError(
    "HISTORY_LOST",
    `Revision ${revision} is above the limit of ${maxBytes} bytes for one revision, as is the deletion of a range of very many ` +
      "keys. Relist and watch from the list's revision.",
    { metadata: { current_revision: String(revision) } },
  );
}
