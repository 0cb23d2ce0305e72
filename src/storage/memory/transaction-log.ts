import { historyChanged, revisionTooOld } from "../../base/errors.ts";
import { Fifo } from "../../base/fifo.ts";
import type { WatchEvent } from "../../model/event.ts";
import type { RevisionRequirement } from "../storage.ts";
import type { Keyspace } from "./keyspace.ts";
import { logBytes } from "./memory-estimates.ts";

/** The revision of an empty store, as in etcd. */
const firstRevision = 1;

/** The changes of one revision to the keys of one resource, in order, with `previous`. */
export interface KeyEvents {
  readonly keys: Keyspace;
  readonly events: readonly WatchEvent[];
}

/** All changes of one revision. */
export class Transaction {
  readonly revision: number;
  /** One for each resource that it changed. */
  readonly parts: readonly KeyEvents[];
  /** Estimated memory in bytes. */
  readonly bytes: number;

  constructor(revision: number, parts: readonly KeyEvents[]) {
    this.revision = revision;
    this.parts = parts;
    let bytes = 0;
    for (const { events } of parts) for (const event of events) bytes += logBytes(event);
    this.bytes = bytes;
  }
}

/**
 * The newest transactions, one for each revision without gaps, so a revision's index is a subtraction. Watches keep a
 * position in it and no copies.
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
   * The oldest revision whose state is known, which is the oldest that a watch can continue from. 0 before the first
   * compaction.
   */
  get oldest(): number {
    return this.#compacted;
  }

  /** The revision of the oldest kept transaction; the one after `newest` if the log is empty. */
  get first(): number {
    return this.#newest - this.#transactions.length + 1;
  }

  /** Number of kept transactions. */
  get length(): number {
    return this.#transactions.length;
  }

  /** Memory of the kept transactions, in bytes. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Returns the revision to read at; throws if it can't be read. */
  resolve(at: RevisionRequirement): number {
    const { newest, oldest } = this;
    if (at.match === "LINEARIZABLE" || at.match === "ANY") return newest;
    if (at.revision > newest) throw historyChanged(at.revision, newest);
    if (at.match === "NOT_OLDER_THAN") return newest;
    if (at.revision < oldest) throw revisionTooOld(at.revision, oldest);
    return at.revision;
  }

  /** Its revision must be the one after `newest`. */
  append(transaction: Transaction): void {
    this.#transactions.push(transaction);
    this.#newest = transaction.revision;
    this.#bytes += transaction.bytes;
  }

  /** The transaction of `revision`; undefined if it is not kept or does not exist. */
  at(revision: number): Transaction | undefined {
    return this.#transactions.at(revision - this.first);
  }

  /** Drops the oldest transaction: the state at its revision becomes the oldest known one. */
  shift(): Transaction | undefined {
    const oldest = this.#transactions.shift();
    if (oldest !== undefined) {
      this.#bytes -= oldest.bytes;
      this.#compacted = oldest.revision;
    }
    return oldest;
  }

  /** Nothing below `revision` is known any more; all older transactions have been dropped. */
  forgetBefore(revision: number): void {
    this.#compacted = Math.max(this.#compacted, revision);
  }
}
