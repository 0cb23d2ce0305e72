import { WatchFanoutError } from "../../../base/errors.ts";
import { memoryOverheadBytes, type WatchEvent } from "../../../model/event.ts";

const defaultMaxRevisionBytes = 256 * 1024 ** 2;

/** Revisions that have come to their end, in order. */
export interface AssembledRevisions {
  /** The last of them: everything up to it has come. */
  readonly revision: number;
  readonly events: readonly WatchEvent[];
}

/**
 * Puts etcd's responses together to whole revisions.
 *
 * etcd never splits a revision between two answers of its store: a batch for a watch that catches up
 * ends before the first event of the next revision. With `fragment`, and only then, one such answer
 * comes as several responses, of which all but the last are marked as fragments. So the last revision of
 * a fragment may go on, and is held back; all before it are whole.
 *
 * What a transaction writes etcd bounds (--max-txn-ops, --max-request-bytes), but not what it removes: a range of
 * any number of keys. So what is held of one revision is bounded here. Beyond that history is lost: to list what
 * is left then costs less than to be told of all that has gone.
 */
export class FragmentAssembler {
  readonly #maxBytes: number;
  #open: WatchEvent[] = [];
  #openBytes = 0;
  /** The revision of what is held back; 0: nothing is. */
  #openRevision = 0;
  #whole: WatchEvent[] = [];
  #wholeRevision = 0;

  /** How much of one revision is held, in bytes. */
  constructor(maxBytes: number = defaultMaxRevisionBytes) {
    this.#maxBytes = maxBytes;
  }

  /** Whether a revision has begun to come and not ended. */
  get isOpen(): boolean {
    return this.#openRevision !== 0;
  }

  /** An event, or only the revision of one that nobody is told of. Throws HISTORY_LOST of one too many. */
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

  /** After all events of a response: what is whole now, if anything is. */
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
    `Revision ${revision} takes more than the ${maxBytes} bytes that are held of one, as of a range of very many ` +
      "keys that was deleted at once. List anew and go on from there.",
    { metadata: { current_revision: String(revision) } },
  );
}
