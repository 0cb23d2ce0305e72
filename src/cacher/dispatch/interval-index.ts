import { compareKeys } from "../../model/key-order.ts";
import type { KeyInterval } from "../../storage/storage.ts";

/** One interval, and the part of the tree below it. */
interface Node<T> {
  readonly interval: KeyInterval;
  /** In any order. Mostly one, for which a Set would take four times the memory. */
  readonly values: T[];
  /** At least that of each node below it. */
  readonly priority: number;
  /** The largest end of its part. Undefined: up to the last key. */
  end: string | undefined;
  left: Node<T> | undefined;
  right: Node<T> | undefined;
}

type Part<T> = Node<T> | undefined;

/**
 * Finds the intervals that a key is in, in logarithmic time and in time for each that is found. Adding and deleting one take
 * logarithmic time.
 *
 * It is a treap: a binary tree of the intervals in order, by beginning and then by end, in which a node's random priority is
 * at least those of the nodes below it. So the tree is as deep as one that was built in random order, whatever the order is
 * in which clients open their watches. Each node knows the largest end of its part: a part that ends before the key is left
 * out.
 */
export class IntervalIndex<T> {
  readonly #random: () => number;
  #root: Part<T>;
  #size = 0;

  /** `random` returns numbers from 0 up to 1. */
  constructor(random: () => number = Math.random) {
    this.#random = random;
  }

  /** Number of values, each of which is counted for each of its intervals. */
  get size(): number {
    return this.#size;
  }

  /** Adds a value to an interval that does not have it yet. */
  add(interval: KeyInterval, value: T): void {
    this.#size++;
    const values = this.#valuesOf(interval);
    if (values !== undefined) {
      values.push(value);
      return;
    }
    const [before, behind] = split(this.#root, interval);
    const added: Node<T> = {
      ...{ interval, values: [value], priority: this.#random() },
      ...{ end: interval.to, left: undefined, right: undefined },
    };
    this.#root = merge(merge(before, added), behind);
  }

  /** Idempotent. */
  delete(interval: KeyInterval, value: T): void {
    const values = this.#valuesOf(interval);
    const at = values?.indexOf(value) ?? -1;
    if (values === undefined || at < 0) return;
    this.#size--;
    values.splice(at, 1);
    if (values.length === 0) this.#root = without(this.#root, interval);
  }

  /** Appends the values of the intervals that `key` is in to `found`. Returns the number of comparisons. */
  find(key: string, found: T[]): number {
    return search(this.#root, key, found);
  }

  #valuesOf(interval: KeyInterval): T[] | undefined {
    let node = this.#root;
    while (node !== undefined) {
      const order = compare(interval, node.interval);
      if (order === 0) return node.values;
      node = order < 0 ? node.left : node.right;
    }
    return undefined;
  }
}

function search<T>(node: Part<T>, key: string, found: T[]): number {
  if (node === undefined) return 0;
  if (!isBefore(key, node.end)) return 1;
  const { interval, values } = node;
  const compared = 1 + search(node.left, key, found);
  if (compareKeys(key, interval.from) < 0) return compared;
  if (isBefore(key, interval.to)) for (const value of values) found.push(value);
  return compared + search(node.right, key, found);
}

/** The part with the intervals before this one, and the part with the others. */
function split<T>(node: Part<T>, interval: KeyInterval): readonly [Part<T>, Part<T>] {
  if (node === undefined) return [undefined, undefined];
  if (compare(node.interval, interval) < 0) {
    const [before, behind] = split(node.right, interval);
    node.right = before;
    return [withEnd(node), behind];
  }
  const [before, behind] = split(node.left, interval);
  node.left = behind;
  return [before, withEnd(node)];
}

/** One part of two, the intervals of the first of which are before those of the other. */
function merge<T>(one: Part<T>, other: Part<T>): Part<T> {
  if (one === undefined || other === undefined) return one ?? other;
  if (one.priority >= other.priority) {
    one.right = merge(one.right, other);
    return withEnd(one);
  }
  other.left = merge(one, other.left);
  return withEnd(other);
}

function without<T>(node: Part<T>, interval: KeyInterval): Part<T> {
  if (node === undefined) return undefined;
  const order = compare(interval, node.interval);
  if (order === 0) return merge(node.left, node.right);
  if (order < 0) node.left = without(node.left, interval);
  else node.right = without(node.right, interval);
  return withEnd(node);
}

/** Computes the largest end again, after a change of what is below the node. */
function withEnd<T>(node: Node<T>): Node<T> {
  let end = node.interval.to;
  if (node.left !== undefined) end = later(end, node.left.end);
  if (node.right !== undefined) end = later(end, node.right.end);
  node.end = end;
  return node;
}

function compare(one: KeyInterval, other: KeyInterval): number {
  const order = compareKeys(one.from, other.from);
  if (order !== 0 || one.to === other.to) return order;
  if (one.to === undefined) return 1;
  return other.to === undefined ? -1 : compareKeys(one.to, other.to);
}

function isBefore(key: string, end: string | undefined): boolean {
  return end === undefined || compareKeys(key, end) < 0;
}

function later(one: string | undefined, other: string | undefined): string | undefined {
  if (one === undefined || other === undefined) return undefined;
  return compareKeys(one, other) < 0 ? other : one;
}
