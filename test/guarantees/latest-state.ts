import { isDeepStrictEqual } from "node:util";
import {
  type Change,
  inView,
  type SeenEvent,
  type Sequence,
  shortEvent,
  shown,
  stateAt,
  unitsOf,
  type View,
} from "./recording.ts";

/*
 * The promises that differ for LATEST_STATE streams, where an event may stand for all changes of an
 * object since its last delivery, or since the atomic batch began.
 */

/** An event, and the changes of its object that it stands for, of those that are in view. */
interface Folded {
  readonly event: SeenEvent;
  readonly changes: readonly Change[];
  /** The revision that its unit began after. */
  readonly began: number;
}

/** All events of closed atomic batches except those of the initial state, each with the changes that it stands for. */
function folded({ streams, view }: Sequence, changes: readonly Change[]): Folded[] {
  const changesOf = Map.groupBy(changes, (change) => change.key);
  return streams.flatMap((responses) => {
    let after = 0;
    return unitsOf(responses).flatMap(({ events, initial, revision }) => {
      const began = after;
      after = revision;
      if (initial) return [];
      const deliveredAt = new Map<string, number>();
      return events.map((event) => {
        const { key, modRevision } = event.object;
        const before = deliveredAt.get(key) ?? began;
        // Other checkers find events that come twice or too late.
        const since = before < modRevision ? before : began;
        deliveredAt.set(key, modRevision);
        const own = (changesOf.get(key) ?? []).filter((change) => {
          if (change.revision <= since || change.revision > modRevision) return false;
          const { before, after: now } = inView(change, view);
          return before || now;
        });
        return { event, changes: own, began };
      });
    });
  });
}

/** An event describes the newest of the changes that it stands for, of which there is at least one. */
export function filter(sequence: Sequence, changes: readonly Change[]): string[] {
  return folded(sequence, changes).flatMap(({ event, changes: own }) => {
    const last = own.at(-1);
    if (last?.revision !== event.object.modRevision) {
      return [`${shortEvent(event)} is no change that matches`];
    }
    const delivered = shown(deliveredOf(last, sequence.view), sequence.view);
    return isDeepStrictEqual(event.object, delivered)
      ? []
      : [`${shortEvent(event)} has other content`];
  });
}

/** ADDED iff the object did not match before; DELETED iff it did and no longer does. */
export function typed(sequence: Sequence, changes: readonly Change[]): string[] {
  return folded(sequence, changes).flatMap(({ event, changes: own }) => {
    const [first, last] = [own.at(0), own.at(-1)];
    if (first === undefined || last === undefined) return [];
    const { before } = inView(first, sequence.view);
    const { after } = inView(last, sequence.view);
    if (!before && !after) return [`${shortEvent(event)} is of what came and went`];
    const type = !after ? "DELETED" : before ? "MODIFIED" : "ADDED";
    return type === event.type ? [] : [`${shortEvent(event)} is ${type}`];
  });
}

/**
 * `previous` is the object before the first change that the event stands for, if requested. An object that
 * was created out of view during the atomic batch need not be delivered: it did not exist before the batch.
 */
export function previous(sequence: Sequence, changes: readonly Change[]): string[] {
  const live = folded(sequence, changes).flatMap(({ event, changes: [first], began }) => {
    const { view } = sequence;
    const before = view.includePrevious ? shown(first?.before, view) : undefined;
    const madeSince = before !== undefined && before.createRevision > began;
    const right =
      isDeepStrictEqual(event.previous, before) || (madeSince && event.previous === undefined);
    return right
      ? []
      : [`${shortEvent(event)} has another previous than ${JSON.stringify(before)}`];
  });
  const states = sequence.streams.flatMap(unitsOf).filter(({ initial }) => initial);
  const initial = states.flatMap(({ events }) => events.filter((event) => event.previous));
  return [...live, ...initial.map((event) => `${shortEvent(event)} is initial and has a previous`)];
}

/** At each resume point a client that has applied all events has the newest revision of each matching object. */
export function reliable(sequence: Sequence, changes: readonly Change[]): string[] {
  const units = sequence.streams.flatMap(unitsOf);
  let held: Map<string, number> | undefined;
  return units.flatMap(({ events, initial, revision }) => {
    // Where it begins is right by definition, or by being linearizable.
    held = held === undefined || initial ? revisionsAt(changes, sequence.view, revision) : held;
    if (initial) return [];
    for (const { type, object } of events) {
      if (type === "DELETED") held.delete(object.key);
      else held.set(object.key, object.modRevision);
    }
    return differences(held, revisionsAt(changes, sequence.view, revision), revision);
  });
}

/** A stream that has not ended has received the newest state at `level`. */
export function upTo(sequence: Sequence, changes: readonly Change[], level: number): string[] {
  const last = sequence.streams.flatMap(unitsOf).at(-1);
  if (last === undefined) return ["the stream lives and has said nothing"];
  const then = revisionsAt(changes, sequence.view, last.revision);
  // It may be ahead; being behind matters only where something has happened since.
  if (last.revision >= level) return [];
  return differences(then, revisionsAt(changes, sequence.view, level), level);
}

/** A time in which a replica did not see what happened, as it was compacted before: (after, upTo]. */
export interface Gap {
  readonly after: number;
  readonly upTo: number;
}

/**
 * What a replica can know of what happened: in a gap only how the states before and after it differ, what is
 * gone being deleted at its end.
 */
export function knownChanges(changes: readonly Change[], gaps: readonly Gap[]): Change[] {
  return gaps.reduce<Change[]>(
    (all, { after, upTo }) => {
      const [was, is] = [stateAt(changes, after), stateAt(changes, upTo)];
      const differing = [...new Set([...was.keys(), ...is.keys()])].flatMap((key): Change[] => {
        const [before, now] = [was.get(key), is.get(key)];
        if (before?.modRevision === now?.modRevision) return [];
        return [{ revision: now?.modRevision ?? upTo, key, before, after: now }];
      });
      return [
        ...all.filter(({ revision }) => revision <= after),
        ...differing.sort((a, b) => a.revision - b.revision),
        ...all.filter(({ revision }) => revision > upTo),
      ];
    },
    [...changes],
  );
}

function deliveredOf({ before, after, revision }: Change, view: View) {
  if (after !== undefined && view.matches(after)) return after;
  return before === undefined ? undefined : { ...before, modRevision: revision };
}

function revisionsAt(
  changes: readonly Change[],
  view: View,
  revision: number,
): Map<string, number> {
  const inside = [...stateAt(changes, revision).values()].filter(
    (object) => view.includes(object.key) && view.matches(object),
  );
  return new Map(inside.map(({ key, modRevision }) => [key, modRevision]));
}

function differences(
  held: ReadonlyMap<string, number>,
  right: ReadonlyMap<string, number>,
  revision: number,
): string[] {
  return [...new Set([...held.keys(), ...right.keys()])].flatMap((key) => {
    const [has, stands] = [held.get(key), right.get(key)];
    if (has === stands) return [];
    return [
      `${JSON.stringify(key)} is held as of ${has} and stands as of ${stands} at ${revision}`,
    ];
  });
}
