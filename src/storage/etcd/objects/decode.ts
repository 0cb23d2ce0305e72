import type { IKeyValue } from "etcd3";
import { WatchFanoutError } from "../../../base/errors.ts";
import type { DecodedKeyValue } from "../../../etcd/wire/key-value.ts";
import type { DecodedEvent } from "../../../etcd/wire/watch-response.ts";
import { WatchEvent } from "../../../model/event.ts";
import { StoredObject } from "../../../model/object.ts";
import { Slabs, smallestSlab } from "../../../model/slabs.ts";
import type { WatchRequest } from "../../storage.ts";
import type { ResourceKeys } from "./resource-keys.ts";

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

/**
 * etcd left out the previous object of an event although the watch asked for it. etcd looks it up when it sends the
 * event, and leaves it out
 * - if its revision has been compacted meanwhile,
 * - for events between the start of the watch and the moment at which etcd stores the watch's options, which is later
 *   (watchServer.recvLoop in its server/etcdserver/api/v3rpc/watch.go).
 */
export class MissingPreviousError extends Error {}

/** Makes the events of one watch from etcd's, with their objects in slabs of the watch. */
export class EventDecoder {
  readonly #request: WatchRequest;
  readonly #keys: ResourceKeys;
  readonly #slabs = new Slabs(smallestSlab);

  constructor(request: WatchRequest, keys: ResourceKeys) {
    this.#request = request;
    this.#keys = keys;
  }

  /**
   * Returns the event as the request asks for it; undefined if it does not ask for this one.
   *
   * @throws MissingPreviousError
   */
  decode({ isDelete, kv, previous: before }: DecodedEvent): WatchEvent | undefined {
    const key = this.#keys.relative(kv);
    if (key === undefined) return undefined;
    const { withPrevious } = this.#request;
    const isCreation = !isDelete && kv.createRevision === kv.modRevision;
    if (withPrevious && !isCreation && before === undefined) throw new MissingPreviousError();
    const previous = before === undefined ? undefined : this.#stored(key, before);
    const object = isDelete
      ? (previous?.deletedAt(kv.modRevision) ?? deletedObject(key, kv))
      : this.#stored(key, kv);
    const type = isDelete ? "DELETED" : isCreation ? "ADDED" : "MODIFIED";
    return new WatchEvent(type, object, withPrevious ? previous : undefined);
  }

  #stored(key: string, kv: DecodedKeyValue): StoredObject {
    return storedObject(key, kv, this.#keys.prefixBytes, this.#slabs);
  }
}
