import { WatchEvent } from "../../model/event.ts";
import { compareKeys } from "../../model/key-order.ts";
import { isSameObject, type StoredObject } from "../../model/object.ts";

/** What happened to one object between two states, as far as these can tell. */
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
 * What leads from `before` to `after`: what has changed, by mod_revision and then by key, and after that
 * what is gone, as DELETED at the revision of `after`, as it is not known when it was deleted.
 *
 * Undefined if one can't have come from the other: an object of `after` says of what it was at the time of
 * `before` something else than `before` does.
 */
export function diffStates(before: State, after: State): StateChange[] | undefined {
  const changed: StateChange[] = [];
  const gone: StateChange[] = [];
  const old = before.objects[Symbol.iterator]();
  let was = nextOf(old);
  const isGone = (object: StoredObject): void => {
    const event = new WatchEvent("DELETED", object.deletedAt(after.revision), undefined);
    gone.push({ event, previous: object });
    was = nextOf(old);
  };
  for (const object of after.objects) {
    while (was !== undefined && compareKeys(was.key, object.key) < 0) isGone(was);
    const previous = was?.key === object.key ? was : undefined;
    if (previous !== undefined) was = nextOf(old);
    if (!canFollow(previous, object, before.revision)) return undefined;
    if (previous?.modRevision === object.modRevision) continue;
    const type = previous === undefined ? "ADDED" : "MODIFIED";
    changed.push({ event: new WatchEvent(type, object, undefined), previous });
  }
  while (was !== undefined) isGone(was);
  // Stable, so that those of one revision stay in key order.
  changed.sort((a, b) => a.event.revision - b.event.revision);
  for (const difference of gone) changed.push(difference);
  return changed;
}

/** Whether an object may be what has become of `previous`, which is how it stood at `revision`. */
function canFollow(
  previous: StoredObject | undefined,
  object: StoredObject,
  revision: number,
): boolean {
  if (object.modRevision <= revision) {
    return previous !== undefined && isSameObject(previous, object);
  }
  // Deleted and made anew since, or made for the first time.
  if (object.createRevision > revision) return true;
  const isSameLife = previous?.createRevision === object.createRevision;
  return isSameLife && previous.version < object.version;
}

function nextOf(objects: Iterator<StoredObject>): StoredObject | undefined {
  const next = objects.next();
  return next.done === true ? undefined : next.value;
}
