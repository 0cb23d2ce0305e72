import { revisionTooOld, WatchFanoutError } from "../../../../src/base/errors.ts";
import type { WatchEvent } from "../../../../src/model/event.ts";
import { compareKeys } from "../../../../src/model/key-order.ts";
import { estimatedBytes, isSameObject, type StoredObject } from "../../../../src/model/object.ts";
import {
  type ChangesRequest,
  type Journal,
  type JournalEntry,
  JournalFault,
  type KeptChanges,
  type KeptHistory,
  type KeptHistoryRequest,
  type KeptLease,
  type KeptPage,
  type KeptPageRequest,
  type KeptRequest,
} from "../../../../src/storage/journal/journal.ts";
import { isBetween } from "../../../../src/storage/storage.ts";

/** A commit that has not ended. */
interface Commit {
  readonly entries: readonly JournalEntry[];
  readonly done: PromiseWithResolvers<void>;
}

/** What a test can do while a read has not ended. */
export type ReadName = "changesAfter" | "history" | "page";

/**
 * A journal in memory. The test decides when each commit ends, and how. It checks that what is committed continues what is
 * kept, and answers everything by replaying all that is kept, in the simplest way.
 */
export class TestJournal implements Journal {
  readonly #kept: JournalEntry[];
  /** Whether commits are kept at once. */
  isAutomatic: boolean;
  #commit: Commit | undefined;
  #oldest = 1;
  /** Whether every commit is refused, as one that `refuse` ends. */
  isFull = false;
  /** Number of commits. */
  commits = 0;
  isClosed = false;
  /** The reads that have begun, and how many of them at a time at most. */
  readonly reads: ReadName[] = [];
  mostReads = 0;
  #reading = 0;
  /** What reads wait for before they answer. */
  held: Promise<void> | undefined;

  constructor(kept: readonly JournalEntry[] = [], isAutomatic: boolean = false) {
    this.#kept = [...kept];
    this.isAutomatic = isAutomatic;
  }

  get kept(): readonly JournalEntry[] {
    return this.#kept;
  }

  get historyId(): string {
    const last = this.#kept.findLast((entry) => entry.type === "history");
    return last?.historyId ?? "first";
  }

  get revision(): number {
    return this.#kept.findLast((entry) => entry.type === "changes")?.revision ?? 1;
  }

