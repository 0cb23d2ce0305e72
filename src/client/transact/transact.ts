import { Backoff } from "../../base/backoff.ts";
import { type Clock, pause } from "../../base/clock.ts";
import { hasReason, invalidRequest, type Reason, WatchFanoutError } from "../../base/errors.ts";
import { randomId } from "../../base/random-id.ts";
import { ClosedError } from "../calls/call-failure.ts";
import { decodeRevision } from "../calls/decode.ts";
import type { ObjectName, TransactionRequest, TransactionResult } from "../calls/transaction.ts";
import type { ClientCalls } from "../watch/client-calls.ts";
import { type ReadBatch, Snapshot } from "./snapshot.ts";
import { Transaction } from "./transaction.ts";
import { isConflictFinal } from "./writes.ts";

/** Options of `Client.transact`. */
export interface TransactOptions {
  /**
   * SERIALIZABLE: what was read must be unchanged. SERIALIZABLE_SNAPSHOT: also what is only written must be, since the first
   * read: so it is read first, which costs a call and needs the right to get it. Default SERIALIZABLE_SNAPSHOT.
   */
  readonly isolation?: "SERIALIZABLE" | "SERIALIZABLE_SNAPSHOT" | undefined;
  /** Maximum number of attempts, at least 1. Default 100. */
  readonly maxAttempts?: number | undefined;
  /** Time for all attempts, in milliseconds: none begins after it. Default 30,000. */
  readonly timeoutMs?: number | undefined;
  /** Aborting it rejects the call with the signal's reason. A write that was sent may still be applied. */
  readonly signal?: AbortSignal | undefined;
}

/** The outcome of `Client.transact`. */
export interface Transacted<R> {
  /** What the function returned. */
  readonly value: R;
  /** The revision of the writes; without writes: that of the reads; 0 without either. */
  readonly revision: number;
  /** The history that the revision belongs to; empty if it is not known. */
  readonly historyId: string;
}

/** What a transaction is made over. */
interface TransactSite {
  readonly calls: Pick<ClientCalls, "batchGet" | "transaction">;
  readonly clock: Clock;
  readonly random: () => number;
}

const backoffBounds = { initialMs: 10, maxMs: 1_000 };
const defaultMaxAttempts = 100;
const defaultTimeoutMs = 30_000;

/** The snapshot can no longer be read, or not yet: another attempt begins with a new one. */
const snapshotLost: ReadonlySet<Reason> = new Set([
  ...(["REVISION_TOO_OLD", "REVISION_TOO_NEW", "HISTORY_CHANGED"] as const),
]);

/** See Client.transact. */
export function transact<R>(
  site: TransactSite,
  body: (transaction: Transaction) => Promise<R>,
  options: TransactOptions,
): Promise<Transacted<R>> {
  return new Attempts(site, body, options).run();
}

/** What was sent, and what its function has returned. */
interface Sent<R> {
  readonly request: TransactionRequest;
  readonly value: R;
  readonly historyId: string;
}

/** Why an attempt has to be repeated. */
interface Conflict {
  readonly why: WatchFanoutError;
  /** The state in which the compares did not hold, for the next attempt. */
  readonly next: Snapshot | undefined;
}

/**
 * The attempts of one transaction.
 *
 * All have the same request id, so at most one of them is ever applied, even if one whose answer was lost reaches the store
 * late. If a later attempt finds the id used, the earlier request is repeated, and answered as it was then.
 */
class Attempts<R> {
  readonly #site: TransactSite;
  readonly #body: (transaction: Transaction) => Promise<R>;
  readonly #checksWrites: boolean;
  readonly #maxAttempts: number;
  readonly #signal: AbortSignal | undefined;
  readonly #end: number;
  readonly #backoff: Backoff;
  readonly #requestId = randomId();
  /** Requests of this transaction that may have been applied, or may still be. */
  readonly #unknown = new Map<Sent<R>, WatchFanoutError>();
  #attempts = 0;

  constructor(
    site: TransactSite,
    body: (transaction: Transaction) => Promise<R>,
    options: TransactOptions,
  ) {
    const { maxAttempts = defaultMaxAttempts, timeoutMs = defaultTimeoutMs, signal } = options;
    this.#site = site;
    this.#body = body;
    this.#checksWrites = options.isolation !== "SERIALIZABLE";
    this.#maxAttempts = atLeast("maxAttempts", maxAttempts, 1);
    this.#signal = signal;
    this.#end = site.clock.now() + atLeast("timeoutMs", timeoutMs, 1);
    this.#backoff = new Backoff(backoffBounds, site.random);
  }

  async run(): Promise<Transacted<R>> {
    let snapshot = this.#newSnapshot();
    try {
      for (;;) {
        this.#signal?.throwIfAborted();
        const isFirst = this.#attempts === 0;
        const outcome = await this.#attempt(snapshot);
        if (!("why" in outcome)) return outcome;
        // After the first conflict at once, in the state that it has; after later ones, as there are many writers, after a pause,
        // for which that state would be too old.
        const next = isFirst ? outcome.next : undefined;
        snapshot = next ?? this.#newSnapshot();
        await this.#beforeNext(outcome.why, next === undefined);
      }
    } catch (error) {
      throw this.#rejection(error);
    }
  }

