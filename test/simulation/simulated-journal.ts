import { revisionTooOld, WatchFanoutError } from "../../src/base/errors.ts";
import type { WatchEvent } from "../../src/model/event.ts";
import { compareKeys } from "../../src/model/key-order.ts";
import { estimatedBytes, type StoredObject } from "../../src/model/object.ts";
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
} from "../../src/storage/journal/journal.ts";
import type { SimulatedDisk } from "./simulated-disk.ts";

/** How many objects of the state are read at once. */
const partSize = 3;

/**
 * A journal on a simulated disk, as one process has it open: plain, slow and obviously right. It also says what its user does
 * wrong.
 */
export class SimulatedJournal implements Journal {
  readonly #disk: SimulatedDisk;
  readonly #changes: KeptChanges[] = [];
  readonly #leases = new Map<bigint, KeptLease>();
  readonly #requests: KeptRequest[] = [];
  /** What the user has done that the contract does not allow. */
  readonly misuses: string[] = [];
  #historyId: string;
  #compacted = 0;
  #isBusy = false;
  #isFaulty = false;
  #isClosed = false;
  /** Whether its process has ended: then nothing reaches the disk any more, and nothing comes back. */
  #isDead = false;

  /** `firstHistoryId`: of a disk that is empty. */
  constructor(disk: SimulatedDisk, firstHistoryId: string) {
    this.#disk = disk;
    this.#historyId = firstHistoryId;
    for (const entries of disk.commits) for (const entry of entries) this.#apply(entry);
  }

  get historyId(): string {
    return this.#historyId;
  }

  get revision(): number {
    return this.#changes.at(-1)?.revision ?? 1;
  }

