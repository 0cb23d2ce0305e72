import { randomBytes } from "node:crypto";
import { type Clock, maxTimerMs, type Timer } from "../../base/clock.ts";
import { upstreamUnavailable, WatchFanoutError } from "../../base/errors.ts";
import type { WatchEvent } from "../../model/event.ts";
import { compareKeys } from "../../model/key-order.ts";
import { endedLease, leaseNotFound } from "../lease-renewals.ts";
import type { GrantedLease, LeaseState, Leases, ObjectName } from "../store.ts";

/** Default maximum number of leases that were granted by themselves: each takes some hundred bytes. */
const defaultMaxGranted = 100_000;

/**
 * The leases of the embedded stores of a service: what is attached to each, and when it ends. What is attached in one store
 * is deleted at one revision of that.
 *
 * Unlike in etcd, a lease that a put with a time to live has granted ends when its last key is detached. So there are never
 * more of these than objects, however often an object is put.
 */
export class MemoryLeases implements Leases {
  readonly #clock: Clock;
  readonly #leases = new Map<bigint, Lease>();
  readonly #maxGranted: number;
  #granted = 0;
  #isClosed = false;

  /** `maxGranted`: maximum number of leases that were granted by themselves. */
  constructor(clock: Clock, maxGranted: number = defaultMaxGranted) {
    this.#clock = clock;
    this.#maxGranted = maxGranted;
  }

  get size(): number {
    return this.#leases.size;
  }

  /** `expire` has to delete these keys of a lease that has ended; as in etcd, they are in key order. */
  ofStore(resource: string, expire: (keys: readonly string[]) => void): StoreLeases {
    return new StoreLeases(this, resource, expire);
  }

  async grant(ttlSeconds: number, signal?: AbortSignal): Promise<GrantedLease> {
    this.#enter(signal);
    if (this.#granted >= this.#maxGranted) throw tooManyLeases(this.#maxGranted);
    this.#granted++;
    return { lease: this.add(ttlSeconds, true), ttlSeconds };
  }

  async keepAlive(
    leases: readonly bigint[],
    signal?: AbortSignal,
  ): Promise<readonly (number | Error)[]> {
    this.#enter(signal);
    const now = this.#clock.now();
    return leases.map((id) => {
      const lease = this.#leases.get(id);
      if (lease === undefined) return endedLease;
      // Its timer looks at it when it runs.
      lease.endsAt = now + lease.ttlSeconds * 1_000;
      return lease.ttlSeconds * 1_000;
    });
  }

  async revoke(lease: bigint, signal?: AbortSignal): Promise<void> {
    this.#enter(signal);
    this.#end(lease, this.#leaseOf(lease));
  }

  async timeToLive(id: bigint, objects: boolean, signal?: AbortSignal): Promise<LeaseState> {
    this.#enter(signal);
    const lease = this.#leaseOf(id);
    return {
      ttlMs: Math.max(0, lease.endsAt - this.#clock.now()),
      grantedTtlSeconds: lease.ttlSeconds,
      objects: objects ? lease.objects() : [],
      others: 0,
    };
  }

  /** Grants a lease of this many seconds. `isGranted`: it lasts without keys. */
  add(ttlSeconds: number, isGranted: boolean): bigint {
    const id = this.#freeId();
    const lease = new Lease(ttlSeconds, this.#clock.now() + ttlSeconds * 1_000, isGranted);
    this.#leases.set(id, lease);
    this.#wait(id, lease);
    return id;
  }

  /** Undefined: there is no such lease. */
  get(id: bigint): Lease | undefined {
    return this.#leases.get(id);
  }

  /** Forgets a lease without deleting keys. */
  drop(id: bigint): void {
    const lease = this.#leases.get(id);
    if (lease === undefined) return;
    lease.timer?.cancel();
    this.#leases.delete(id);
    if (lease.isGranted) this.#granted--;
  }

  /** Ends all leases without deleting keys. Every later call rejects with UPSTREAM_UNAVAILABLE. Idempotent. */
  close(): void {
    this.#isClosed = true;
    for (const id of this.#leases.keys()) this.drop(id);
  }

  #enter(signal: AbortSignal | undefined): void {
    signal?.throwIfAborted();
    if (this.#isClosed) throw upstreamUnavailable("The embedded store is closed.");
  }

  /** Throws LEASE_NOT_FOUND. */
  #leaseOf(id: bigint): Lease {
    const lease = this.#leases.get(id);
    if (lease === undefined) throw leaseNotFound(id);
    return lease;
  }

  #wait(id: bigint, lease: Lease): void {
    const restMs = lease.endsAt - this.#clock.now();
    if (restMs <= 0) {
      this.#end(id, lease);
    } else {
      const delayMs = Math.min(restMs, maxTimerMs);
      lease.timer = this.#clock.setTimeout(() => this.#wait(id, lease), delayMs);
    }
  }

  #end(id: bigint, lease: Lease): void {
    this.drop(id);
    for (const [store, keys] of lease.keys) store.expire([...keys].sort(compareKeys));
  }

  /** Random, so that the id of a lease from before a restart is not in use again. */
  #freeId(): bigint {
    for (;;) {
      const id = BigInt.asUintN(63, randomBytes(8).readBigUInt64BE());
      if (id !== 0n && !this.#leases.has(id)) return id;
    }
  }
}

/** The leases, as the store of one resource uses them. */
export class StoreLeases {
  readonly resource: string;
  readonly expire: (keys: readonly string[]) => void;
  readonly #all: MemoryLeases;

