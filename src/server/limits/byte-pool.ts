/** The bounds of a pool, in bytes. */
export interface BytePoolBounds {
  /** All owners together. */
  readonly maxBytes: number;
  /** Each owner. */
  readonly maxBytesPerOwner: number;
}

/** What one holder has of a pool. */
export interface Reservation {
  readonly bytes: number;
  /**
   * Sets how much is held. What exceeds a bound by this evicts reservations, which may be this one: then it
   * is released when this returns.
   */
  resize(bytes: number): void;
  /** Gives all back. Idempotent; also after an eviction. */
  release(): void;
}

/** After an overflow the pool is brought down to this part of its bound, so that not every byte evicts. */
const lowWaterMark = 7 / 8;

/**
 * Bytes that the process holds on behalf of clients, bounded per owner (a connection, mostly) and in all.
 *
 * On overflow it is never the last to come that is refused, but the owner that holds most: its largest
 * reservation is evicted, until the pool is below its bound. One client that fills the pool loses its own
 * reservations, and nobody else's.
 */
export class BytePool {
  readonly #bounds: BytePoolBounds;
  readonly #owners = new Map<object, Owner>();
  #bytes = 0;
  #evictions = 0;

  constructor(bounds: BytePoolBounds) {
    this.#bounds = bounds;
  }

  /** Held now by all owners together. */
  get bytes(): number {
    return this.#bytes;
  }

  /** How many reservations have been evicted. */
  get evictions(): number {
    return this.#evictions;
  }

  /** Held now by one owner. */
  bytesOf(owner: object): number {
    return this.#owners.get(owner)?.bytes ?? 0;
  }

  /** `evict` is called once, after the reservation was released, if it has to go to make room. */
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
      known = { bytes: 0, reservations: new Set() };
      this.#owners.set(owner, known);
    }
    known.bytes += by;
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
      for (const candidate of this.#owners.values()) {
        if (largest === undefined || candidate.bytes > largest.bytes) largest = candidate;
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
