import { otherHistory } from "../../base/errors.ts";
import { WatchEvent } from "../../model/event.ts";
import { compareKeys } from "../../model/key-order.ts";
import type { StoredObject } from "../../model/object.ts";
import type { KeptRequest } from "../journal/journal.ts";
import { isBetween } from "../storage.ts";
import type { Draft } from "./draft.ts";
import type { ObjectMaker } from "./kept-object.ts";
import type { KnownLeases, Lease } from "./lease.ts";
import type { MvccStore } from "./mvcc-store.ts";
import { changedAgain, maxRequestBytes, noSuchLease, writeTooLarge } from "./write-checks.ts";

/** What a draft reads, and makes objects with. */
export interface DraftSource {
  readonly data: MvccStore;
  readonly leases: KnownLeases;
  readonly objects: ObjectMaker;
  /** The history that the change belongs to. */
  readonly historyId: string;
}

/** A draft, with what only the store's own writes do. Nothing of it has an effect before the store applies it. */
export class StoreDraft implements Draft {
  readonly before: number;
  readonly #source: DraftSource;
  readonly #written = new Map<string, WatchEvent>();
  #bytes = 0;
  /** The leases that it grants. */
  readonly granted: Lease[] = [];
  /** The leases that it ends. */
  readonly ended: bigint[] = [];
  /** The request that it executes, if that will be remembered. */
  request: KeptRequest | undefined;

  constructor(source: DraftSource) {
    this.#source = source;
    this.before = source.data.log.newest;
  }

  get revision(): number {
    return this.before + 1;
  }

  /** The store's revision after it. */
  get after(): number {
    return this.#written.size === 0 ? this.before : this.revision;
  }

  /** What it has written, in order. */
  get events(): readonly WatchEvent[] {
    return [...this.#written.values()];
  }

  get historyId(): string {
    return this.#source.historyId;
  }

  /** Throws HISTORY_CHANGED if `known` is not empty and is not the history. */
  checkHistory(known: string | undefined): void {
    if (known === undefined || known === "" || known === this.historyId) return;
    throw otherHistory(known, this.historyId);
  }

  get(key: string): StoredObject | undefined {
    const written = this.#written.get(key);
    return written === undefined ? this.#source.data.keys.get(key) : objectAfter(written);
  }

  *range(from: string, to: string | undefined): Generator<StoredObject, void, void> {
    const own = [...this.#written.keys()].filter((key) => isBetween(key, { from, to }));
    own.sort(compareKeys);
    let next = 0;
    for (const object of this.#source.data.keys.range(from, to, this.before)) {
      for (; next < own.length; next++) {
        const key = own[next] as string;
        if (compareKeys(key, object.key) >= 0) break;
        const written = this.get(key);
        if (written !== undefined) yield written;
      }
      if (own[next] === object.key) next++;
      const current = this.get(object.key);
      if (current !== undefined) yield current;
    }
    for (; next < own.length; next++) {
      const written = this.get(own[next] as string);
      if (written !== undefined) yield written;
    }
  }

  put(key: string, value: Uint8Array, lease: bigint): StoredObject {
    this.#bytes += key.length + value.byteLength;
    if (this.#bytes > maxRequestBytes) throw writeTooLarge(this.#bytes);
    if (lease !== 0n && !this.#hasLease(lease)) throw noSuchLease(lease);
    if (this.#written.has(key)) throw changedAgain(key);
    const { data, objects } = this.#source;
    const previous = data.keys.get(key);
    const object = objects.put(key, value, lease, this.revision, previous);
    const type = previous === undefined ? "ADDED" : "MODIFIED";
    this.#written.set(key, new WatchEvent(type, object, previous));
    return object;
  }

  delete(key: string): StoredObject | undefined {
    const written = this.#written.get(key);
    if (written !== undefined && written.type !== "DELETED") throw changedAgain(key);
    const previous = written === undefined ? this.#source.data.keys.get(key) : undefined;
    if (previous === undefined) return undefined;
    const deleted = previous.deletedAt(this.revision);
    this.#written.set(key, new WatchEvent("DELETED", deleted, previous));
    return previous;
  }

  /** Grants a lease, with a random id unless one is given. `isGranted`: it lasts without keys. */
  grant(ttlSeconds: number, isGranted: boolean, id?: bigint): bigint {
    const lease = this.#source.leases.newLease(ttlSeconds, isGranted, id);
    this.granted.push(lease);
    return lease.id;
  }

  /** Ends a lease, and deletes what is attached to it. */
  end(lease: Lease): void {
    for (const key of lease.keys()) this.delete(key);
    this.ended.push(lease.id);
  }

  #hasLease(lease: bigint): boolean {
    return this.#source.leases.has(lease) || this.granted.some(({ id }) => id === lease);
  }
}

function objectAfter({ type, object }: WatchEvent): StoredObject | undefined {
  return type === "DELETED" ? undefined : object;
}