  /** For `MemoryLeases`. */
  constructor(all: MemoryLeases, resource: string, expire: (keys: readonly string[]) => void) {
    this.#all = all;
    this.resource = resource;
    this.expire = expire;
  }

  has(id: bigint): boolean {
    return this.#all.get(id) !== undefined;
  }

  /** Grants a lease of this many seconds. A caller that puts no key under it has to `revoke` it. */
  grant(ttlSeconds: number): bigint {
    return this.#all.add(ttlSeconds, false);
  }

  /** Ends a lease that has no key. */
  revoke(id: bigint): void {
    this.#all.drop(id);
  }

  /** Attaches and detaches keys for the changes of one revision. */
  follow(events: readonly WatchEvent[]): void {
    // Attach first: a lease that loses its last key in this revision may get another one in it.
    for (const { type, object } of events) {
      if (type !== "DELETED") this.#all.get(object.lease)?.attach(this, object.key);
    }
    for (const { type, object, previous } of events) {
      const before = previous?.lease ?? 0n;
      if (type === "DELETED" || before !== object.lease) this.#detach(before, object.key);
    }
  }

  #detach(id: bigint, key: string): void {
    const lease = this.#all.get(id);
    if (lease === undefined) return;
    lease.detach(this, key);
    if (lease.keys.size === 0 && !lease.isGranted) this.#all.drop(id);
  }
}

class Lease {
  /** What is attached, by store. None is empty. */
  readonly keys = new Map<StoreLeases, Set<string>>();
  readonly ttlSeconds: number;
  /** In the clock's milliseconds. */
  endsAt: number;
  /** Whether it lasts without keys. */
  readonly isGranted: boolean;
  timer: Timer | undefined;

  constructor(ttlSeconds: number, endsAt: number, isGranted: boolean) {
    this.ttlSeconds = ttlSeconds;
    this.endsAt = endsAt;
    this.isGranted = isGranted;
    this.timer = undefined;
  }

  attach(store: StoreLeases, key: string): void {
    const keys = this.keys.get(store);
    if (keys === undefined) this.keys.set(store, new Set([key]));
    else keys.add(key);
  }

  detach(store: StoreLeases, key: string): void {
    const keys = this.keys.get(store);
    keys?.delete(key);
    if (keys?.size === 0) this.keys.delete(store);
  }

  objects(): ObjectName[] {
    return [...this.keys].flatMap(([{ resource }, keys]) =>
      Array.from(keys, (key) => ({ resource, key })),
    );
  }
}

function tooManyLeases(maxGranted: number): WatchFanoutError {
  return new WatchFanoutError(
    "TOO_MANY_LEASES",
    `The embedded store has ${maxGranted} leases, the maximum. Revoke some, or attach several objects to one.`,
    { metadata: { limit: String(maxGranted) } },
  );
}
