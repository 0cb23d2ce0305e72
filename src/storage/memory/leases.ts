import { randomBytes } from "node:crypto";
import { type Clock, maxTimerMs, type Timer } from "../../base/clock.ts";
import type { WatchEvent } from "../../model/event.ts";
import { compareKeys } from "../../model/key-order.ts";

/**
 * The leases of the embedded store: which keys each of them holds, and when it ends.
 *
 * Unlike etcd's, a lease ends as soon as it holds no key any more, so that there are never more of them
 * than objects, however often an object is put with a time to live.
 */
export class Leases {
  readonly #clock: Clock;
  readonly #expire: (keys: readonly string[]) => void;
  readonly #leases = new Map<bigint, Lease>();

  /** `expire` is to delete these keys, which a lease held that has ended: as in etcd, in their order. */
  constructor(clock: Clock, expire: (keys: readonly string[]) => void) {
    this.#clock = clock;
    this.#expire = expire;
  }

  get size(): number {
    return this.#leases.size;
  }

  has(id: bigint): boolean {
    return this.#leases.has(id);
  }

  /** A new lease of so many seconds. Whoever does not put a key under it has to `revoke` it. */
  grant(ttlSeconds: number): bigint {
    const id = this.#freeId();
    const lease = new Lease(this.#clock.now() + ttlSeconds * 1000);
    this.#leases.set(id, lease);
    this.#wait(id, lease);
    return id;
  }

  /** Ends a lease that holds no key. */
  revoke(id: bigint): void {
    this.#leases.get(id)?.timer?.cancel();
    this.#leases.delete(id);
  }

  /** Attaches and detaches keys as these changes say, which are those of one revision. */
  follow(events: readonly WatchEvent[]): void {
    // All are attached first: a lease that loses its last key here may get another one here.
    for (const { type, object } of events) {
      if (type !== "DELETED") this.#leases.get(object.lease)?.keys.add(object.key);
    }
    for (const { type, object, previous } of events) {
      const before = previous?.lease ?? 0n;
      if (type === "DELETED" || before !== object.lease) this.#detach(before, object.key);
    }
  }

  /** Ends all of them, and deletes nothing. */
  clear(): void {
    for (const lease of this.#leases.values()) lease.timer?.cancel();
    this.#leases.clear();
  }

  #detach(id: bigint, key: string): void {
    const lease = this.#leases.get(id);
    if (lease === undefined) return;
    lease.keys.delete(key);
    if (lease.keys.size === 0) this.revoke(id);
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
    this.#expire([...lease.keys].sort(compareKeys));
  }

  /** Random, so that one from before a restart does not happen to be another's now. */
  #freeId(): bigint {
    for (;;) {
      const id = BigInt.asUintN(63, randomBytes(8).readBigUInt64BE());
      if (id !== 0n && !this.#leases.has(id)) return id;
    }
  }
}

class Lease {
  readonly keys = new Set<string>();
  /** In the clock's milliseconds. */
  readonly endsAt: number;
  timer: Timer | undefined;

  constructor(endsAt: number) {
    this.endsAt = endsAt;
    this.timer = undefined;
  }
}
