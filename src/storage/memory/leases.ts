import { randomBytes } from "node:crypto";
import { type Clock, maxTimerMs, type Timer } from "../../base/clock.ts";
import { upstreamUnavailable, WatchFanoutError } from "../../base/errors.ts";
import { compareKeys } from "../../model/key-order.ts";
import { endedLease, leaseNotFound } from "../lease-renewals.ts";
import type { GrantedLease, LeaseState, Leases, ObjectName } from "../store.ts";
import type { Keyspace } from "./keyspace.ts";
import type { KeyEvents } from "./transaction-log.ts";

/** Default maximum number of leases that were granted by themselves: each takes some hundred bytes. */
const defaultMaxGranted = 100_000;

/**
 * The leases of the embedded store: what is attached to each, and when it ends.
 *
 * Unlike in etcd, a lease that a put with a time to live has granted ends when its last key is detached. So there are never
 * more of these than objects, however often an object is put.
 */
export class MemoryLeases implements Leases {
  readonly #clock: Clock;
  readonly #expire: (attached: readonly AttachedKeys[]) => void;
  readonly #leases = new Map<bigint, Lease>();
  readonly #maxGranted: number;
  #granted = 0;
  #isClosed = false;

  /**
   * `expire` has to delete these keys of a lease that has ended; as in etcd, they are in key order. `maxGranted`: maximum number
   * of leases that were granted by themselves.
   */
  constructor(
    clock: Clock,
    expire: (attached: readonly AttachedKeys[]) => void,
    maxGranted: number = defaultMaxGranted,
  ) {
    this.#clock = clock;
    this.#expire = expire;
    this.#maxGranted = maxGranted;
  }

  get size(): number {
    return this.#leases.size;
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

  has(id: bigint): boolean {
    return this.#leases.has(id);
  }

  /** Attaches and detaches keys for the changes of one revision. */
  follow(parts: readonly KeyEvents[]): void {
    // Attach first: a lease that loses its last key in this revision may get another one in it.
    for (const { keys, events } of parts) {
      for (const { type, object } of events) {
        if (type !== "DELETED") this.#leases.get(object.lease)?.attach(keys, object.key);
      }
    }
    for (const { keys, events } of parts) {
      for (const { type, object, previous } of events) {
        const before = previous?.lease ?? 0n;
        if (type === "DELETED" || before !== object.lease) this.#detach(before, keys, object.key);
      }
    }
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

  #detach(id: bigint, keys: Keyspace, key: string): void {
    const lease = this.#leases.get(id);
    if (lease === undefined) return;
    lease.detach(keys, key);
    if (lease.attached.size === 0 && !lease.isGranted) this.drop(id);
  }

  #end(id: bigint, lease: Lease): void {
    this.drop(id);
    const attached = [...lease.attached];
    this.#expire(attached.map(([keys, names]) => ({ keys, names: [...names].sort(compareKeys) })));
  }

  /** Random, so that the id of a lease from before a restart is not in use again. */
  #freeId(): bigint {
    for (;;) {
      const id = BigInt.asUintN(63, randomBytes(8).readBigUInt64BE());
      if (id !== 0n && !this.#leases.has(id)) return id;
    }
  }
}

/** The keys of a resource that have one lease. */
export interface AttachedKeys {
  readonly keys: Keyspace;
  readonly names: readonly string[];
}

class Lease {
  /** What is attached, by resource. None is empty. */
  readonly attached = new Map<Keyspace, Set<string>>();
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

  attach(keys: Keyspace, key: string): void {
    const names = this.attached.get(keys);
    if (names === undefined) this.attached.set(keys, new Set([key]));
    else names.add(key);
  }

  detach(keys: Keyspace, key: string): void {
    const names = this.attached.get(keys);
    names?.delete(key);
    if (names?.size === 0) this.attached.delete(keys);
  }

  objects(): ObjectName[] {
    return [...this.attached].flatMap(([{ resource }, names]) =>
      Array.from(names, (key) => ({ resource, key })),
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
