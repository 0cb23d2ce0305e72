import type { Scope } from "../../storage.ts";
import { relativeKey } from "./decode.ts";
import { type KeyRange, prefixRange } from "./key-range.ts";
import type { DecodedKeyValue } from "./key-values.ts";
import type { SkippedKeys } from "./skipped-keys.ts";

/**
 * The keys of one resource: those in etcd below its prefix, except the prefix itself, keys that are not UTF-8, and the
 * key of the history's id, which is the service's own.
 */
export class ResourceKeys {
  /** Length of the prefix, in bytes. */
  readonly prefixBytes: number;
  readonly #prefix: Buffer;
  readonly #marker: Buffer;
  /** Whether the key of the history's id is below the prefix. */
  readonly #hasMarker: boolean;
  readonly #skippedKeys: SkippedKeys;

  /** `marker` is the key of the history's id. Keys that can't be objects are counted in `skippedKeys`. */
  constructor(prefix: string, marker: Buffer, skippedKeys: SkippedKeys) {
    this.#prefix = Buffer.from(prefix);
    this.prefixBytes = this.#prefix.byteLength;
    this.#marker = marker;
    this.#hasMarker = marker.subarray(0, this.prefixBytes).equals(this.#prefix);
    this.#skippedKeys = skippedKeys;
  }

  /** Whether all keys below the prefix that were read so far are objects. */
  get areAllObjects(): boolean {
    return !this.#hasMarker && this.#skippedKeys.count === 0;
  }

  /** The key in etcd of an object. */
  absolute(key: string): Buffer {
    return Buffer.concat([this.#prefix, Buffer.from(key)]);
  }

  /** The key of an object from etcd's; undefined for a key that is no object of the resource, which is counted. */
  relative(kv: DecodedKeyValue): string | undefined {
    if (this.#hasMarker && this.isMarker(kv.key)) return undefined;
    const relative = relativeKey(kv, this.prefixBytes);
    if (relative === undefined) this.#skippedKeys.add(kv.key);
    return relative;
  }

  /** The range in etcd of all keys that begin with `prefix`. */
  prefixRange(prefix: string): Required<KeyRange> {
    return prefixRange(this.absolute(prefix));
  }

  /** The range in etcd of the keys in the scope. */
  rangeOf(scope: Scope): KeyRange {
    return "key" in scope ? { key: this.absolute(scope.key) } : this.prefixRange(scope.prefix);
  }

  /** Whether this is the key of the history's id, in etcd. */
  isMarker(key: Buffer): boolean {
    return key.equals(this.#marker);
  }
}
