import type { Timer } from "../../base/clock.ts";
import { compareKeys } from "../../model/key-order.ts";
import type { KeptLease } from "../journal/journal.ts";

/** The leases of a store, as changes use them. */
export interface KnownLeases {
  has(id: bigint): boolean;
  /**
   * Makes a lease for a change, with a random id unless one is given. It does not last before it is added. Throws
   * INVALID_REQUEST if the id is in use.
   */
  newLease(ttlSeconds: number, isGranted: boolean, id?: bigint): Lease;
}

/** A lease of the embedded store. */
export class Lease implements KeptLease {
  readonly id: bigint;
  readonly ttlSeconds: number;
  readonly isGranted: boolean;
  /** The whole keys that are attached. */
  readonly attached = new Set<string>();
  /** In the clock's milliseconds. */
  endsAt = 0;
  timer: Timer | undefined;
  /** Whether others may know of it. */
  isKept = false;

  constructor({ id, ttlSeconds, isGranted }: KeptLease) {
    this.id = id;
    this.ttlSeconds = ttlSeconds;
    this.isGranted = isGranted;
    this.timer = undefined;
  }

  /** What is kept of it. */
  get record(): KeptLease {
    const { id, ttlSeconds, isGranted } = this;
    return { id, ttlSeconds, isGranted };
  }

  /** Whether it ends, as it has no keys and does not last without. */
  get isOver(): boolean {
    return !this.isGranted && this.attached.size === 0;
  }

  /** The whole keys that are attached, in key order. */
  keys(): string[] {
    return [...this.attached].sort(compareKeys);
  }
}
