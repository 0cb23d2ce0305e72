import { revisionConflict, WatchFanoutError } from "../../../src/base/errors.ts";
import { type EventType, WatchEvent } from "../../../src/model/event.ts";
import { StoredObject } from "../../../src/model/object.ts";
import type { FakeClock } from "../../fake-clock.ts";

/** A lease of the store. */
interface StoredLease {
  readonly ttlMs: number;
  /** How much later than its length the store ends it, in milliseconds. */
  readonly delayMs: number;
  deadline: number;
}

/** Maximum time by which the store ends a lease later than its length, in milliseconds. */
export const expiryDelayMs = 500;

/** A store of one resource in memory, with leases, whose whole history a test can read. */
export class SimulatedStore {
  readonly clock: FakeClock;
  /** Every change, in order. */
  readonly history: WatchEvent[] = [];
  readonly objects = new Map<string, StoredObject>();
  readonly #leases = new Map<bigint, StoredLease>();
  readonly #listeners = new Set<() => void>();
  revision = 1;
  #lastLease = 0n;

  constructor(clock: FakeClock) {
    this.clock = clock;
  }

  /** Calls the listener after each change. Returns a function that ends this. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  get leases(): readonly bigint[] {
    return [...this.#leases.keys()];
  }

  grant(ttlMs: number): bigint {
    this.#lastLease++;
    const id = this.#lastLease;
    // Every second one as early as it may.
    const delayMs = id % 2n === 0n ? 0 : expiryDelayMs;
    this.#leases.set(id, { ttlMs, delayMs, deadline: this.clock.now() + ttlMs });
    this.#expireLater(id);
    return id;
  }

  /** Returns how long the lease lasts, in milliseconds; undefined if it has ended. */
  renew(id: bigint): number | undefined {
    const lease = this.#leases.get(id);
    if (lease === undefined) return undefined;
    lease.deadline = this.clock.now() + lease.ttlMs;
    return lease.ttlMs;
  }

  /** Ends a lease, and deletes what is attached to it at one revision. */
  revoke(id: bigint): boolean {
    if (!this.#leases.delete(id)) return false;
    const attached = [...this.objects.values()].filter(({ lease }) => lease === id);
    if (attached.length > 0) this.#commit(attached.map((object) => ["DELETED", object]));
    return true;
  }

  put(key: string, value: Uint8Array, lease: bigint, expected: number | undefined): StoredObject {
    const before = this.objects.get(key);
    const modRevision = before?.modRevision ?? 0;
    if (lease !== 0n && !this.#leases.has(lease)) {
      throw new WatchFanoutError("LEASE_NOT_FOUND", `There is no lease ${lease}.`);
    }
    if (expected !== undefined && expected !== modRevision) {
      throw revisionConflict(key, expected, modRevision);
    }
    const revision = this.revision + 1;
    const created = before?.createRevision ?? revision;
    const version = (before?.version ?? 0) + 1;
    const object = new StoredObject(key, value, created, revision, version, lease);
    this.#commit([[before === undefined ? "ADDED" : "MODIFIED", object]]);
    return object;
  }

  delete(key: string, expected: number | undefined): StoredObject {
    const before = this.objects.get(key);
    if (before === undefined) {
      throw new WatchFanoutError("OBJECT_NOT_FOUND", `There is no ${key}.`);
    }
    if (expected !== undefined && expected !== before.modRevision) {
      throw revisionConflict(key, expected, before.modRevision);
    }
    this.#commit([["DELETED", before]]);
    return before;
  }

  #commit(changes: readonly (readonly [EventType, StoredObject])[]): void {
    this.revision++;
    for (const [type, object] of changes) {
      const changed = type === "DELETED" ? object.deletedAt(this.revision) : object;
      if (type === "DELETED") this.objects.delete(object.key);
      else this.objects.set(object.key, changed);
      this.history.push(new WatchEvent(type, changed, undefined));
    }
    for (const listener of [...this.#listeners]) listener();
  }

  #expireLater(id: bigint): void {
    const lease = this.#leases.get(id);
    if (lease === undefined) return;
    const leftMs = lease.deadline + lease.delayMs - this.clock.now();
    if (leftMs > 0) this.clock.setTimeout(() => this.#expireLater(id), leftMs);
    else this.revoke(id);
  }
}
