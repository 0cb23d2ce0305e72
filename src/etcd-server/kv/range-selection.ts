import { endSize, objectSize, writeEnd, writeObject } from "../../etcd/wire/range-response.ts";
import { compareKeys } from "../../model/key-order.ts";
import type { StoredObject } from "../../model/object.ts";
import { none } from "../../protobuf/fields.ts";
import { PartsWriter } from "../../wire/parts-writer.ts";
import type { RangeRequest } from "../protocol/requests.ts";

/** Bounds of what is encoded in one step: the number of objects, and their size in bytes, which one may exceed. */
const objectsPerStep = 500;
const bytesPerStep = 256 * 1024;

type Order = (one: StoredObject, other: StoredObject) => number;

const orders: Readonly<Record<string, Order>> = {
  Key: (one, other) => compareKeys(one.key, other.key),
  Version: (one, other) => one.version - other.version,
  Create: (one, other) => one.createRevision - other.createRevision,
  Mod: (one, other) => one.modRevision - other.modRevision,
  Value: (one, other) => Buffer.compare(one.value, other.value),
};

/** What a Range responds with. */
export interface Selected {
  readonly objects: readonly StoredObject[];
  /** Number of keys in the range, whatever else the request asks for. */
  readonly count: number;
  /** Whether there are more objects than the limit. */
  readonly more: boolean;
}

/** Selects what a Range responds with, of all objects of its keys, which are added in key order. */
export class RangeSelection {
  readonly #request: RangeRequest;
  readonly #limit: number;
  readonly #bounds: {
    readonly minMod: number;
    readonly maxMod: number;
    readonly minCreate: number;
    readonly maxCreate: number;
  };
  readonly #hasBounds: boolean;
  /** How many objects are kept: with an order, or bounds, the first of the response may be any. */
  readonly #kept: number;
  readonly #objects: StoredObject[] = [];
  #count = 0;

  constructor(request: RangeRequest) {
    this.#request = request;
    this.#limit = Math.max(0, Number(request.limit));
    const bounds = {
      minMod: Number(request.min_mod_revision),
      maxMod: Number(request.max_mod_revision),
      minCreate: Number(request.min_create_revision),
      maxCreate: Number(request.max_create_revision),
    };
    this.#bounds = bounds;
    this.#hasBounds = Object.values(bounds).some((bound) => bound !== 0);
    const isCut = this.#limit > 0 && request.sort_order === "None" && !this.#hasBounds;
    // One more shows that there are more.
    this.#kept = isCut ? this.#limit + 1 : Infinity;
  }

  /** Adds an object. Returns whether it is kept. */
  add(object: StoredObject): boolean {
    this.#count++;
    if (this.#request.count_only || this.#objects.length === this.#kept) return false;
    if (this.#hasBounds && !this.#isWithinBounds(object)) return false;
    this.#objects.push(object);
    return true;
  }

  finish(): Selected {
    const [objects, limit, count] = [this.#objects, this.#limit, this.#count];
    const { sort_order: order, sort_target: target } = this.#request;
    const compare = orders[target];
    if (compare !== undefined && (order === "Descend" || target !== "Key")) {
      objects.sort(order === "Descend" ? (one, other) => compare(other, one) : compare);
    }
    const more = limit > 0 && objects.length > limit;
    return { objects: more ? objects.slice(0, limit) : objects, count, more };
  }

  #isWithinBounds({ modRevision, createRevision }: StoredObject): boolean {
    const { minMod, maxMod, minCreate, maxCreate } = this.#bounds;
    return (
      (maxMod === 0 || modRevision <= maxMod) &&
      (minMod === 0 || modRevision >= minMod) &&
      (maxCreate === 0 || createRevision <= maxCreate) &&
      (minCreate === 0 || createRevision >= minCreate)
    );
  }
}

/** Encodes the fields of a RangeResponse without its header, in parts, a number of objects with each step. */
export function* encodeSelected(
  { objects, count, more }: Selected,
  keysOnly: boolean,
): Generator<Uint8Array, void, void> {
  const options = { prefix: none, header: none, keysOnly };
  for (let start = 0; start < objects.length; ) {
    let size = 0;
    let end = start;
    while (end < Math.min(start + objectsPerStep, objects.length) && size < bytesPerStep) {
      size += objectSize(objects[end++] as StoredObject, options);
    }
    const parts = new PartsWriter(size);
    for (; start < end; start++) writeObject(parts, objects[start] as StoredObject, options);
    yield Buffer.concat(parts.finish(), size);
  }
  const fields = { fieldBytes: 0, more, count };
  const end = new PartsWriter(endSize(fields));
  writeEnd(end, fields);
  yield Buffer.concat(end.finish());
}
