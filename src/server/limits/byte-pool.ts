import { Counts, groupOf } from "../../base/rotation.ts";

/** The bounds of a pool, in bytes. */
export interface BytePoolBounds {
  /** Bound of all owners together. */
  readonly maxBytes: number;
  /** Bound of each owner. */
  readonly maxBytesPerOwner: number;
}

/** A part of a pool that one holder has. */
export interface Reservation {
  readonly bytes: number;
  /**
   * Sets the number of bytes. If that exceeds a bound, reservations are evicted. If this one is evicted, it is released
   * when this returns.
   */
  resize(bytes: number): void;
  /** Releases all bytes. Idempotent, also after an eviction. */
  release(): void;
}

/** After an overflow the pool is reduced to this fraction of its bound, so that not every further byte evicts. */
const lowWaterMark = 7 / 8;

/**
 * Bounds the bytes that the process holds for clients, per owner (usually a connection) and in total.
 *
 * On overflow the owner that holds most loses its largest reservation, of the group of owners (caller) that holds most,
 * until the pool is below its bound. The newest reservation is not refused for being the newest, so a client that fills
 * the pool loses only its own reservations, on however many connections.
 */
export class BytePool {
  readonly #bounds: BytePoolBounds;
  readonly #ownerOf: (owner: object) => object;
  readonly #owners = new Map<object, Owner>();
  readonly #ofGroup = new Counts();
  #bytes = 0;
  #evictions = 0;

  /** `ownerOf` returns the owner, in its group, that stands for one that is given, such as a connection. Default: itself. */
  constructor(bounds: BytePoolBounds, ownerOf: (owner: object) => object = (owner) => owner) {
    this.#bounds = bounds;
    this.#ownerOf = ownerOf;
  }

  /** Bytes held by all owners. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Number of reservations evicted so far. */
  get evictions(): number {
    return this.#evictions;
  }

  /** Bytes held by one owner. */
  bytesOf(owner: object): number {
    return this.#owners.get(owner)?.bytes ?? 0;
  }

  /** Reserves bytes for an owner. On eviction the reservation is released, then `evict` is called, once. */
  reserve(owner: object, bytes: number, evict: () => void): Reservation {
    const reservation = new Held(this, owner, evict);
    reservation.resize(bytes);
    return reservation;
  }

  /** For `Held`. */
  change(held: Held, by: number): void {
    const { owner } = held;
    let known = this.#owners.get(owner);
    if (known === undefined) {
      known = { group: groupOf(this.#ownerOf(owner)), bytes: 0, reservations: new Set() };
      this.#owners.set(owner, known);
    }
    known.bytes += by;
    this.#ofGroup.add(known.group, by);
    this.#bytes += by;
    if (held.bytes > 0) known.reservations.add(held);
    else known.reservations.delete(held);
    if (known.reservations.size === 0) this.#owners.delete(owner);
    if (by > 0) this.#shed(known);
  }

  #shed(owner: Owner): void {
    const { maxBytes, maxBytesPerOwner } = this.#bounds;
    while (owner.bytes > maxBytesPerOwner) this.#evictFrom(owner);
    if (this.#bytes <= maxBytes) return;
    while (this.#bytes > maxBytes * lowWaterMark) {
      let largest: Owner | undefined;
      let ofGroup = 0;
      for (const candidate of this.#owners.values()) {
        const bytes = this.#ofGroup.of(candidate.group);
        if (bytes < ofGroup) continue;
        if (bytes > ofGroup || largest === undefined || candidate.bytes > largest.bytes) {
          largest = candidate;
        }
        ofGroup = bytes;
      }
      if (largest === undefined) return;
      this.#evictFrom(largest);
    }
  }

  #evictFrom(owner: Owner): void {
    let largest: Held | undefined;
    for (const held of owner.reservations) {
      if (largest === undefined || held.bytes > largest.bytes) largest = held;
    }
    if (largest === undefined) return;
    this.#evictions++;
    largest.evict();
  }
}

interface Owner {
  readonly group: object;
  bytes: number;
  readonly reservations: Set<Held>;
}

class Held implements Reservation {
  readonly owner: object;
  readonly #pool: BytePool;
  #onEvict: (() => void) | undefined;
  #isReleased = false;
  bytes = 0;

  constructor(pool: BytePool, owner: object, onEvict: () => void) {
    this.#pool = pool;
    this.owner = owner;
    this.#onEvict = onEvict;
  }

  resize(bytes: number): void {
    if (this.#isReleased || bytes === this.bytes) return;
    const by = bytes - this.bytes;
    this.bytes = bytes;
    this.#pool.change(this, by);
  }

  release(): void {
    this.resize(0);
    this.#isReleased = true;
    this.#onEvict = undefined;
  }

  /** For the pool. */
  evict(): void {
    const onEvict = this.#onEvict;
    this.release();
    onEvict?.();
  }
}