  get oldest(): number {
    const compacted = this.#kept.findLast((entry) => entry.type === "compacted")?.revision ?? 0;
    return Math.max(this.#oldest, compacted);
  }

  get bytes(): number {
    return this.#kept.length;
  }

  /** Drops history by age, as a journal does by itself. */
  dropBefore(revision: number): void {
    this.#oldest = revision;
  }

  async *objects(): AsyncGenerator<readonly StoredObject[]> {
    const all = this.stateAt(this.revision);
    for (let i = 0; i < all.length; i += 2) yield all.slice(i, i + 2);
  }

  async leases(): Promise<readonly KeptLease[]> {
    return [...this.leasesNow().values()];
  }

  leasesNow(): Map<bigint, KeptLease> {
    const leases = new Map<bigint, KeptLease>();
    for (const entry of this.#kept) {
      if (entry.type === "lease") leases.set(entry.lease.id, entry.lease);
      if (entry.type === "lease ended") leases.delete(entry.id);
    }
    return leases;
  }

  async requests(): Promise<readonly KeptRequest[]> {
    return this.#kept.flatMap((entry) => {
      if (entry.type === "request") return [entry.request];
      return entry.type === "changes" && entry.request !== undefined ? [entry.request] : [];
    });
  }

  commit(entries: readonly JournalEntry[]): Promise<void> {
    if (this.#commit !== undefined) throw new Error("A commit is on its way already.");
    if (this.isClosed) throw new Error("A commit after the end.");
    // As if it went to another thread: nothing of it may be shared.
    structuredClone(entries.map((entry) => (entry.type === "lease" ? entry.lease : entry.type)));
    this.#check(entries);
    this.commits++;
    this.#commit = { entries: [...entries], done: Promise.withResolvers<void>() };
    const { promise } = this.#commit.done;
    if (this.isFull) this.refuse();
    else if (this.isAutomatic) this.keep();
    return promise;
  }

  get isCommitting(): boolean {
    return this.#commit !== undefined;
  }

  /** The commit on its way is kept. */
  keep(): void {
    const { entries, done } = this.#take();
    for (const entry of entries) this.#kept.push(entry);
    done.resolve();
  }

  /** The disk is full: nothing of the commit on its way is kept. */
  refuse(): void {
    this.#take().done.reject(new WatchFanoutError("STORAGE_FULL", "The disk is full."));
  }

  /** It is not known what is kept of the commit on its way. */
  fail(): void {
    this.#take().done.reject(new JournalFault("The disk is gone."));
  }

  /** What a process that starts after a crash finds. `isKept`: of the commit on its way, too. */
  crashed(isKept: boolean): TestJournal {
    const last = isKept ? (this.#commit?.entries ?? []) : [];
    const found = new TestJournal([...this.#kept, ...last]);
    found.dropBefore(this.#oldest);
    return found;
  }

  async changesAfter(request: ChangesRequest): Promise<readonly KeptChanges[]> {
    return this.#read("changesAfter", request, () => {
      const { after, upTo, maxEvents, maxBytes } = request;
      if (after < this.oldest) throw revisionTooOld(after, this.oldest);
      const found: KeptChanges[] = [];
      let events = 0;
      let bytes = 0;
      for (const { revision, events: changes } of this.#changes()) {
        if (revision <= after || revision > upTo) continue;
        found.push({ revision, events: changes });
        events += changes.length;
        for (const { estimatedBytes: size } of changes) bytes += size;
        if (events >= maxEvents || bytes >= maxBytes) break;
      }
      return found;
    });
  }

  async page(request: KeptPageRequest): Promise<KeptPage> {
    return this.#read("page", request, () => {
      const { revision, from, to, limit, maxBytes } = request;
      if (revision < this.oldest) throw revisionTooOld(revision, this.oldest);
      const all = this.stateAt(revision).filter(({ key }) => isBetween(key, { from, to }));
      let count = 0;
      for (let bytes = 0; count < Math.min(limit, all.length); count++) {
        bytes += estimatedBytes(all[count] as StoredObject);
        if (count > 0 && bytes > maxBytes) break;
      }
      return { objects: all.slice(0, count), hasMore: count < all.length };
    });
  }

  async history(request: KeptHistoryRequest): Promise<KeptHistory> {
    return this.#read("history", request, () => {
      const { key, upTo, limit } = request;
      if (upTo < this.oldest) throw revisionTooOld(upTo, this.oldest);
      const all = this.#changes()
        .filter(({ revision }) => revision <= upTo)
        .flatMap(({ events }) => events.filter(({ object }) => object.key === key))
        .filter((event, i, { [i + 1]: next }) => {
          if (event.revision > this.oldest) return true;
          const isCurrent = next === undefined || next.revision > this.oldest;
          return isCurrent && event.type !== "DELETED";
        })
        .reverse();
      return { events: all.slice(0, limit), next: all[limit]?.revision };
    });
  }

  async backup(): Promise<void> {
    throw new Error("There is no file.");
  }

  async close(): Promise<void> {
    if (this.#commit !== undefined) throw new Error("Closed during a commit.");
    this.isClosed = true;
  }

  /** All objects at a revision, in key order. */
  stateAt(revision: number): StoredObject[] {
    const state = new Map<string, StoredObject>();
    for (const { revision: at, events } of this.#changes()) {
      if (at > revision) break;
      apply(state, events);
    }
    return inOrder(state);
  }

  /** All events after a revision. */
  eventsAfter(revision: number): WatchEvent[] {
    return this.#changes().flatMap((each) => (each.revision > revision ? each.events : []));
  }

  #changes(): KeptChanges[] {
    return this.#kept.filter((entry) => entry.type === "changes");
  }

  #take(): Commit {
    const commit = this.#commit;
    if (commit === undefined) throw new Error("No commit is on its way.");
    this.#commit = undefined;
    return commit;
  }

  async #read<T>(
    name: ReadName,
    { signal }: { readonly signal?: AbortSignal | undefined },
    answer: () => T,
  ): Promise<T> {
    this.reads.push(name);
    this.#reading++;
    this.mostReads = Math.max(this.mostReads, this.#reading);
    try {
      await this.held;
      signal?.throwIfAborted();
      return answer();
    } finally {
      this.#reading--;
    }
  }

  /** Throws if the entries do not continue what is kept. */
  #check(entries: readonly JournalEntry[]): void {
    let { revision } = this;
    const state = new Map(this.stateAt(revision).map((object) => [object.key, object]));
    const leases = this.leasesNow();
    for (const entry of entries) {
      if (entry.type === "lease") {
        if (leases.has(entry.lease.id)) throw new Error(`Lease ${entry.lease.id} comes twice.`);
        leases.set(entry.lease.id, entry.lease);
      } else if (entry.type === "lease ended") {
        if (!leases.delete(entry.id)) throw new Error(`Lease ${entry.id} ends twice.`);
      } else if (entry.type === "changes") {
        if (entry.revision !== revision + 1) throw new Error(`${entry.revision} is not the next.`);
        revision = entry.revision;
        for (const { object, previous } of entry.events) {
          const before = state.get(object.key);
          const isSame =
            before === undefined || previous === undefined
              ? before === previous
              : isSameObject(before, previous);
          if (!isSame || object.modRevision !== revision) {
            throw new Error(`The change of ${object.key} is not one of what there was.`);
          }
        }
        apply(state, entry.events);
        checkLeases(state, leases);
      }
    }
    checkLeases(state, leases);
  }
}

function checkLeases(
  state: ReadonlyMap<string, StoredObject>,
  leases: ReadonlyMap<bigint, KeptLease>,
): void {
  for (const { key, lease } of state.values()) {
    if (lease !== 0n && !leases.has(lease)) throw new Error(`${key} has an unknown lease.`);
  }
}

function apply(state: Map<string, StoredObject>, events: readonly WatchEvent[]): void {
  for (const { type, object } of events) {
    if (type === "DELETED") state.delete(object.key);
    else state.set(object.key, object);
  }
}

function inOrder(state: ReadonlyMap<string, StoredObject>): StoredObject[] {
  return [...state.values()].sort((a, b) => compareKeys(a.key, b.key));
}
