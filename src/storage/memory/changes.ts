import { randomUUID } from "node:crypto";
import type { Clock } from "../../base/clock.ts";
import { hasReason } from "../../base/errors.ts";
import { abortable } from "../../base/wait.ts";
import type { StoredObject } from "../../model/object.ts";
import type { Journal, JournalEntry } from "../journal/journal.ts";
import type { Changed } from "./draft.ts";
import { GroupCommit } from "./group-commit.ts";
import { ObjectMaker } from "./kept-object.ts";
import { Lease } from "./lease.ts";
import type { MemoryLeases } from "./leases.ts";
import type { MvccStore } from "./mvcc-store.ts";
import { RememberedRequests } from "./remembered-requests.ts";
import type { Resources } from "./resource-keys.ts";
import { StoreDraft } from "./store-draft.ts";
import type { Transaction } from "./transaction-log.ts";

export interface ChangesOptions {
  readonly clock: Clock;
  readonly data: MvccStore;
  readonly leases: MemoryLeases;
  readonly resources: Resources;
  /** Others can see something new. */
  readonly onKept: () => void;
}

/** What happens to a change without an own draft. */
interface Outcome {
  kept(): void;
  undo(): void;
}

/**
 * The changes of the embedded store: applied in memory at once, and visible to others when the journal has kept them. Without
 * a journal that is at once, too.
 */
export class Changes {
  readonly #options: ChangesOptions;
  readonly #objects: ObjectMaker;
  readonly requests: RememberedRequests;
  #commits: GroupCommit | undefined;
  #historyId: string = randomUUID();
  /** That of changes: not kept yet, if it is another. */
  #nextHistoryId = this.#historyId;

  constructor(options: ChangesOptions) {
    this.#options = options;
    this.#objects = new ObjectMaker((key) => options.resources.prefixLengthOf(key));
    this.requests = new RememberedRequests(options.clock);
  }

  get historyId(): string {
    return this.#historyId;
  }

  /** Continues from what a journal has. `onFault` is called once if it is not known what it has kept. */
  async load(
    journal: Journal,
    onFault: (error: Error) => void,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    const { data, leases, clock, onKept } = this.#options;
    data.log.startAt(journal.revision);
    this.#historyId = journal.historyId;
    this.#nextHistoryId = journal.historyId;
    const records = await journal.leases();
    const objects: StoredObject[] = [];
    for await (const part of journal.objects(signal)) {
      for (const object of part) objects.push(object);
    }
    data.load(objects);
    for (const request of await journal.requests()) this.requests.add(request);
    signal?.throwIfAborted();
    this.#commits = new GroupCommit({ journal, clock, onKept, onFault });
    // Last: their time begins now, and their ends are changes, which need all else.
    for (const record of records) {
      const lease = new Lease(record);
      lease.isKept = true;
      leases.add(lease);
    }
    for (const object of objects) if (object.lease !== 0n) leases.attach(object);
    const ended = leases.dropOver();
    if (ended.length > 0) this.keep(ended.map(endOf), { kept: () => {}, undo: () => {} });
  }

  /** Throws UPSTREAM_UNAVAILABLE if it is not known what is kept. */
  check(): void {
    this.#commits?.check();
  }

  /** Executes a change; see MemoryStore. `enter` throws if it must not be executed. */
  execute<T>(
    change: (draft: StoreDraft) => T,
    enter: () => void,
    signal: AbortSignal | undefined,
  ): Promise<Changed<T>> {
    return this.#applyAndKeep(() => this.#apply(change), enter, signal);
  }

  /** Has the journal keep that nothing before `revision` is needed any more, and calls `kept`. `enter` as in `execute`. */
  compact(
    revision: number,
    kept: () => void,
    enter: () => void,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    const entries = [{ type: "compacted", revision }] as const;
    return this.#applyAndKeep(() => this.keep(entries, { kept, undo: () => {} }), enter, signal);
  }

