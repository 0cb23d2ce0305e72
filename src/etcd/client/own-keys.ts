import { hasPrefix } from "../../model/key-bytes.ts";
import { isEndless, isInRange, type KeyRange, prefixRange } from "./key-range.ts";

/** The service's own keys in etcd, which no resource has: that of the history's id, and those that remember requests. */
export class OwnKeys {
  /** The key of the history's id. */
  readonly history: Buffer;
  /** What the keys begin with that remember requests. */
  readonly requestsPrefix: Buffer;
  /** The range of these. */
  readonly requests: Required<KeyRange>;

  constructor(history: Buffer) {
    this.history = history;
    this.requestsPrefix = Buffer.concat([history, Buffer.from("-requests/")]);
    this.requests = prefixRange(this.requestsPrefix);
  }

  has(key: Buffer): boolean {
    return key.equals(this.history) || hasPrefix(key, this.requestsPrefix);
  }

  /** Whether a key with this prefix may be one of them. */
  mayHave(prefix: Buffer): boolean {
    return (
      hasPrefix(this.history, prefix) ||
      hasPrefix(this.requestsPrefix, prefix) ||
      hasPrefix(prefix, this.requestsPrefix)
    );
  }

  /** Whether a request's range, which may have no end, has one of them, or may have. */
  areIn(key: Buffer, end: Buffer): boolean {
    if (end.length === 0) return this.has(key);
    if (isInRange(this.history, key, end)) return true;
    const { key: first, range_end: last } = this.requests;
    return Buffer.compare(key, last) < 0 && (isEndless(end) || Buffer.compare(first, end) < 0);
  }
}
