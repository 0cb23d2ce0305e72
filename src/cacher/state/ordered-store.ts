import sortedBTree from "sorted-btree";
import { bulkLoad } from "sorted-btree/extended/bulkLoad.js";
import sortedUnion from "sorted-btree/extended/union.js";
import type { TimeSlicedWork } from "../../base/event-loop-turns.ts";
import { isRawKey } from "../../model/key-bytes.ts";
import { compareKeys } from "../../model/key-order.ts";
import type { StoredObject } from "../../model/object.ts";
import { intervalOf, type ListScope } from "../../storage/key-scopes.ts";
import { isBetween, type KeyInterval, type WatchScope } from "../../storage/storage.ts";

// The package is CommonJS: in Node, its default export is nested one level deeper.
const BTree = sortedBTree.default;
const union = sortedUnion.default;
type Tree = sortedBTree.default<string, StoredObject>;

/** Maximum number of entries per tree node, and how full a new tree is built, which leaves room for changes. */
const nodeSize = 32;
const loadFactor = 0.9;

/**
 * Number of objects that a tree is built from at once. An array of this length is collected with V8's young generation,
 * while one for a large state would stay as garbage until the next full collection.
 */
const builtAtOnce = 4_096;

/** Number of objects counted between two yields. */
const countedPerStep = 4_096;

/** Ends a step with the first key that is not counted. */
function afterStep(key: string, _: StoredObject, counted: number): { break: string } | undefined {
  return counted === countedPerStep ? { break: key } : undefined;
}

function emptyTree(): Tree {
  return new BTree<string, StoredObject>(undefined, compareKeys, nodeSize);
}

/** Returns a tree of these objects, which are in key order. Its parts share no keys, so that they are only joined. */
function builtTree(objects: readonly StoredObject[]): Tree {
  let tree = emptyTree();
  for (let i = 0; i < objects.length; i += builtAtOnce) {
    const part = objects.slice(i, i + builtAtOnce);
    const keys = part.map(({ key }) => key);
    tree = union(tree, bulkLoad(keys, part, nodeSize, compareKeys, loadFactor), laterOf);
  }
  return tree;
}

function laterOf(_key: string, _earlier: StoredObject, later: StoredObject): StoredObject {
  return later;
}

/** Whether each key is above the one before. */
function isSortedByKey(objects: readonly StoredObject[]): boolean {
  let before: string | undefined;
  for (const { key } of objects) {
    if (before !== undefined && compareKeys(before, key) >= 0) return false;
    before = key;
  }
  return true;
}

/**
 * Objects in key order. A snapshot is free: both share one copy-on-write tree, and the first change to either copies
 * the path to the changed entry.
 */
export class OrderedStore {
  readonly #tree: Tree;
  /** The objects with raw keys, which are few, in a tree of their own as well; undefined: there was no such object. */
  #raw: Tree | undefined;

  constructor(tree: Tree = emptyTree()) {
    this.#tree = tree;
  }

  /**
   * Returns a store with these objects. If they are in key order, as storages list them, the tree is built from its
   * leaves, which takes a fifth of the time of setting one after the other.
   */
  static of(objects: readonly StoredObject[]): OrderedStore {
    if (isSortedByKey(objects)) {
      const state = new OrderedStore(builtTree(objects));
      for (const object of objects) state.#setRaw(object);
      return state;
    }
    const state = new OrderedStore();
    for (const object of objects) state.set(object);
    return state;
  }

  get size(): number {
    return this.#tree.size;
  }

  get(key: string): StoredObject | undefined {
    return this.#tree.get(key);
  }

  set(object: StoredObject): void {
    this.#tree.set(object.key, object);
    this.#setRaw(object);
  }

  delete(key: string): void {
    this.#tree.delete(key);
    this.#raw?.delete(key);
  }