  get oldest(): number {
    const dropped = this.#changes.length - this.#disk.behaviour.revisions;
    return Math.max(this.#compacted, this.#changes[dropped - 1]?.revision ?? 0);
  }

  get bytes(): number {
    return this.#changes.length;
  }

  /** The process ends now, at any moment. */
  die(): void {
    this.#isDead = true;
  }

  async *objects(signal?: AbortSignal): AsyncIterable<readonly StoredObject[]> {
    const all = this.#stateAt(this.revision);
    for (let at = 0; at < all.length; at += partSize) {
      await this.#read(signal);
      yield all.slice(at, at + partSize);
    }
  }

  async leases(): Promise<readonly KeptLease[]> {
    await this.#read(undefined);
    return [...this.#leases.values()];
  }

  async requests(): Promise<readonly KeptRequest[]> {
    await this.#read(undefined);
    return [...this.#requests];
  }

  async commit(entries: readonly JournalEntry[]): Promise<void> {
    if (this.#isBusy) this.misuses.push("Journal: a commit began within another one");
    if (this.#isFaulty) this.misuses.push("Journal: a commit began after a fault");
    if (this.#isClosed) this.misuses.push("Journal: a commit began after the end");
    this.#isBusy = true;
    try {
      await this.#commit(entries);
    } finally {
      this.#isBusy = false;
    }
  }

  async #commit(entries: readonly JournalEntry[]): Promise<void> {
    const disk = this.#disk;
    const { writeMs, syncMs } = disk.behaviour;
    await this.#step("called");
    if (disk.isFull) {
      await disk.after(disk.delayMs(writeMs), "is full");
      throw full();
    }
    await disk.after(disk.delayMs(writeMs), "writes");
    await this.#alive();
    disk.write(entries);
    await this.#step("written");
    if (disk.isBroken) {
      this.#isFaulty = true;
      throw new JournalFault("The disk is broken.");
    }
    await disk.after(disk.delayMs(syncMs), "syncs");
    await this.#alive();
    disk.sync();
    await this.#step("synced");
    for (const entry of entries) this.#apply(entry);
    await this.#step("answered");
  }

  async changesAfter(request: ChangesRequest): Promise<readonly KeptChanges[]> {
    const { after, upTo, maxEvents, maxBytes, signal } = request;
    await this.#read(signal);
    this.#checkOldest(after);
    const found: KeptChanges[] = [];
    let [events, bytes] = [0, 0];
    for (const changes of this.#changes) {
      if (changes.revision <= after || changes.revision > upTo) continue;
      found.push(changes);
      events += changes.events.length;
      for (const event of changes.events) bytes += estimatedBytes(event.object);
      if (events >= maxEvents || bytes >= maxBytes) break;
    }
    return found;
  }

  async page(request: KeptPageRequest): Promise<KeptPage> {
    const { revision, from, to, limit, maxBytes, signal } = request;
    await this.#read(signal);
    this.#checkOldest(revision);
    const all = this.#stateAt(revision).filter(
      ({ key }) => compareKeys(key, from) >= 0 && (to === undefined || compareKeys(key, to) < 0),
    );
    let [count, bytes] = [0, 0];
    for (const object of all) {
      bytes += estimatedBytes(object);
      if (count > 0 && (count >= limit || bytes > maxBytes)) break;
      count++;
    }
    return { objects: all.slice(0, count), hasMore: count < all.length };
  }

  async history(request: KeptHistoryRequest): Promise<KeptHistory> {
    const { key, upTo, limit, maxBytes, signal } = request;
    await this.#read(signal);
    this.#checkOldest(upTo);
    const { oldest } = this;
    const all = this.#changes.flatMap(({ revision, events }) =>
      revision > upTo || revision < oldest ? [] : events.filter(({ object }) => object.key === key),
    );
    const events: WatchEvent[] = [];
    let bytes = 0;
    for (const event of all.reverse()) {
      bytes += estimatedBytes(event.object);
      if (events.length > 0 && (events.length >= limit || bytes > maxBytes)) break;
      events.push(event);
    }
    const next = all[events.length]?.object.modRevision;
    return { events, next };
  }

  async backup(): Promise<void> {
    throw new Error("A simulated disk has no other files.");
  }

  async close(): Promise<void> {
    this.#isClosed = true;
  }

  #apply(entry: JournalEntry): void {
    if (entry.type === "changes") {
      const { revision, events, request } = entry;
      if (revision !== this.revision + 1) {
        this.misuses.push(`Journal: ${revision} was committed after ${this.revision}`);
      }
      this.#changes.push({ revision, events });
      if (request !== undefined) this.#requests.push(request);
    } else if (entry.type === "request") this.#requests.push(entry.request);
    else if (entry.type === "lease") this.#leases.set(entry.lease.id, entry.lease);
    else if (entry.type === "lease ended") this.#leases.delete(entry.id);
    else if (entry.type === "history") this.#historyId = entry.historyId;
    else this.#compacted = Math.max(this.#compacted, entry.revision);
  }

  #stateAt(revision: number): StoredObject[] {
    const state = new Map<string, StoredObject>();
    for (const changes of this.#changes) {
      if (changes.revision > revision) break;
      for (const { type, object } of changes.events) {
        if (type === "DELETED") state.delete(object.key);
        else state.set(object.key, object);
      }
    }
    return [...state.values()].sort((one, other) => compareKeys(one.key, other.key));
  }

  async #read(signal: AbortSignal | undefined): Promise<void> {
    signal?.throwIfAborted();
    const disk = this.#disk;
    await disk.after(disk.delayMs(disk.behaviour.writeMs), "reads");
    await this.#alive();
    signal?.throwIfAborted();
  }

  async #step(what: Parameters<SimulatedDisk["passed"]>[0]): Promise<void> {
    await this.#alive();
    this.#disk.passed(what);
    await this.#alive();
  }

  /** A process that has ended waits indefinitely. */
  #alive(): Promise<void> | undefined {
    return this.#isDead ? new Promise(() => {}) : undefined;
  }

  #checkOldest(revision: number): void {
    if (revision < this.oldest) throw revisionTooOld(revision, this.oldest);
  }
}

function full(): WatchFanoutError {
  return new WatchFanoutError("STORAGE_FULL", "The simulated disk is full.");
}
