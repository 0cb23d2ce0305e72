import { groupOf } from "../../base/fair-queue.ts";
import { Heap, type HeapItem } from "../../base/heap.ts";

/** The bounds of a ledger, in what it counts: bytes, or a number of things. Default of each: no bound. */
export interface LedgerBounds {
  /** Bound of all owners together. */
  readonly max?: number;
  /**
   * The fraction of `max` to which all owners together are reduced once they exceed it, so that not every further byte
   * evicts. Default: 1.
   */
  readonly lowWaterMark?: number;
  /** Bound of each owner. */
  readonly maxPerOwner?: number;
}

/** The usual `lowWaterMark` of a ledger of bytes. */
export const byteLowWaterMark = 7 / 8;

/** The bound that was reached: that of the owner, or that of all owners together. */
export type ReachedBound = "owner" | "total";

/** A part of a ledger that one owner holds. */
export interface Reservation {
  /** How much it holds; 0 once it is released. */
  readonly amount: number;
  /**
   * Of equal amounts of an owner, that with the lowest `since` is evicted first. With Infinity it can't be evicted. By
   * default a number that increases with each reservation: the oldest comes first.
   */
  since: number;
  /**
   * Sets the amount. If that exceeds a bound, reservations are evicted. If this one is evicted, it is released when this
   * returns.
   */
  resize(amount: number): void;
  /** Releases it. Idempotent, also after an eviction. */
  release(): void;
}

/**
 * Counts what the process holds for its clients, bytes or things, by owner: usually the connection that makes the process
 * hold it. The owners of one caller form a group. It knows which caller holds most, and evicts there, so that a client
 * that takes too much loses its own, on however many connections it has.
 *
 * For example, of a ledger with a bound of 800 one caller holds 150 on each of five connections. If another caller reserves
 * 100, the first one loses one of its 150. The newest reservation is not refused for being the newest.
 *
 * The groups are a heap by what they hold, and so are the owners of each, and the reservations of each owner. So to count
 * and to evict takes logarithmic time, also at a bound and with many thousands of callers.
 */
export class Ledger<Owner = object> {
  readonly bounds: LedgerBounds;
  readonly #groupOf: (owner: Owner) => unknown;
  readonly #owners = new Map<Owner, OwnerAccount<Owner>>();
  readonly #groups = new Map<unknown, Group<Owner>>();
  readonly #heap = new Heap<Group<Owner>>(holdsMore);
  #total = 0;
  #reserved = 0;
  #evictions = 0;

  /** An owner stays in the group that `groupOf` returns for it at first for as long as it holds something. */
  constructor(bounds: LedgerBounds = {}, groupOfOwner: (owner: Owner) => unknown = groupOf) {
    this.bounds = bounds;
    this.#groupOf = groupOfOwner;
  }

  /** What all owners hold. */
  get total(): number {
    return this.#total;
  }

  /** Number of reservations evicted so far. */
  get evictions(): number {
    return this.#evictions;
  }

  /** What one owner holds. */
  of(owner: Owner): number {
    return this.#owners.get(owner)?.amount ?? 0;
  }

  /**
   * Reserves an amount for an owner. On eviction the reservation is released, then `evict` is called, once, with the bound
   * that was reached. That may happen before this returns.
   */
  reserve(
    owner: Owner,
    amount: number,
    evict: (bound: ReachedBound) => void,
    since: number = ++this.#reserved,
  ): Reservation {
    const held = new Held(this, owner, evict, since);
    held.resize(amount);
    return held;
  }

