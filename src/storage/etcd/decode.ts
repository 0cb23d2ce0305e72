import { isUtf8 } from "node:buffer";
import { WatchFanoutError } from "../../errors.ts";
import { kept } from "../kept.ts";
import { StoredObject } from "../object.ts";
import type { KeyValue } from "./messages.ts";

/** A revision, a version or a count: etcd's int64, as far as a number holds it exactly. */
export function safeNumber(decimal: string): number {
  const number = Number(decimal);
  if (Number.isSafeInteger(number)) return number;
  throw new WatchFanoutError(
    "INTERNAL",
    `etcd sent the number ${decimal}, which is beyond 2^53 and can't be held exactly.`,
  );
}

/**
 * The key relative to a prefix of so many bytes, or undefined if it can't be part of a resource: it is
 * not UTF-8, or it is the prefix itself.
 */
export function relativeKey(key: Buffer, prefixBytes: number): string | undefined {
  const rest = key.subarray(prefixBytes);
  return rest.byteLength > 0 && isUtf8(rest) ? rest.toString("utf8") : undefined;
}

/** `key` is the relative one. The value is copied where keeping it would keep the whole message. */
export function storedObject(key: string, kv: KeyValue): StoredObject {
  return new StoredObject(
    key,
    kept(kv.value),
    safeNumber(kv.create_revision),
    safeNumber(kv.mod_revision),
    safeNumber(kv.version),
    kv.lease === "0" ? 0n : BigInt(kv.lease),
  );
}

/** What is known of a deleted object without the one before: its key and what removed it. */
export function deletedObject(key: string, kv: KeyValue): StoredObject {
  return new StoredObject(key, noValue, 0, safeNumber(kv.mod_revision), 0, 0n);
}

const noValue = new Uint8Array();
