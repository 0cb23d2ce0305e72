import { randomBytes } from "node:crypto";
import { type Clock, maxTimerMs, type Timer } from "../../base/clock.ts";
import { compareKeys } from "../../model/key-order.ts";
import type { Keyspace } from "./keyspace.ts";
import type { KeyEvents } from "./transaction-log.ts";

/**
 * The leases of the embedded store: the keys of each lease, and when it expires.
 *
 * Unlike in etcd, a lease ends when its last key is detached. So there are never more leases than objects, however
 * often an object is put with a time to live.
 */
export class Leases {
  readonly #clock: Clock;
  readonly #expire: (attached: readonly AttachedKeys[]) => void;
  readonly #leases = new Map<bigint, Lease>();

  /** `expire` has to delete these keys of an expired lease; as in etcd, they are in key order. */
  constructor(clock: Clock, expire: (attached: readonly AttachedKeys[]) => void) {
    this.#clock = clock;
    this.#expire = expire;
  }

  get size(): number {
    return this.#leases.size;
  }

  has(id: bigint): boolean {
    return this.#leases.has(id);
  }

  /** Grants a lease of this many seconds. A caller that puts no key under it has to `revoke` it. */
  grant(ttlSeconds: number): bigint {
    const id = this.#freeId();
    const lease = new Lease(this.#clock.now() + ttlSeconds * 1000);
    this.#leases.set(id, lease);
    this.#wait(id, lease);
    return id;
  }

  /** Ends a lease that has no key. */
  revoke(id: bigint): void {
    this.#leases.get(id)?.timer?.cancel();
    this.#leases.delete(id);
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

  /** Ends all leases without deleting keys. */
  clear(): void {
    for (const lease of this.#leases.values()) lease.timer?.cancel();
    this.#leases.clear();
  }

  #detach(id: bigint, keys: Keyspace, key: string): void {
    const lease = this.#leases.get(id);
    if (lease === undefined) return;
    lease.detach(keys, key);
    if (lease.attached.size === 0) this.revoke(id);
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
    this.#leases.delete(id);
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
  readonly attached = new Map<Keyspace, Set<string>>();
  /** In the clock's milliseconds. */
  readonly endsAt: number;
  timer: Timer | undefined;

  constructor(endsAt: number) {
    this.endsAt = endsAt;
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
}