  /**
   * Evicts the largest reservation of the owner that holds most, of the group that holds most, among those whose `since` is
   * `latest` or before; of `owner` alone if it is given. Returns false if nothing is evicted.
   */
  evict(latest: number = Infinity, owner?: Owner): boolean {
    if (owner !== undefined) return this.#evict(this.#owners.get(owner)?.first(latest), "owner");
    return this.#evict(
      this.#heap.find((group) => group.first(latest)),
      "total",
    );
  }

  /**
   * The owner that has to make room for one more thing of `owner`; undefined: none has to. It is the one that holds most, of
   * the group that holds most. That must have at least two more than the group of `owner`: with just one more, it would be
   * entitled to get it back at once. If no group has, the owners of that group share what it has in the same way.
   */
  makesRoomFor(owner: Owner): Owner | undefined {
    const own = this.#groups.get(this.#groupOf(owner));
    const most = this.#heap.first;
    if (most !== undefined && most.amount > (own?.amount ?? 0) + 1) return most.heap.first?.key;
    const mostOfOwn = own?.heap.first;
    const isMore = mostOfOwn !== undefined && mostOfOwn.amount > this.of(owner) + 1;
    return isMore ? mostOfOwn.key : undefined;
  }

  /** Whether there is room below `max` for one more thing of `owner`, for which one of `makesRoomFor` may be evicted. */
  makeRoom(owner: Owner, max: number): boolean {
    if (this.#total < max) return true;
    const crowding = this.makesRoomFor(owner);
    if (crowding !== undefined) this.evict(Infinity, crowding);
    return this.#total < max;
  }

  /** For `Held`: its amount has changed by this. */
  change(held: Held<Owner>, by: number): void {
    const { owner: key } = held;
    const owner = this.#owners.get(key) ?? this.#add(key);
    const { group } = owner;
    put(owner.heap, held);
    owner.amount += by;
    put(group.heap, owner);
    group.amount += by;
    put(this.#heap, group);
    this.#total += by;
    if (owner.amount === 0) this.#owners.delete(key);
    if (group.amount === 0) this.#groups.delete(group.key);
    if (by > 0) this.#shed(owner);
  }

  /** For `Held`: its `since` has changed. */
  reordered(held: Held<Owner>): void {
    this.#owners.get(held.owner)?.heap.moved(held);
  }

  #add(key: Owner): OwnerAccount<Owner> {
    const groupKey = this.#groupOf(key);
    let group = this.#groups.get(groupKey);
    if (group === undefined) {
      group = new Group(groupKey, ++this.#reserved);
      this.#groups.set(groupKey, group);
    }
    const owner = new OwnerAccount(key, group, ++this.#reserved);
    this.#owners.set(key, owner);
    return owner;
  }

  #shed(owner: OwnerAccount<Owner>): void {
    const { max = Infinity, maxPerOwner = Infinity, lowWaterMark = 1 } = this.bounds;
    while (owner.amount > maxPerOwner && this.#evict(owner.first(Infinity), "owner")) {}
    if (this.#total <= max) return;
    while (this.#total > max * lowWaterMark && this.evict()) {}
  }

  /** Returns whether there is one. */
  #evict(held: Held<Owner> | undefined, bound: ReachedBound): boolean {
    if (held === undefined) return false;
    this.#evictions++;
    held.evict(bound);
    return true;
  }
}

/** What holds an amount. */
interface Holder extends HeapItem {
  readonly amount: number;
  readonly since: number;
}

/** Of two that hold as much, the one that has held something for longer comes first. */
function holdsMore(a: Holder, b: Holder): boolean {
  return a.amount > b.amount || (a.amount === b.amount && a.since < b.since);
}

/** Puts what has a new amount where it belongs in the heap, or out of it if it holds nothing. */
function put<T extends Holder>(heap: Heap<T>, holder: T): void {
  const isInHeap = holder.place >= 0;
  if (holder.amount > 0) {
    if (isInHeap) heap.moved(holder);
    else heap.add(holder);
  } else if (isInHeap) heap.delete(holder);
}

class Group<Owner> implements Holder {
  readonly key: unknown;
  readonly heap = new Heap<OwnerAccount<Owner>>(holdsMore);
  place = -1;
  amount = 0;
  readonly since: number;

  constructor(key: unknown, since: number) {
    this.key = key;
    this.since = since;
  }

  /** The reservation to evict first, of those whose `since` is `latest` or before. */
  first(latest: number): Held<Owner> | undefined {
    return this.heap.find((owner) => owner.first(latest));
  }
}

class OwnerAccount<Owner> implements Holder {
  readonly key: Owner;
  readonly group: Group<Owner>;
  readonly heap = new Heap<Held<Owner>>(holdsMore);
  place = -1;
  amount = 0;
  readonly since: number;

  constructor(key: Owner, group: Group<Owner>, since: number) {
    this.key = key;
    this.since = since;
    this.group = group;
  }

  first(latest: number): Held<Owner> | undefined {
    return this.heap.find((held) => held.first(latest));
  }
}

class Held<Owner> implements Reservation, Holder {
  readonly owner: Owner;
  readonly #ledger: Ledger<Owner>;
  #onEvict: ((bound: ReachedBound) => void) | undefined;
  #since: number;
  place = -1;
  amount = 0;

  constructor(
    ledger: Ledger<Owner>,
    owner: Owner,
    onEvict: (bound: ReachedBound) => void,
    since: number,
  ) {
    this.#ledger = ledger;
    this.owner = owner;
    this.#onEvict = onEvict;
    this.#since = since;
  }

  get since(): number {
    return this.#since;
  }

  set since(since: number) {
    this.#since = since;
    if (this.place >= 0) this.#ledger.reordered(this);
  }

  first(latest: number): this | undefined {
    return this.#since <= latest && this.#since < Infinity ? this : undefined;
  }

  resize(amount: number): void {
    const by = amount - this.amount;
    if (by === 0 || this.#onEvict === undefined) return;
    this.amount = amount;
    this.#ledger.change(this, by);
  }

  release(): void {
    this.resize(0);
    this.#onEvict = undefined;
  }

  /** For the ledger. */
  evict(bound: ReachedBound): void {
    const onEvict = this.#onEvict;
    this.release();
    onEvict?.(bound);
  }
}
