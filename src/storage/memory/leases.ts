import { randomBytes } from "node:crypto";
import { type Clock, maxTimerMs } from "../../base/clock.ts";
import { invalidRequest, WatchFanoutError } from "../../base/errors.ts";
import type { WatchEvent } from "../../model/event.ts";
import { endedLease, leaseNotFound } from "../lease-renewals.ts";
import type { GrantedLease, LeaseState, Leases, ObjectName } from "../store.ts";
import { type KnownLeases, Lease } from "./lease.ts";
import type { StoreDraft } from "./store-draft.ts";

/** Default maximum number of leases that were granted by themselves: each takes some hundred bytes. */
const defaultMaxGranted = 100_000;
/** When a lease that could not be ended is tried again, in milliseconds. */
const retryMs = 1_000;

/** The store, as its leases use it. */
export interface LeaseStore {
  readonly clock: Clock;
  /** Throws if the signal is aborted, or the store can't be used. */
  enter(signal: AbortSignal | undefined): void;
  /** Executes a change; see MemoryStore. */
  execute<T>(change: (draft: StoreDraft) => T, signal?: AbortSignal): Promise<T>;
  /** What is read is shown when it is kept; see MemoryStore. */
  settled<T>(read: () => T, signal?: AbortSignal): Promise<T>;
  /** The object of a resource that has this whole key. */
  nameOf(key: string): ObjectName | undefined;
}

/**
 * The leases of the embedded store: what is attached to each, and when it ends.
 *
 * Unlike in etcd, a lease that a put with a time to live has granted ends when its last key is detached. So there are never
 * more of these than objects, however often an object is put.
 *
 * That a lease is granted or ends is a change of the store, and is kept as one. When it ends is not: renewals cost nothing,
 * and after a restart each lease has its full length again.
 */
export class MemoryLeases implements Leases, KnownLeases {
  readonly #store: LeaseStore;
  readonly #leases = new Map<bigint, Lease>();
  readonly #maxGranted: number;
  #granted = 0;

  /** `maxGranted`: maximum number of leases that were granted by themselves. */
  constructor(store: LeaseStore, maxGranted: number = defaultMaxGranted) {
    this.#store = store;
    this.#maxGranted = maxGranted;
  }

  get size(): number {
    return this.#leases.size;
  }

