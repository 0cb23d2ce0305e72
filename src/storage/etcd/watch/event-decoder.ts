import type { DecodedKeyValue } from "../../../etcd/wire/key-value.ts";
import type { DecodedEvent } from "../../../etcd/wire/watch-response.ts";
import { WatchEvent } from "../../../model/event.ts";
import type { StoredObject } from "../../../model/object.ts";
import { transition } from "../../../model/predicate.ts";
import { Slabs, smallestSlab } from "../../../model/slabs.ts";
import type { WatchRequest } from "../../storage.ts";
import { deletedObject, storedObject } from "../objects/decode.ts";
import type { ResourceKeys } from "../objects/resource-keys.ts";

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
    const { withPrevious, predicate } = this.#request;
    const isCreation = !isDelete && kv.createRevision === kv.modRevision;
    if (withPrevious && !isCreation && before === undefined) throw new MissingPreviousError();
    const previous = before === undefined ? undefined : this.#stored(key, before);
    const object = isDelete
      ? (previous?.deletedAt(kv.modRevision) ?? deletedObject(key, kv))
      : this.#stored(key, kv);
    const type = isDelete ? "DELETED" : isCreation ? "ADDED" : "MODIFIED";
    const decoded = new WatchEvent(type, object, withPrevious ? previous : undefined);
    return predicate === undefined ? decoded : transition(decoded, predicate);
  }

  #stored(key: string, kv: DecodedKeyValue): StoredObject {
    return storedObject(key, kv, this.#keys.prefixBytes, this.#slabs);
  }
}
