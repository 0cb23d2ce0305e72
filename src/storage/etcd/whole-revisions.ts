import type { WatchEvent } from "../event.ts";

/** Revisions that have come to their end, in order. */
export interface Whole {
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
 * a fragment may go on, and is held back; all before it are whole. What is held is one transaction at
 * the most, whose size etcd bounds (--max-txn-ops, --max-request-bytes).
 */
export class WholeRevisions {
  #open: WatchEvent[] = [];
  /** The revision of what is held back; 0: nothing is. */
  #openRevision = 0;
  #whole: WatchEvent[] = [];
  #wholeRevision = 0;

  /** Whether a revision has begun to come and not ended. */
  get isOpen(): boolean {
    return this.#openRevision !== 0;
  }

  /** An event, or only the revision of one that nobody is told of. */
  add(revision: number, event: WatchEvent | undefined): void {
    if (revision !== this.#openRevision) {
      this.#close();
      this.#openRevision = revision;
    }
    if (event !== undefined) this.#open.push(event);
  }

  /** After all events of a response: what is whole now, if anything is. */
  endResponse(isFragment: boolean): Whole | undefined {
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
    this.#openRevision = 0;
  }
}