  /** As that of `Leases`; `id` may be any id that no lease has, from 1 to 2^63 - 1. Rejects with INVALID_REQUEST if one has it. */
  async grant(ttlSeconds: number, signal?: AbortSignal, id?: bigint): Promise<GrantedLease> {
    const lease = await this.#store.execute((draft) => {
      if (this.#granted >= this.#maxGranted) throw tooManyLeases(this.#maxGranted);
      return draft.grant(ttlSeconds, true, id);
    }, signal);
    return { lease, ttlSeconds };
  }

  async keepAlive(
    ids: readonly bigint[],
    signal?: AbortSignal,
  ): Promise<readonly (number | Error)[]> {
    const renew = (): readonly (number | Error)[] => {
      const now = this.#store.clock.now();
      return ids.map((id) => {
        const lease = this.#leases.get(id);
        if (lease === undefined) return endedLease;
        // Its timer looks at it when it runs.
        lease.endsAt = now + lease.ttlSeconds * 1_000;
        return lease.ttlSeconds * 1_000;
      });
    };
    this.#store.enter(signal);
    // Only that a lease has come or gone may have to be kept before others know it.
    const isKnown = ids.every((id) => this.#leases.get(id)?.isKept === true);
    return isKnown ? renew() : this.#store.settled(renew, signal);
  }

  async revoke(lease: bigint, signal?: AbortSignal): Promise<void> {
    await this.#store.execute((draft) => draft.end(this.#leaseOf(lease)), signal);
  }

  async timeToLive(id: bigint, objects: boolean, signal?: AbortSignal): Promise<LeaseState> {
    const { keys, ...state } = await this.attached(id, signal);
    if (!objects) return { ...state, objects: [], others: 0 };
    const names = keys.map((key) => this.#store.nameOf(key));
    const found = names.filter((name) => name !== undefined);
    return { ...state, objects: found, others: names.length - found.length };
  }

  /** A lease with the whole keys that are attached to it, in key order. Rejects with LEASE_NOT_FOUND. */
  async attached(id: bigint, signal?: AbortSignal): Promise<AttachedKeys> {
    return this.#store.settled(() => {
      const lease = this.#leaseOf(id);
      return {
        ttlMs: Math.max(0, lease.endsAt - this.#store.clock.now()),
        grantedTtlSeconds: lease.ttlSeconds,
        keys: lease.keys(),
      };
    }, signal);
  }

  /** The ids of all leases. */
  async ids(signal?: AbortSignal): Promise<readonly bigint[]> {
    return this.#store.settled(() => [...this.#leases.keys()], signal);
  }

  has(id: bigint): boolean {
    return this.#leases.has(id);
  }

  newLease(ttlSeconds: number, isGranted: boolean, id: bigint = this.#freeId()): Lease {
    if (this.#leases.has(id)) {
      throw invalidRequest("lease", `There is a lease ${id} already: choose another id.`);
    }
    return new Lease({ id, ttlSeconds, isGranted });
  }

  /** Adds a lease with its full length. */
  add(lease: Lease): void {
    lease.endsAt = this.#store.clock.now() + lease.ttlSeconds * 1_000;
    this.#leases.set(lease.id, lease);
    if (lease.isGranted) this.#granted++;
    this.#wait(lease);
  }

  /** Attaches the key of an object. */
  attach(object: { readonly lease: bigint; readonly key: string }): void {
    this.#leases.get(object.lease)?.attached.add(object.key);
  }

  /** Applies a draft: what it has granted, attached, detached and ended. Returns the leases that have ended. */
  apply(draft: StoreDraft, events: readonly WatchEvent[]): readonly Lease[] {
    for (const lease of draft.granted) this.add(lease);
    const ended: Lease[] = [];
    const end = (id: bigint): void => {
      const lease = this.#drop(id);
      if (lease !== undefined) ended.push(lease);
    };
    // Attach first: a lease that loses its last key in this revision may get another one in it.
    for (const { type, object } of events) {
      if (type !== "DELETED" && object.lease !== 0n) this.attach(object);
    }
    for (const { type, object, previous } of events) {
      const before = previous?.lease ?? 0n;
      if (before === 0n || (type !== "DELETED" && before === object.lease)) continue;
      const lease = this.#leases.get(before);
      lease?.attached.delete(object.key);
      if (lease?.isOver === true) end(before);
    }
    for (const id of draft.ended) end(id);
    return ended;
  }

  /** Takes back what `apply` did for these changes. `ended`: what it returned. */
  undo(granted: readonly Lease[], events: readonly WatchEvent[], ended: readonly Lease[]): void {
    for (const lease of ended) {
      this.#leases.set(lease.id, lease);
      if (lease.isGranted) this.#granted++;
      const restMs = lease.endsAt - this.#store.clock.now();
      this.#waitFor(lease, Math.min(Math.max(restMs, retryMs), maxTimerMs));
    }
    for (const { type, object, previous } of events) {
      if (type !== "DELETED") this.#leases.get(object.lease)?.attached.delete(object.key);
      if (previous !== undefined) this.attach(previous);
    }
    for (const { id } of granted) this.#drop(id);
  }

  /** Drops the leases that are over. Returns them. */
  dropOver(): readonly Lease[] {
    const over = [...this.#leases.values()].filter((lease) => lease.isOver);
    for (const { id } of over) this.#drop(id);
    return over;
  }

  /** Ends all leases without deleting keys. */
  close(): void {
    for (const id of this.#leases.keys()) this.#drop(id);
  }

  #drop(id: bigint): Lease | undefined {
    const lease = this.#leases.get(id);
    if (lease === undefined) return undefined;
    lease.timer?.cancel();
    this.#leases.delete(id);
    if (lease.isGranted) this.#granted--;
    return lease;
  }

  /** Throws LEASE_NOT_FOUND. */
  #leaseOf(id: bigint): Lease {
    const lease = this.#leases.get(id);
    if (lease === undefined) throw leaseNotFound(id);
    return lease;
  }

  #wait(lease: Lease): void {
    lease.timer = undefined;
    const restMs = lease.endsAt - this.#store.clock.now();
    if (restMs <= 0) {
      this.#expire(lease);
    } else {
      this.#waitFor(lease, Math.min(restMs, maxTimerMs));
    }
  }

  #waitFor(lease: Lease, delayMs: number): void {
    lease.timer = this.#store.clock.setTimeout(() => this.#wait(lease), delayMs);
  }

  #expire(lease: Lease): void {
    const change = (draft: StoreDraft): void => {
      if (this.#leases.get(lease.id) !== lease) return;
      // It may have been renewed while this waited for the disk.
      if (lease.endsAt > this.#store.clock.now()) this.#wait(lease);
      else draft.end(lease);
    };
    this.#store.execute(change).catch(() => {
      // A lease that was taken back has its timer already; that of a store that is closed is gone.
      const isLeft = this.#leases.get(lease.id) === lease && lease.timer === undefined;
      if (isLeft) this.#waitFor(lease, retryMs);
    });
  }

  /** Random, so that the id of a lease from before a restart is not in use again. */
  #freeId(): bigint {
    for (;;) {
      const id = BigInt.asUintN(63, randomBytes(8).readBigUInt64BE());
      if (id !== 0n && !this.#leases.has(id)) return id;
    }
  }
}

/** What a lease says of itself. */
export interface AttachedKeys {
  /** The rest of its length, in milliseconds. */
  readonly ttlMs: number;
  /** The length that it was granted. */
  readonly grantedTtlSeconds: number;
  readonly keys: readonly string[];
}

function tooManyLeases(maxGranted: number): WatchFanoutError {
  return new WatchFanoutError(
    "TOO_MANY_LEASES",
    `The embedded store has ${maxGranted} leases, the maximum. Revoke some, or attach several objects to one.`,
    { metadata: { limit: String(maxGranted) } },
  );
}