  /** Calls the function and sends its writes. */
  async #attempt(snapshot: Snapshot): Promise<Transacted<R> | Conflict> {
    const transaction = new Transaction(snapshot);
    let value: R;
    let request: TransactionRequest | undefined;
    try {
      value = await this.#body(transaction);
      request = await transaction.end(this.#checksWrites);
    } catch (error) {
      // Not what the function throws for itself.
      const why = transaction.failure;
      if (!(why instanceof WatchFanoutError && snapshotLost.has(why.reason))) throw error;
      return { why, next: undefined };
    }
    const { revision = 0, historyId } = snapshot;
    if (request === undefined) return { value, revision, historyId };
    return this.#commit({ request, value, historyId });
  }

  async #commit(sent: Sent<R>): Promise<Transacted<R> | Conflict> {
    try {
      const result = await this.#send(sent);
      return result.succeeded ? transacted(sent, result) : this.#conflict(sent, result);
    } catch (error) {
      if (hasReason(error, "REQUEST_ID_REUSED")) return this.#applied(error);
      // A compare does not hold, and what they found is too large for an answer.
      if (hasReason(error, "LIST_TOO_LARGE")) return this.#conflict(sent, undefined);
      if (!hasReason(error, "HISTORY_CHANGED") || this.#unknown.size > 0) throw error;
      return { why: error, next: undefined };
    }
  }

  /** Sends a request until its outcome is known. */
  async #send(sent: Sent<R>): Promise<TransactionResult> {
    for (;;) {
      try {
        return await this.#site.calls.transaction(sent.request, {
          requestId: this.#requestId,
          ...{ retryUnknown: true, returnCurrent: true },
          ...{ historyId: sent.historyId, signal: this.#signal },
        });
      } catch (error) {
        if (hasReason(error, "REVISION_TOO_OLD")) return appliedBefore(error, sent.historyId);
        const isUnknown = hasReason(error, "OUTCOME_UNKNOWN");
        if (isUnknown) this.#unknown.set(sent, error);
        const mayPass = isUnknown || hasReason(error, "UPSTREAM_UNAVAILABLE");
        if (!(mayPass && this.#unknown.has(sent)) || error instanceof ClosedError) throw error;
        await this.#beforeNext(error, true);
      }
    }
  }

  /** A compare did not hold. `found`: undefined if it is not known what they found. */
  #conflict(sent: Sent<R>, found: TransactionResult | undefined): Conflict {
    const names = sent.request.compares ?? [];
    if (isConflictFinal(sent.request)) this.#unknown.delete(sent);
    const changed = names.find((_, n) => found?.compares[n]?.held === false) ?? names[0];
    const why = new WatchFanoutError(
      "REVISION_CONFLICT",
      `Nothing was written: others have changed what the transaction has read, such as ${JSON.stringify(changed?.key)} of ` +
        `${JSON.stringify(changed?.resource)}, in each of ${this.#attempts + 1} attempts. Try again when there are fewer writers.`,
    );
    return { why, next: found && this.#stateOf(names, found) };
  }

  #stateOf(
    names: readonly ObjectName[],
    { revision, historyId, compares }: TransactionResult,
  ): Snapshot {
    const snapshot = this.#newSnapshot();
    snapshot.add(names, { revision, historyId, objects: compares.map(({ object }) => object) });
    return snapshot;
  }

  /** The request id has been used: by an earlier attempt, whose answer was lost. */
  async #applied(error: WatchFanoutError): Promise<Transacted<R>> {
    for (const sent of [...this.#unknown.keys()]) {
      this.#unknown.delete(sent);
      try {
        const result = await this.#send(sent);
        if (result.succeeded) return transacted(sent, result);
      } catch (other) {
        if (!hasReason(other, "REQUEST_ID_REUSED")) throw other;
      }
    }
    throw error;
  }

  /** Throws `why` if no further attempt may begin. */
  async #beforeNext(why: WatchFanoutError, pauses: boolean): Promise<void> {
    this.#attempts++;
    const delayMs = pauses ? this.#backoff.next() : 0;
    const { clock } = this.#site;
    if (this.#attempts >= this.#maxAttempts || clock.now() + delayMs >= this.#end) throw why;
    if (delayMs > 0) await pause(clock, delayMs, this.#signal);
    this.#signal?.throwIfAborted();
  }

  #newSnapshot(): Snapshot {
    const read: ReadBatch = (names, at, historyId) =>
      this.#site.calls.batchGet(names, { at, historyId, signal: this.#signal });
    return new Snapshot(read);
  }

  /** While a request may still be applied, no other error says that nothing was written. */
  #rejection(error: unknown): unknown {
    const [unknown] = this.#unknown.values();
    if (unknown === undefined || this.#signal?.aborted === true) return error;
    return new WatchFanoutError("OUTCOME_UNKNOWN", unknown.message, { cause: error });
  }
}

function transacted<R>(
  { value }: Sent<R>,
  { revision, historyId }: TransactionResult,
): Transacted<R> {
  return { value, revision, historyId };
}

/** The result of a request that was applied before, so that its objects are compacted. */
function appliedBefore({ metadata }: WatchFanoutError, historyId: string): TransactionResult {
  const revision = decodeRevision(metadata["requested_revision"] ?? "");
  return { succeeded: true, revision, historyId, results: [], compares: [] };
}

function atLeast(field: string, value: number, least: number): number {
  if (value >= least) return value;
  throw invalidRequest(field, `${field} is ${value}: it must be at least ${least}.`);
}
