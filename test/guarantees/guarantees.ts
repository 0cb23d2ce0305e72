import { isDeepStrictEqual } from "node:util";
import type { Delivery } from "../../src/cacher/request/request.ts";
import * as latest from "./latest-state.ts";
import { inOrder, type Order } from "./orders.ts";
import {
  type Change,
  inView,
  resumePointOf,
  type SeenEvent,
  type SeenObject,
  type Sequence,
  shortEvent,
  shortObject,
  shown,
  stateAt,
  typeInView,
  unitsOf,
  type View,
} from "./recording.ts";

/*
 * One checker for each promise about streams that docs/semantics.md makes. A checker reads what a sequence of
 * streams delivered and what really happened, independent of how it was served, and returns the violations
 * in sentences: none, if the promise was kept. The checkers for LATEST_STATE are in latest-state.ts.
 */
export type Checker = (sequence: Sequence, changes: readonly Change[]) => string[];

/** An event matches the request, before or after, and describes a real change. */
export const filter: Checker = (sequence, changes) =>
  liveEvents(sequence).flatMap((event) => {
    const change = changeOf(event, changes);
    if (change === undefined) return [`${shortEvent(event)} never happened`];
    const { before, after } = inView(change, sequence.view);
    if (!before && !after) return [`${shortEvent(event)} matches neither before nor after`];
    const { types } = sequence.view;
    if (types?.has(event.type) === false)
      return [`${shortEvent(event)} is of a type not requested`];
    const delivered = shown(after ? change.after : removed(change), sequence.view);
    return isDeepStrictEqual(event.object, delivered)
      ? []
      : [`${shortEvent(event)} has other content`];
  });

/** ADDED iff it did not match just before; DELETED iff it did and no longer does. */
export const typed: Checker = (sequence, changes) =>
  liveEvents(sequence).flatMap((event) => {
    const change = changeOf(event, changes);
    if (change === undefined) return [];
    const { before, after } = inView(change, sequence.view);
    const type = !after ? "DELETED" : before ? "MODIFIED" : "ADDED";
    return type === event.type ? [] : [`${shortEvent(event)} is ${type}`];
  });

/** Revisions never go back: neither those of the events nor those of the resume points. */
export const ordered: Checker = (sequence) => {
  const units = closedUnits(sequence);
  const points = units.map(({ revision }) => ({ revision, what: `resume point ${revision}` }));
  const events = liveEvents(sequence).map((event) => {
    return { revision: revisionOf(event), what: shortEvent(event) };
  });
  return [points, events].flatMap((all) =>
    all.flatMap(({ revision, what }, i) => {
      const before = all[i - 1]?.revision ?? 0;
      return revision < before ? [`${what} comes after ${before}`] : [];
    }),
  );
};

/** No key twice at one revision. */
export const unique: Checker = (sequence) => {
  const seen = new Set<string>();
  return liveEvents(sequence).flatMap((event) => {
    const change = JSON.stringify([event.object.key, revisionOf(event)]);
    const repeated = seen.has(change);
    seen.add(change);
    return repeated ? [`${shortEvent(event)} comes twice`] : [];
  });
};

/** Between the first resume point and the last nothing that matches was dropped. */
export const reliable: Checker = (sequence, changes) => {
  const points = closedUnits(sequence).map(({ revision }) => revision);
  const [from = 0] = points;
  return missing(sequence, changes, from, points.at(-1) ?? 0);
};

/** The events of one revision come in one unit. */
export const atomic: Checker = (sequence) => {
  const unitOf = new Map<number, number>();
  return closedUnits(sequence).flatMap(({ events, initial }, unit) =>
    (initial ? [] : events).flatMap((event) => {
      const first = unitOf.get(revisionOf(event)) ?? unit;
      unitOf.set(revisionOf(event), first);
      return first === unit
        ? []
        : [`${shortEvent(event)} comes apart from the rest of its revision`];
    }),
  );
};

/** A new stream continues where the one before ended, by saying just that. */
export const resumable: Checker = ({ streams }) =>
  streams.slice(1).flatMap((stream, i) => {
    const [opening] = stream;
    // It may have ended before it said anything.
    if (opening === undefined) return [];
    const from = resumePointOf(streams[i] ?? []);
    const right = opening.revision === from && opening.events.length === 0;
    return right ? [] : [`the stream after ${from} began at ${opening.revision}`];
  });

/** After a resume point R nothing at or below R comes, in closed units and in open ones. */
export const bookmarkable: Checker = ({ streams }) =>
  streams.flatMap((responses) => {
    const wrong: string[] = [];
    let point = 0;
    for (const { revision, events } of responses) {
      for (const event of events) {
        if (revisionOf(event) <= point) wrong.push(`${shortEvent(event)} comes after ${point}`);
      }
      point = revision ?? point;
    }
    return wrong;
  });

/** `previous` is the object just before, if requested; initial events have no `previous`. */
export const previous: Checker = (sequence, changes) =>
  sequence.streams.flatMap(unitsOf).flatMap(({ events, initial }) =>
    events.flatMap((event) => {
      const wanted = sequence.view.includePrevious && !initial;
      const before = wanted ? shown(changeOf(event, changes)?.before, sequence.view) : undefined;
      const right = isDeepStrictEqual(event.previous, before);
      return right
        ? []
        : [`${shortEvent(event)} has another previous than ${JSON.stringify(before)}`];
    }),
  );