  /** Resolves to what `apply` returns, or rejects with what it throws, when all that it saw is kept. */
  async #applyAndKeep<T>(
    apply: () => T,
    enter: () => void,
    signal: AbortSignal | undefined,
  ): Promise<T> {
    const commits = this.#commits;
    for (;;) {
      enter();
      if (commits === undefined) return apply();
      while (commits.isFull) {
        await commits.room(signal);
        enter();
      }
      const { goesAlone } = commits;
      let result: T;
      try {
        result = apply();
      } catch (refusal) {
        if (await this.#isRefusedWithOthers(goesAlone, signal)) continue;
        throw refusal;
      }
      if (!(await this.#isRefusedWithOthers(goesAlone, signal))) return result;
    }
  }

  /**
   * Resolves when all that is applied now is kept (false), or was taken back because a group did not fit: what went alone might
   * (true). Rejects as `allKept` does otherwise.
   */
  async #isRefusedWithOthers(
    goesAlone: boolean,
    signal: AbortSignal | undefined,
  ): Promise<boolean> {
    try {
      await this.allKept(signal);
      return false;
    } catch (error) {
      if (goesAlone || !hasReason(error, "STORAGE_FULL")) throw error;
      return true;
    }
  }

  /** Gives the history another id if it has the id `known`. Returns the id that it will have. */
  renewHistory(known: string): string {
    if (this.#nextHistoryId !== known) return this.#nextHistoryId;
    const historyId = randomUUID();
    this.#nextHistoryId = historyId;
    this.keep([{ type: "history", historyId }], {
      kept: () => {
        this.#historyId = historyId;
      },
      undo: () => {
        this.#nextHistoryId = known;
      },
    });
    return historyId;
  }

  /** Keeps what is no change of keys. */
  keep(entries: readonly JournalEntry[], outcome: Outcome): void {
    const { kept, undo } = outcome;
    if (this.#commits === undefined) kept();
    else this.#commits.add({ entries, bytes: entries.length * entryBytes, kept, undo });
  }

  /**
   * Resolves when all that is applied now is kept. Rejects with STORAGE_FULL or UPSTREAM_UNAVAILABLE if it was taken back, or
   * OUTCOME_UNKNOWN.
   */
  async allKept(signal: AbortSignal | undefined): Promise<void> {
    const unkept = this.#commits?.unkept;
    if (unkept !== undefined) await abortable(unkept, signal);
  }

  /** Frees all memory when what was applied is kept. */
  async close(): Promise<void> {
    await this.#commits?.idle();
    this.requests.clear();
  }

  #apply<T>(change: (draft: StoreDraft) => T): Changed<T> {
    const { data, leases, onKept } = this.#options;
    const draft = new StoreDraft({
      ...{ data, leases, objects: this.#objects, historyId: this.#nextHistoryId },
    });
    const result = change(draft);
    const { events, request } = draft;
    const transaction = events.length > 0 ? data.apply(events) : undefined;
    const ended = leases.apply(draft, events);
    if (request !== undefined) this.requests.add(request);
    if (this.#commits !== undefined) {
      this.#commit(this.#commits, draft, transaction, ended);
    } else if (transaction !== undefined) {
      data.keep(transaction.revision);
      onKept();
    }
    return { result, revision: draft.after };
  }

  #commit(
    commits: GroupCommit,
    draft: StoreDraft,
    transaction: Transaction | undefined,
    ended: readonly Lease[],
  ): void {
    const entries = entriesOf(draft, transaction, ended);
    if (entries.length === 0) return;
    const { data, leases } = this.#options;
    commits.add({
      entries,
      bytes: (transaction?.bytes ?? 0) + entries.length * entryBytes,
      kept: () => {
        if (transaction !== undefined) data.keep(transaction.revision);
        for (const lease of draft.granted) lease.isKept = true;
      },
      undo: () => {
        if (draft.request !== undefined) this.requests.delete(draft.request);
        leases.undo(draft.granted, transaction?.events ?? [], ended);
        if (transaction !== undefined) data.undo();
      },
    });
  }
}

/** Estimated memory of an entry of the journal without its events, in bytes. */
const entryBytes = 256;

/** What the journal keeps of a change. `ended`: the leases that it has ended. */
function entriesOf(
  { granted, request }: StoreDraft,
  transaction: Transaction | undefined,
  ended: readonly Lease[],
): readonly JournalEntry[] {
  const entries = granted.map((lease): JournalEntry => ({ type: "lease", lease: lease.record }));
  if (transaction !== undefined) {
    const { revision, events } = transaction;
    entries.push({ type: "changes", revision, events, request });
  } else if (request !== undefined) {
    entries.push({ type: "request", request });
  }
  for (const lease of ended) entries.push(endOf(lease));
  return entries;
}

function endOf({ id }: Lease): JournalEntry {
  return { type: "lease ended", id };
}