  /** Returns an immutable copy of the current state. */
  snapshot(): OrderedStore {
    const copy = new OrderedStore(this.#tree.clone());
    copy.#raw = this.#raw?.clone();
    return copy;
  }

  /** Yields the objects whose keys begin with `prefix` and sort after `startAfter`, in key order. */
  *range(prefix: string, startAfter?: string): Generator<StoredObject, void, void> {
    // The prefix may itself be a key, and the last one of the page before.
    const from = startAfter !== undefined && compareKeys(startAfter, prefix) >= 0;
    for (const object of this.#tree.values(from ? startAfter : prefix)) {
      if (from && object.key === startAfter) continue;
      if (!object.key.startsWith(prefix)) return;
      yield object;
    }
  }

  /** The number of objects that `range` yields. The store must not change meanwhile. */
  count(prefix: string, startAfter?: string): TimeSlicedWork<number> {
    return this.countIn({ prefix }, startAfter);
  }

  /** As `countIn`, without objects with raw keys. */
  *countNamed(scope: ListScope, after?: string): TimeSlicedWork<number> {
    const counted = yield* this.countIn(scope, after);
    if (this.#raw === undefined) return counted;
    return counted - (yield* new OrderedStore(this.#raw).countIn(scope, after));
  }

  /**
   * The objects in the scope, in key order, or in the opposite one if it is descending: those that follow the key `after` in
   * that order. The store must not change meanwhile.
   */
  objectsIn(scope: WatchScope, after?: string, isDescending = false): Iterable<StoredObject> {
    if ("key" in scope) {
      const object = this.get(scope.key);
      const order = after === undefined ? 0 : compareKeys(scope.key, after);
      const follows = after === undefined || (isDescending ? order < 0 : order > 0);
      return object !== undefined && follows ? [object] : [];
    }
    if (isDescending) return this.#descending(intervalOf(scope), after);
    return "prefix" in scope ? this.range(scope.prefix, after) : this.#between(scope, after);
  }

  /** Number of objects in the scope that follow the key `after`. The store must not change meanwhile. */
  *countIn(scope: WatchScope, after?: string): TimeSlicedWork<number> {
    if ("key" in scope) return [...this.objectsIn(scope, after)].length;
    const { from, to } = intervalOf(scope);
    if (from === "" && to === undefined && after === undefined) return this.#tree.size;
    const isAfter = after !== undefined && compareKeys(after, from) >= 0;
    const low = isAfter ? after : from;
    const counted = yield* this.#countBetween(low, to);
    const hasLow = isAfter && this.#tree.has(low) && isBetween(low, { from, to });
    return hasLow ? counted - 1 : counted;
  }

  /** Number of objects from one key on, up to another, which is excluded; undefined: up to the last. */
  *#countBetween(from: string, to: string | undefined): TimeSlicedWork<number> {
    const high = to ?? this.#tree.maxKey();
    if (high === undefined) return 0;
    let counted = 0;
    for (let low = from; compareKeys(low, high) <= 0; ) {
      const found = this.#tree.forRange(low, high, to === undefined, afterStep);
      if (typeof found === "number") return counted + found;
      counted += countedPerStep;
      low = found;
      yield;
    }
    return counted;
  }

  *#between({ from, to }: KeyInterval, after?: string): Generator<StoredObject, void, void> {
    const isAfter = after !== undefined && compareKeys(after, from) >= 0;
    for (const object of this.#tree.values(isAfter ? after : from)) {
      if (isAfter && object.key === after) continue;
      if (to !== undefined && compareKeys(object.key, to) >= 0) return;
      yield object;
    }
  }

  /** Those below the key `before`, the last one first. */
  *#descending({ from, to }: KeyInterval, before?: string): Generator<StoredObject, void, void> {
    if (this.#tree.size === 0) return;
    const isBefore = before !== undefined && (to === undefined || compareKeys(before, to) < 0);
    const entry: (string | StoredObject)[] = [];
    for (const [key, object] of this.#tree.entriesReversed(isBefore ? before : to, entry, true)) {
      if (compareKeys(key, from) < 0) return;
      yield object;
    }
  }

  #setRaw(object: StoredObject): void {
    if (!isRawKey(object.key)) return;
    this.#raw ??= emptyTree();
    this.#raw.set(object.key, object);
  }
}
