import { invalidRequest } from "../../../base/errors.ts";
import { isEndless, type KeyRange, prefixRange, zero } from "../../../etcd/client/key-range.ts";
import { hasPrefix, keyBytes } from "../../../model/key-bytes.ts";
import type { DeletePrefixRequest, ObjectName } from "../../store.ts";
import { otherStore } from "../../transaction-checks.ts";
import type { ResourceKeysOptions } from "./resource-keys.ts";

/** The keys in etcd of the objects of several resources. */
export class StoreKeys {
  readonly #prefixes: ReadonlyMap<string, string>;
  readonly #own: ResourceKeysOptions["own"];

  /** `prefixes`: that of each resource, by its name. */
  constructor(prefixes: ReadonlyMap<string, string>, own: ResourceKeysOptions["own"]) {
    this.#prefixes = prefixes;
    this.#own = own;
  }

  /** The key of an object. Throws INVALID_REQUEST for one of another store, and for keys of the service's own. */
  keyOf({ resource, key }: ObjectName): Buffer {
    const absolute = this.#absolute(resource, key);
    if (!absolute.equals(this.#own.key) && !hasPrefix(absolute, this.#own.requestsPrefix))
      return absolute;
    throw invalidRequest(
      "key",
      `${JSON.stringify(key)} is reserved for the service: choose another key.`,
    );
  }

  /** The ranges of all objects that begin with a prefix, without the service's own. */
  rangesOf({ resource, prefix }: DeletePrefixRequest): readonly Required<KeyRange>[] {
    const whole = prefixRange(this.#absolute(resource, prefix));
    // The prefix of the resource itself is no object.
    const first = prefix === "" ? [keyRange(whole.key)] : [];
    const requests = prefixRange(this.#own.requestsPrefix);
    return [...first, keyRange(this.#own.key), requests].reduce(without, [whole]);
  }

  #absolute(resource: string, key: string): Buffer {
    const prefix = this.#prefixes.get(resource);
    if (prefix === undefined) throw otherStore(resource, this.#prefixes.keys());
    return Buffer.concat([Buffer.from(prefix), keyBytes(key)]);
  }
}

function keyRange(key: Buffer): Required<KeyRange> {
  return { key, range_end: Buffer.concat([key, zero]) };
}

/** The parts of the ranges that are not in `hole`, which has an end. */
function without(
  ranges: readonly Required<KeyRange>[],
  hole: Required<KeyRange>,
): Required<KeyRange>[] {
  return ranges.flatMap(({ key, range_end }) => {
    const from = Buffer.compare(key, hole.key) > 0 ? key : hole.key;
    const to =
      isEndless(range_end) || Buffer.compare(range_end, hole.range_end) > 0
        ? hole.range_end
        : range_end;
    if (Buffer.compare(from, to) >= 0) return [{ key, range_end }];
    const before = { key, range_end: from };
    const after = { key: to, range_end };
    return [before, after].filter(
      (part) => isEndless(part.range_end) || Buffer.compare(part.key, part.range_end) < 0,
    );
  });
}
