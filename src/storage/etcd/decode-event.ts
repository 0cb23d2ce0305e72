import { WatchEvent } from "../event.ts";
import type { WatchRequest } from "../storage.ts";
import { transition } from "../transition.ts";
import { deletedObject, safeNumber, storedObject } from "./decode.ts";
import type { EtcdEvent } from "./messages.ts";

/**
 * etcd was asked for the objects before and left one out. It looks them up when it sends an event, and
 * does so
 * - not where that revision has been compacted meanwhile,
 * - nor for the events of the moment between its beginning to watch and its noting how, which is later
 *   (watchServer.recvLoop in its server/etcdserver/api/v3rpc/watch.go).
 */
export class PreviousLeftOut extends Error {}

/**
 * The event of the object `key` (relative), as the request asks to see it; undefined if it does not.
 *
 * @throws PreviousLeftOut
 */
export function decodeEvent(
  event: EtcdEvent,
  key: string,
  { withPrevious, predicate }: WatchRequest,
): WatchEvent | undefined {
  const isCreation = event.type === "Put" && event.kv.create_revision === event.kv.mod_revision;
  if (withPrevious && !isCreation && event.prev_kv === null) throw new PreviousLeftOut();
  const previous = event.prev_kv === null ? undefined : storedObject(key, event.prev_kv);
  const object =
    event.type === "Put"
      ? storedObject(key, event.kv)
      : (previous?.deletedAt(safeNumber(event.kv.mod_revision)) ?? deletedObject(key, event.kv));
  const type = event.type === "Delete" ? "DELETED" : isCreation ? "ADDED" : "MODIFIED";
  const decoded = new WatchEvent(type, object, withPrevious ? previous : undefined);
  return predicate === undefined ? decoded : transition(decoded, predicate);
}
