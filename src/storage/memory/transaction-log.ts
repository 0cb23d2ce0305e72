import { Fifo } from "../../base/fifo.ts";
import type { WatchEvent } from "../../model/event.ts";
import { logBytes } from "./memory-estimates.ts";

/** The revision of a store that nothing was ever written to, as in etcd. */
const firstRevision = 1;

/** Everything that one revision changed, in the order in which it did. */
export class Transaction {
  readonly revision: number;
  /** With `previous`. */
  readonly events: readonly WatchEvent[];
  /** What it takes, in bytes. */
  readonly bytes: number;

  constructor(revision: number, events: readonly WatchEvent[]) {
    this.revision = revision;
    this.events = events;
    let bytes = 0;
    for (const event of events) bytes += logBytes(event);
    this.bytes = bytes;
  }
}

/**
 * The newest transactions, one for each revision and none left out, so that the place of a revision is
 * a subtraction. Watches keep a position in it and no copies of their own.
 */
export class TransactionLog {
  readonly #transactions = new Fifo<Transaction>();
  #newest = firstRevision;
  #compacted = 0;
  #bytes = 0;

  /** The store's current revision. */
  get newest(): number {
    return this.#newest;
  }

  /**
   * The oldest revision at which the state is still known, and so the oldest that a watch can go on
   * from. 0 until something is compacted.
   */
  get oldest(): number {
    return this.#compacted;
  }

  /** The revision of the oldest transaction that is kept; the one after `newest` if none is. */
  get first(): number {
    return this.#newest - this.#transactions.length + 1;
  }

  /** How many transactions are kept. */
  get length(): number {
    return this.#transactions.length;
  }

  /** What the kept transactions take, in bytes. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Its revision has to be the one after `newest`. */
  append(transaction: Transaction): void {
    this.#transactions.push(transaction);
    this.#newest = transaction.revision;
    this.#bytes += transaction.bytes;
  }

  /** The transaction that made `revision`; undefined if it is not kept, or made none. */
  at(revision: number): Transaction | undefined {
    return this.#transactions.at(revision - this.first);
  }

  /** Takes the oldest transaction away: from now on the state at its revision is the oldest known. */
  shift(): Transaction | undefined {
    const oldest = this.#transactions.shift();
    if (oldest !== undefined) {
      this.#bytes -= oldest.bytes;
      this.#compacted = oldest.revision;
    }
    return oldest;
  }

  /** That nothing below `revision` is known any more, once what is older has been shifted. */
  forgetBefore(revision: number): void {
    this.#compacted = Math.max(this.#compacted, revision);
  }
}