export const guarantees: Readonly<Record<string, Checker>> = {
  Filter: filter,
  Typed: typed,
  Ordered: ordered,
  Unique: unique,
  Reliable: reliable,
  Atomic: atomic,
  Resumable: resumable,
  Bookmarkable: bookmarkable,
  Previous: previous,
};

/** The events of a revision need not come together if some of them are coalesced. */
const latestStateGuarantees: Readonly<Record<string, Checker>> = {
  Filter: latest.filter,
  Typed: latest.typed,
  Ordered: ordered,
  Unique: unique,
  Reliable: latest.reliable,
  Resumable: resumable,
  Bookmarkable: bookmarkable,
  Previous: latest.previous,
};

const promisedBy: Readonly<Record<Delivery, Readonly<Record<string, Checker>>>> = {
  EVERY_EVENT: guarantees,
  LATEST_STATE: latestStateGuarantees,
};

/** All violations of a sequence, each with the promise that it breaks. */
export function brokenBy(sequence: Sequence, changes: readonly Change[]): string[] {
  const promised = promisedBy[sequence.delivery ?? "EVERY_EVENT"];
  return Object.entries(promised).flatMap(([name, check]) =>
    check(sequence, changes).map((wrong) => `${name}: ${wrong}`),
  );
}

/** The response to a Get or a whole List, or an initial state. */
export interface SeenRead {
  readonly view: View;
  /** The store's revision when the call began, or another that the response must not be older than. */
  readonly notBefore: number;
  readonly revision: number;
  /** Those of the response; of one that only counts them, their number. */
  readonly objects: readonly SeenObject[] | number;
  /** Their order. Default: that of the bytes of their keys. */
  readonly order?: Order;
}

/**
 * Linearizable: the response reflects every write that completed before the call; it is the state at its
 * own revision, in the requested order.
 */
export function linearizable(read: SeenRead, changes: readonly Change[]): string[] {
  const { view, notBefore, revision, objects, order = "KEY_ASCENDING" } = read;
  const late = revision < notBefore ? [`revision ${revision} is older than ${notBefore}`] : [];
  const selected = [...stateAt(changes, revision).values()]
    .filter((object) => view.includes(object.key) && view.matches(object))
    .map((object) => shown(object, view));
  const state = inOrder(selected, order);
  if (typeof objects === "number") {
    const isRight = objects === state.length;
    const wrong = `the ${state.length} objects at ${revision} are counted as ${objects}`;
    return isRight ? late : [...late, wrong];
  }
  if (isDeepStrictEqual(objects, state)) return late;
  const [delivered, was] = [objects, state].map((all) => JSON.stringify(all.map(shortObject)));
  return [...late, `the state at ${revision} is delivered as ${delivered} and was ${was}`];
}

/** A stream that has not ended has received every event up to `level`. */
function upTo(sequence: Sequence, changes: readonly Change[], level: number): string[] {
  const [first] = closedUnits(sequence);
  if (first === undefined) return ["the stream lives and has said nothing"];
  return missing(sequence, changes, first.revision, level);
}

const honestBy: Readonly<Record<Delivery, typeof upTo>> = {
  EVERY_EVENT: upTo,
  LATEST_STATE: latest.upTo,
};

/**
 * Honest: a stream that has not ended has not become silent. `level` is a revision that was written
 * so long ago that every live client that reads has received it.
 */
export function honest(sequence: Sequence, changes: readonly Change[], level: number): string[] {
  return honestBy[sequence.delivery ?? "EVERY_EVENT"](sequence, changes, level);
}

function closedUnits({ streams }: Sequence) {
  return streams.flatMap(unitsOf);
}

/** All events in closed units but those of the initial state. */
function liveEvents(sequence: Sequence): SeenEvent[] {
  return closedUnits(sequence).flatMap(({ events, initial }) => (initial ? [] : events));
}

/** The changes after `from` up to `upTo` that match and were not delivered. */
function missing(
  sequence: Sequence,
  changes: readonly Change[],
  from: number,
  upTo: number,
): string[] {
  const delivered = new Set(
    liveEvents(sequence).map((event) => JSON.stringify([event.object.key, revisionOf(event)])),
  );
  return changes.flatMap((change) => {
    const { key, revision } = change;
    if (revision <= from || revision > upTo) return [];
    const isDelivered = delivered.has(JSON.stringify([key, revision]));
    if (typeInView(change, sequence.view) === undefined || isDelivered) return [];
    return [`${JSON.stringify(key)}@${revision} is missing between ${from} and ${upTo}`];
  });
}

function revisionOf(event: SeenEvent): number {
  return event.object.modRevision;
}

function changeOf(event: SeenEvent, changes: readonly Change[]): Change | undefined {
  const { key, modRevision } = event.object;
  return changes.find((change) => change.key === key && change.revision === modRevision);
}

/** The object as it last was, with the revision that removed it. */
function removed({ before, revision }: Change): SeenObject | undefined {
  return before === undefined ? undefined : { ...before, modRevision: revision };
}
