/** Complete revisions, in order. */
export interface CompleteRevisions<Event> {
  /** The last of them: everything up to it has come. */
  readonly revision: number;
  readonly events: readonly Event[];
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
 * number of keys. So the held size of one revision is bounded here.
 */
export class WholeRevisions<Event> {
  readonly #maxBytes: number;
  readonly #tooLarge: (revision: number, maxBytes: number) => Error;
  #open: Event[] = [];
  #openBytes = 0;
  /** The revision of the held events; 0: nothing is held. */
  #openRevision = 0;
  #whole: Event[] = [];
  #wholeRevision = 0;

  /** `maxBytes`: maximum size of the held events of one revision; above it `add` throws the error of `tooLarge`. */
  constructor(maxBytes: number, tooLarge: (revision: number, maxBytes: number) => Error) {
    this.#maxBytes = maxBytes;
    this.#tooLarge = tooLarge;
  }

  /** Whether a revision is incomplete. */
  get isOpen(): boolean {
    return this.#openRevision !== 0;
  }

  /** Adds an event of this size, or only its revision if the event is not for the reader. */
  add(revision: number, event: Event | undefined, bytes: number): void {
    if (revision !== this.#openRevision) {
      this.#close();
      this.#openRevision = revision;
    }
    if (event === undefined) return;
    this.#open.push(event);
    this.#openBytes += bytes;
    if (this.#openBytes > this.#maxBytes) throw this.#tooLarge(revision, this.#maxBytes);
  }

  /** To be called after all events of a response. Returns what is complete, if anything is. */
  endResponse(isFragment: boolean): CompleteRevisions<Event> | undefined {
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
