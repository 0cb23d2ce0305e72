import { historyChanged, revisionTooOld } from "../../base/errors.ts";
import { Fifo } from "../../base/fifo.ts";
import type { WatchEvent } from "../../model/event.ts";
import type { RevisionRequirement } from "../storage.ts";
import { logBytes } from "./memory-estimates.ts";

/** The revision of an empty store, as in etcd. */
const firstRevision = 1;

/** All changes of one revision. */
export class Transaction {
  readonly revision: number;
  /** In order, with `previous`. Keys are whole. */
  readonly events: readonly WatchEvent[];
  /** Estimated memory in bytes. */
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
 * The newest transactions, one for each revision without gaps, so a revision's index is a subtraction. Watches keep a
 * position in it and no copies.
 *
 * Those up to `kept` are what readers may see. The others have been applied, but are not on disk yet: only later writes
 * see them.
 */
export class TransactionLog {
  readonly #transactions = new Fifo<Transaction>();
  #newest = firstRevision;
  #kept = firstRevision;
  #compacted = 0;
  #bytes = 0;

  /** The newest revision, which may be unkept. */
  get newest(): number {
    return this.#newest;
  }

  /** The newest revision that is kept: the store's current revision for all that read. */
  get kept(): number {
    return this.#kept;
  }

  /** The oldest revision whose state is in memory, from which a watch can continue. 0 before the first compaction. */
  get oldest(): number {
    return this.#compacted;
  }

  /** The revision of the oldest transaction; the one after `newest` if the log is empty. */
  get first(): number {
    return this.#newest - this.#transactions.length + 1;
  }

  /** Number of transactions. */
  get length(): number {
    return this.#transactions.length;
  }

  /** Memory of the transactions, in bytes. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Returns the revision to read at; throws if it can't be read. `oldest`: the oldest one that can be. */
  resolve(at: RevisionRequirement, oldest: number = this.oldest): number {
    const { kept } = this;
    if (at.match === "LINEARIZABLE" || at.match === "ANY") return kept;
    if (at.revision > kept) throw historyChanged(at.revision, kept);
    if (at.match === "NOT_OLDER_THAN") return kept;
    if (at.revision < oldest) throw revisionTooOld(at.revision, oldest);
    return at.revision;
  }

  /** Continues a history that is on disk up to this revision. */
  startAt(revision: number): void {
    this.#newest = revision;
    this.#kept = revision;
    this.#compacted = revision;
  }

  /** Its revision must be the one after `newest`. */
  append(transaction: Transaction): void {
    this.#transactions.push(transaction);
    this.#newest = transaction.revision;
    this.#bytes += transaction.bytes;
  }

  /** Everything up to this revision is kept. */
  keep(revision: number): void {
    this.#kept = revision;
  }

  /** The transaction of `revision`; undefined if it is not in memory or does not exist. */
  at(revision: number): Transaction | undefined {
    return this.#transactions.at(revision - this.first);
  }

  /** Drops the oldest transaction: the state at its revision becomes the oldest known one. It must be kept. */
  shift(): Transaction | undefined {
    const oldest = this.#transactions.shift();
    if (oldest !== undefined) {
      this.#bytes -= oldest.bytes;
      this.#compacted = oldest.revision;
    }
    return oldest;
  }

  /** Drops the newest transaction, which must not be kept. */
  pop(): Transaction | undefined {
    const newest = this.#transactions.pop();
    if (newest !== undefined) {
      this.#bytes -= newest.bytes;
      this.#newest--;
    }
    return newest;
  }

  /** Nothing below `revision` is known any more; all older transactions have been dropped. */
  forgetBefore(revision: number): void {
    this.#compacted = Math.max(this.#compacted, revision);
  }
}
