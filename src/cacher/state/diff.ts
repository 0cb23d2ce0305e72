import { WatchEvent } from "../../model/event.ts";
import { compareKeys } from "../../model/key-order.ts";
import { isSameObject, type StoredObject } from "../../model/object.ts";

/** The change of one object between two states. */
export interface StateChange {
  readonly event: WatchEvent;
  /** The object in the state before. */
  readonly previous: StoredObject | undefined;
}

/** A state at a revision. The objects are in key order. */
interface State {
  readonly objects: Iterable<StoredObject>;
  readonly revision: number;
}

/**
 * Returns the changes from `before` to `after`: first the changed objects, by mod_revision and then by key; then the
 * deleted ones, as DELETED at the revision of `after`, since their own revisions are not known.
 *
 * Returns undefined if `before` can't have led to `after`: an object in `after` implies another state at the revision
 * of `before` than `before` has.
 */
export function diffStates(before: State, after: State): StateChange[] | undefined {
  const changed: StateChange[] = [];
  const deleted: StateChange[] = [];
  const oldObjects = before.objects[Symbol.iterator]();
  let old = nextOf(oldObjects);
  const addDeleted = (object: StoredObject): void => {
    const event = new WatchEvent("DELETED", object.deletedAt(after.revision), undefined);
    deleted.push({ event, previous: object });
    old = nextOf(oldObjects);
  };
  for (const object of after.objects) {
    while (old !== undefined && compareKeys(old.key, object.key) < 0) addDeleted(old);
    const previous = old?.key === object.key ? old : undefined;
    if (previous !== undefined) old = nextOf(oldObjects);
    if (!canFollow(previous, object, before.revision)) return undefined;
    if (previous?.modRevision === object.modRevision) continue;
    const type = previous === undefined ? "ADDED" : "MODIFIED";
    changed.push({ event: new WatchEvent(type, object, undefined), previous });
  }
  while (old !== undefined) addDeleted(old);
  // The sort is stable, so that objects of one revision stay in key order.
  changed.sort((a, b) => a.event.revision - b.event.revision);
  for (const change of deleted) changed.push(change);
  return changed;
}

/** Whether an object may have developed from `previous`, its state at `revision`. */
function canFollow(
  previous: StoredObject | undefined,
  object: StoredObject,
  revision: number,
): boolean {
  if (object.modRevision <= revision) {
    return previous !== undefined && isSameObject(previous, object);
  }
  // Created after `revision`, for the first time or again.
  if (object.createRevision > revision) return true;
  const isSameLife = previous?.createRevision === object.createRevision;
  return isSameLife && previous.version < object.version;
}

function nextOf(objects: Iterator<StoredObject>): StoredObject | undefined {
  const next = objects.next();
  return next.done === true ? undefined : next.value;
}
