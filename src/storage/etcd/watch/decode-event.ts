import { WatchEvent } from "../../../model/event.ts";
import type { StoredObject } from "../../../model/object.ts";
import { transition } from "../../../model/predicate.ts";
import type { WatchRequest } from "../../storage.ts";
import { deletedObject } from "../client/decode.ts";
import type { DecodedEvent, DecodedKeyValue } from "../client/responses.ts";

/**
 * etcd was asked for the objects before and left one out. It looks them up when it sends an event, and
 * does so
 * - not where that revision has been compacted meanwhile,
 * - nor for the events of the moment between its beginning to watch and its noting how, which is later
 *   (watchServer.recvLoop in its server/etcdserver/api/v3rpc/watch.go).
 */
export class MissingPreviousError extends Error {}

/**
 * The event of the object `key` (relative), as the request asks to see it; undefined if it does not.
 * `stored` makes an object of what etcd tells of one.
 *
 * @throws MissingPreviousError
 */
export function decodeEvent(
  { isDelete, kv, previous: before }: DecodedEvent,
  key: string,
  { withPrevious, predicate }: WatchRequest,
  stored: (key: string, kv: DecodedKeyValue) => StoredObject,
): WatchEvent | undefined {
  const isCreation = !isDelete && kv.createRevision === kv.modRevision;
  if (withPrevious && !isCreation && before === undefined) throw new MissingPreviousError();
  const previous = before === undefined ? undefined : stored(key, before);
  const object = isDelete
    ? (previous?.deletedAt(kv.modRevision) ?? deletedObject(key, kv))
    : stored(key, kv);
  const type = isDelete ? "DELETED" : isCreation ? "ADDED" : "MODIFIED";
  const decoded = new WatchEvent(type, object, withPrevious ? previous : undefined);
  return predicate === undefined ? decoded : transition(decoded, predicate);
}
