/**
 * An owner that shares the turns of a group with the other owners of it: a connection of a caller. Any other object that
 * is used as an owner is a group of its own.
 */
export abstract class GroupedOwner {
  readonly group: object;

  constructor(group: object) {
    this.group = group;
  }
}

/** The group that an owner's turns count against. */
export function groupOf<T>(owner: T): T | object {
  return owner instanceof GroupedOwner ? owner.group : owner;
}

/** An item that waits, and whose turn it takes. */
export type Waiting<T> = readonly [owner: object, item: T];

/**
 * What waits, fair by caller: groups of owners (callers) take turns, within a group its owners (connections) do, and the
 * items of an owner are in order. So a caller that has a thousand items, or twenty connections, delays itself, and others
 * by one item.
 *
 * This is the only queue of that kind. Its users decide when a turn is: `Gate` when another leaves, `Turns` by the time
 * slices of the event loop, and others by what they count. Its users bound it, too.
 */
export class FairQueue<T> {
  /** The next group first, in it the next owner, and of that the next item. No group and no owner is empty. */
  readonly #groups = new Map<object, Map<object, Items<T>>>();
  #size = 0;

  /** Number of items that wait. */
  get size(): number {
    return this.#size;
  }

  /** Whether an item of the owner waits. */
  has(owner: object): boolean {
    return this.#size > 0 && this.#groups.get(groupOf(owner))?.has(owner) === true;
  }

  /** Whether an item of an owner of the group waits. */
  hasGroup(group: object): boolean {
    return this.#groups.has(group);
  }

  /** Adds an item behind those of the owner. No effect if it is one of them. */
  push(owner: object, item: T): void {
    const group = groupOf(owner);
    const owners = this.#groups.get(group);
    const items = owners?.get(owner);
    if (items === undefined) {
      if (owners === undefined) this.#groups.set(group, new Map([[owner, new Items(item)]]));
      else owners.set(owner, new Items(item));
      this.#size++;
    } else if (items.add(item)) {
      this.#size++;
    }
  }

  /** Removes an item. Returns whether it waited. The turn of its owner is where it was. */
  delete(owner: object, item: T): boolean {
    const group = groupOf(owner);
    const owners = this.#groups.get(group);
    const items = owners?.get(owner);
    if (owners === undefined || items?.delete(item) !== true) return false;
    this.#size--;
    if (items.size > 0) return true;
    owners.delete(owner);
    if (owners.size === 0) this.#groups.delete(group);
    return true;
  }

  clear(): void {
    this.#groups.clear();
    this.#size = 0;
  }

  /** The first item of an owner, which stays. */
  first(owner: object): T | undefined {
    return this.#groups.get(groupOf(owner))?.get(owner)?.first;
  }

  /** The next item, which stays. Passes over groups, and owners by their first item, that may not have a turn now. */
  next(
    mayGroup: (group: object) => boolean = always,
    mayOwner: (owner: object, first: T) => boolean = always,
  ): Waiting<T> | undefined {
    for (const [group, owners] of this.#groups) {
      const next = mayGroup(group) ? firstIn(owners, mayOwner) : undefined;
      if (next !== undefined) return next;
    }
    return undefined;
  }

  /** Takes the next item out: its owner moves behind the others. As `next` otherwise. */
  shift(
    mayGroup: (group: object) => boolean = always,
    mayOwner: (owner: object, first: T) => boolean = always,
  ): Waiting<T> | undefined {
    return this.#take(this.next(mayGroup, mayOwner));
  }

  /** Takes the next item of one group out. */
  shiftIn(group: object): Waiting<T> | undefined {
    const owners = this.#groups.get(group);
    return this.#take(owners && firstIn(owners, always));
  }

  /** The owner has had its turn: it moves behind the others of its group, and its group behind the other groups. */
  served(owner: object): void {
    const group = groupOf(owner);
    const owners = this.#groups.get(group);
    if (owners === undefined) return;
    moveToEnd(owners, owner);
    moveToEnd(this.#groups, group);
  }

  /**
   * The item that came last, of the owner that has most, of the group that has most: what is refused at a bound. `added` is
   * the item that came last of all. Takes as long as there are owners, so call it only at the bound.
   */
  newestOfMost(added: Waiting<T>): Waiting<T> {
    let largest: ReadonlyMap<object, Items<T>> | undefined;
    let most = 0;
    for (const owners of this.#groups.values()) {
      let sum = 0;
      for (const items of owners.values()) sum += items.size;
      if (sum > most) [largest, most] = [owners, sum];
    }
    if (largest === undefined) return added;
    const [owner, items] = [...largest].reduce((a, b) => (b[1].size > a[1].size ? b : a));
    return owner === added[0] ? added : [owner, items.last];
  }

  #take(next: Waiting<T> | undefined): Waiting<T> | undefined {
    if (next === undefined) return undefined;
    this.delete(...next);
    this.served(next[0]);
    return next;
  }
}

/** An item between its neighbours. */
interface Link<T> {
  readonly item: T;
  before: Link<T> | undefined;
  behind: Link<T> | undefined;
}

/**
 * The items of one owner, in order; never empty while it is in a queue. They are linked, as the order of a `Set` has neither
 * a last item, nor a first one whose cost does not grow with the deleted ones before it: an iterator that is kept at the
 * first one would keep those alive that are deleted behind it.
 */
class Items<T> {
  readonly #links = new Map<T, Link<T>>();
  #first: Link<T>;
  #last: Link<T>;

  constructor(item: T) {
    const link: Link<T> = { item, before: undefined, behind: undefined };
    this.#links.set(item, link);
    this.#first = link;
    this.#last = link;
  }

  get size(): number {
    return this.#links.size;
  }

  get first(): T {
    return this.#first.item;
  }

  get last(): T {
    return this.#last.item;
  }

  /** Returns false if it is one of them already. */
  add(item: T): boolean {
    if (this.#links.has(item)) return false;
    const link: Link<T> = { item, before: this.#last, behind: undefined };
    this.#links.set(item, link);
    this.#last.behind = link;
    this.#last = link;
    return true;
  }

  /** Returns whether it was one of them. */
  delete(item: T): boolean {
    const link = this.#links.get(item);
    if (link === undefined) return false;
    this.#links.delete(item);
    const { before, behind } = link;
    if (before !== undefined) before.behind = behind;
    else if (behind !== undefined) this.#first = behind;
    if (behind !== undefined) behind.before = before;
    else if (before !== undefined) this.#last = before;
    // Otherwise an old link would keep younger ones until all memory is collected.
    link.behind = undefined;
    return true;
  }
}

function always(): boolean {
  return true;
}

function firstIn<T>(
  owners: ReadonlyMap<object, Items<T>>,
  mayOwner: (owner: object, first: T) => boolean,
): Waiting<T> | undefined {
  for (const [owner, items] of owners) {
    if (mayOwner(owner, items.first)) return [owner, items.first];
  }
  return undefined;
}

function moveToEnd<V>(map: Map<object, V>, key: object): void {
  const value = map.get(key);
  if (value === undefined) return;
  map.delete(key);
  map.set(key, value);
}

/** Counts by object. An object whose count is 0 takes no memory. */
export class Counts {
  readonly #counts = new Map<object, number>();

  of(key: object): number {
    return this.#counts.get(key) ?? 0;
  }

  add(key: object, by: number): void {
    const count = this.of(key) + by;
    if (count === 0) this.#counts.delete(key);
    else this.#counts.set(key, count);
  }
}
