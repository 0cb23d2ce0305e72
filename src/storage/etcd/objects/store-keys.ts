import { invalidRequest } from "../../../base/errors.ts";
import { isEndless, type KeyRange, prefixRange, zero } from "../../../etcd/client/key-range.ts";
import type { OwnKeys } from "../../../etcd/client/own-keys.ts";
import { keyBytes } from "../../../model/key-bytes.ts";
import type { DeletePrefixRequest, ObjectName } from "../../store.ts";
import { otherStore } from "../../transaction-checks.ts";

/** The keys in etcd of the objects of several resources. */
export class StoreKeys {
  readonly #prefixes: ReadonlyMap<string, string>;
  readonly #own: OwnKeys;

  /** `prefixes`: that of each resource, by its name. */
  constructor(prefixes: ReadonlyMap<string, string>, own: OwnKeys) {
    this.#prefixes = prefixes;
    this.#own = own;
  }

  has(resource: string): boolean {
    return this.#prefixes.has(resource);
  }

  /** The key of an object. Throws INVALID_REQUEST for one of another store, and for keys of the service's own. */
  keyOf({ resource, key }: ObjectName): Buffer {
    const absolute = this.#absolute(resource, key);
    if (!this.#own.has(absolute)) return absolute;
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
    return [...first, keyRange(this.#own.history), this.#own.requests].reduce(without, [whole]);
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
