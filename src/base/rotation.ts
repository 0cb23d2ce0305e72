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

/**
 * What waits or is held, by owner, served in rotation: groups take turns, and within a group its owners do. So a caller with
 * twenty connections has as many turns as one with a single connection. The caller of this bounds it: it has an entry for
 * each owner that was added and not deleted.
 */
export class Rotation<T> {
  /** The next group first, and in it the next owner. No group is empty. */
  readonly #groups = new Map<object, Map<object, T>>();
  #size = 0;

  /** Removes all owners. */
  clear(): void {
    this.#groups.clear();
    this.#size = 0;
  }

  /** Number of owners. */
  get size(): number {
    return this.#size;
  }

  /** What the owner has; undefined: it is not here. */
  get(owner: object): T | undefined {
    return this.#groups.get(groupOf(owner))?.get(owner);
  }

  /** Adds an owner, which must not be here, behind the others of its group. */
  add(owner: object, entry: T): void {
    const group = groupOf(owner);
    const owners = this.#groups.get(group);
    if (owners === undefined) this.#groups.set(group, new Map([[owner, entry]]));
    else owners.set(owner, entry);
    this.#size++;
  }

  /** Removes an owner. Returns whether it was here. */
  delete(owner: object): boolean {
    const group = groupOf(owner);
    const owners = this.#groups.get(group);
    if (owners?.delete(owner) !== true) return false;
    this.#size--;
    if (owners.size === 0) this.#groups.delete(group);
    return true;
  }

  /** The owner whose turn is next. */
  next(): readonly [owner: object, entry: T] | undefined {
    for (const owners of this.#groups.values()) for (const next of owners) return next;
    return undefined;
  }

  /** The owner of a group whose turn is next within it. */
  nextIn(group: object): readonly [owner: object, entry: T] | undefined {
    for (const next of this.#groups.get(group) ?? []) return next;
    return undefined;
  }

  /** Like `next`, but passes over owners that must not have a turn now, and groups of which none may. */
  nextOf(
    mayGroup: (group: object) => boolean,
    mayOwner: (owner: object, entry: T) => boolean,
  ): readonly [owner: object, entry: T] | undefined {
    for (const [group, owners] of this.#groups) {
      if (!mayGroup(group)) continue;
      for (const next of owners) if (mayOwner(...next)) return next;
    }
    return undefined;
  }

  /** The owner has had its turn: it moves behind the others of its group, and its group behind the other groups. */
  served(owner: object): void {
    const group = groupOf(owner);
    const owners = this.#groups.get(group);
    const entry = owners?.get(owner);
    if (owners === undefined || entry === undefined) return;
    owners.delete(owner);
    owners.set(owner, entry);
    this.#groups.delete(group);
    this.#groups.set(group, owners);
  }

  /**
   * The group that has most, and in it the owner that has most, by the size of what each has. Takes as long as there are
   * owners, so call it only at a bound.
   */
  most(sizeOf: (entry: T) => number): Most<T> | undefined {
    let largest: ReadonlyMap<object, T> | undefined;
    let total = 0;
    for (const owners of this.#groups.values()) {
      const sum = sumOf(owners, sizeOf);
      if (sum > total) [largest, total] = [owners, sum];
    }
    if (largest === undefined) return undefined;
    const [owner, entry] = mostIn(largest, sizeOf);
    return { owner, entry, total };
  }

  /** What all owners have, in the order of their turns. */
  *[Symbol.iterator](): Generator<readonly [owner: object, entry: T], void, void> {
    for (const owners of this.#groups.values()) yield* owners;
  }
}

/** The owner that has most in its group. */
export interface Most<T> {
  readonly owner: object;
  readonly entry: T;
  /** The size of what its group has. */
  readonly total: number;
}

function sumOf<T>(owners: ReadonlyMap<object, T>, sizeOf: (entry: T) => number): number {
  let sum = 0;
  for (const entry of owners.values()) sum += sizeOf(entry);
  return sum;
}

/** `owners` must not be empty. */
function mostIn<T>(owners: ReadonlyMap<object, T>, sizeOf: (entry: T) => number): [object, T] {
  return [...owners].reduce((most, next) => (sizeOf(next[1]) > sizeOf(most[1]) ? next : most));
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
