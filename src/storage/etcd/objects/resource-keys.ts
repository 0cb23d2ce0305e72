import type { Logger } from "pino";
import type { Clock } from "../../../base/clock.ts";
import { LineLimit } from "../../../base/logger.ts";
import { isEndless, type KeyRange, prefixRange, zero } from "../../../etcd/client/key-range.ts";
import type { OwnKeys } from "../../../etcd/client/own-keys.ts";
import type { DecodedKeyValue } from "../../../etcd/wire/key-value.ts";
import { isRawKey, keyBytes, keyText } from "../../../model/key-bytes.ts";
import type { ListScope } from "../../key-scopes.ts";
import type { WatchScope } from "../../storage.ts";

export interface ResourceKeysOptions {
  /** The prefix of the resource's keys in etcd. */
  readonly prefix: string;
  /** The service's own keys in etcd. */
  readonly own: OwnKeys;
  /** Counts the raw keys. */
  readonly skippedKeys: SkippedKeys;
  /** Whether raw keys are keys of the resource as well: the prefix itself, and keys that are not UTF-8. */
  readonly rawKeys: boolean;
}

/**
 * The keys of one resource: those in etcd below its prefix, except the service's own, which are the key of the history's id and
 * those that remember requests, and, unless it has raw keys, those.
 */
export class ResourceKeys {
  /** Length of the prefix, in bytes. */
  readonly prefixBytes: number;
  readonly #prefix: Buffer;
  readonly #own: OwnKeys;
  /** Whether keys of the service's own may be below the prefix. */
  readonly #hasOwn: boolean;
  readonly #skippedKeys: SkippedKeys;
  readonly #rawKeys: boolean;

  constructor({ prefix, own, skippedKeys, rawKeys }: ResourceKeysOptions) {
    this.#prefix = Buffer.from(prefix);
    this.prefixBytes = this.#prefix.byteLength;
    this.#own = own;
    this.#hasOwn = own.mayHave(this.#prefix);
    this.#skippedKeys = skippedKeys;
    this.#rawKeys = rawKeys;
  }

  /** Whether all keys below the prefix that were read so far are keys of the resource. */
  get hasOnlyObjects(): boolean {
    return !this.#hasOwn && (this.#rawKeys || this.#skippedKeys.count === 0);
  }

  /** The key in etcd of an object. */
  absolute(key: string): Buffer {
    return Buffer.concat([this.#prefix, keyBytes(key)]);
  }

  /** The key of an object from etcd's; undefined for a key that the resource does not have. Counts raw keys. */
  relative(kv: DecodedKeyValue): string | undefined {
    if (this.#hasOwn && this.isOwn(kv.key)) return undefined;
    const key = keyText(kv.message, kv.keyStart + this.prefixBytes, kv.keyEnd);
    if (!isRawKey(key)) return key;
    this.#skippedKeys.add(kv.key);
    return this.#rawKeys ? key : undefined;
  }

  /** The range in etcd of all keys that begin with `prefix`. */
  prefixRange(prefix: string): Required<KeyRange> {
    return prefixRange(this.absolute(prefix));
  }

  /** The range in etcd of the keys in the scope. */
  rangeOf(scope: WatchScope): KeyRange {
    if ("key" in scope) return { key: this.absolute(scope.key) };
    if ("prefix" in scope) return this.prefixRange(scope.prefix);
    const { from, to } = scope;
    const key = this.absolute(from);
    const range_end = to === undefined ? this.prefixRange("").range_end : this.absolute(to);
    return { key: key.length === 0 ? zero : key, range_end };
  }

  /** The range in etcd of the keys that a list reads; undefined: it has no keys. */
  rangeOfList(scope: ListScope): Required<KeyRange> | undefined {
    const { key, range_end = zero } = this.rangeOf(scope);
    const hasEnd = "from" in scope && scope.to !== undefined;
    // In a resource of all keys, the end "\0" would mean the last key.
    const isEmpty = hasEnd && (isEndless(range_end) || Buffer.compare(range_end, key) <= 0);
    return isEmpty ? undefined : { key, range_end };
  }

  /** Whether this key in etcd is the service's own. */
  isOwn(key: Buffer): boolean {
    return this.#own.has(key);
  }
}

/** Minimum interval between log lines, in milliseconds. */
const logIntervalMs = 60_000;

/**
 * The keys in etcd that can't be objects of a resource: not UTF-8, or the prefix itself. Counts each occurrence, and
 * logs at most one line per interval.
 */
export class SkippedKeys {
  readonly #logger: Logger;
  readonly #lineLimit: LineLimit;
  #count = 0;

  constructor(clock: Clock, logger: Logger) {
    this.#logger = logger;
    this.#lineLimit = new LineLimit(clock, logIntervalMs);
  }

  get count(): number {
    return this.#count;
  }

  add(key: Buffer): void {
    this.#count++;
    if (this.#lineLimit.admit() === undefined) return;
    this.#logger.warn(
      { keyHex: key.toString("hex"), leftOut: this.#count },
      "ListWatchService leaves out a key that is not UTF-8, or is the resource's prefix itself",
    );
  }
}
