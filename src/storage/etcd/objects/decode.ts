import type { IKeyValue } from "etcd3";
import { WatchFanoutError } from "../../../base/errors.ts";
import type { DecodedKeyValue } from "../../../etcd/wire/key-value.ts";
import { StoredObject } from "../../../model/object.ts";
import { Slabs } from "../../../model/slabs.ts";

/** Converts etcd's int64 of a revision, version or count. Throws if a number can't hold it exactly. */
export function safeNumber(decimal: string): number {
  const number = Number(decimal);
  if (Number.isSafeInteger(number)) return number;
  throw new WatchFanoutError(
    "INTERNAL",
    `etcd sent the number ${decimal}, which is beyond the limit of 2^53.`,
  );
}

/** `key` is relative to a prefix of `prefixBytes` bytes. */
export function storedObject(
  key: string,
  kv: DecodedKeyValue,
  prefixBytes: number,
  slabs: Slabs,
): StoredObject {
  return slabs.store(
    key,
    // In an encoded form, a byte that is not UTF-8 has three. No client gets such a form.
    key.isWellFormed() ? kv.keyEnd - kv.keyStart - prefixBytes : Buffer.byteLength(key),
    kv.message,
    kv.valueStart,
    kv.valueEnd,
    kv.createRevision,
    kv.modRevision,
    kv.version,
    kv.lease,
  );
}

/** Makes an object of etcd3's decoded form. */
export function loadedObject(key: string, kv: IKeyValue): StoredObject {
  return new Slabs(0).store(
    key,
    Buffer.byteLength(key),
    kv.value,
    0,
    kv.value.byteLength,
    safeNumber(kv.create_revision),
    safeNumber(kv.mod_revision),
    safeNumber(kv.version),
    kv.lease === "0" ? 0n : BigInt(kv.lease),
  );
}

/** An object without its value. */
export function valuelessObject(key: string, kv: DecodedKeyValue): StoredObject {
  const { createRevision, modRevision, version, lease } = kv;
  return new StoredObject(key, noValue, createRevision, modRevision, version, lease);
}

/** A deleted object whose previous state is unknown: its key and the revision of the deletion. */
export function deletedObject(key: string, { modRevision }: DecodedKeyValue): StoredObject {
  return new StoredObject(key, noValue, 0, modRevision, 0, 0n);
}

const noValue = new Uint8Array();
