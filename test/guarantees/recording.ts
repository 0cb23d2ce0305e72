import type { Delivery } from "../../src/cacher/request/request.ts";

/*
 * What happened and what was delivered of it, recorded plainly, so that they can be compared
 * whichever server was used.
 */

export interface SeenObject {
  readonly key: string;
  /** Each character is a byte. */
  readonly value: string;
  readonly createRevision: number;
  readonly modRevision: number;
  readonly version: number;
  /** Those that are sent in place of the value, if they are requested: labels and fields, each by its name. */
  readonly attributes?: SeenAttributes;
}

export interface SeenAttributes {
  readonly labels: Readonly<Record<string, string>>;
  readonly fields: Readonly<Record<string, string>>;
}

export interface SeenEvent {
  readonly type: "ADDED" | "MODIFIED" | "DELETED";
  readonly object: SeenObject;
  readonly previous: SeenObject | undefined;
}

/** One response of a stream. */
export interface SeenResponse {
  /** The resume point; undefined while a unit is open. */
  readonly revision: number | undefined;
  readonly events: readonly SeenEvent[];
  readonly initialEventsEnd: boolean;
}

/** The effect of a transaction on one key. */
export interface Change {
  readonly revision: number;
  readonly key: string;
  readonly before: SeenObject | undefined;
  /** Undefined: it was deleted. */
  readonly after: SeenObject | undefined;
}

/** The selection of a request. */
export interface View {
  readonly includes: (key: string) => boolean;
  /** Whether the selectors pick it. */
  readonly matches: (object: SeenObject) => boolean;
  readonly includePrevious: boolean;
  /** What of an object is delivered. Default: all of it. */
  readonly shows?: (object: SeenObject) => SeenObject;
  /** The types of events that are delivered. Default: all. */
  readonly types?: ReadonlySet<SeenEvent["type"]>;
}

/** Streams that were resumed from one another, each after the last resume point of the one before. */
export interface Sequence {
  readonly view: View;
  /** Their delivery mode. Default EVERY_EVENT. */
  readonly delivery?: Delivery;
  readonly streams: readonly (readonly SeenResponse[])[];
}

/** Events that belong together. */
export interface Unit {
  readonly revision: number;
  readonly events: readonly SeenEvent[];
  /** Whether this is the initial state. */
  readonly initial: boolean;
}

/** The closed atomic batches of a stream. An open one at its end is dropped. */
export function unitsOf(responses: readonly SeenResponse[]): Unit[] {
  const units: Unit[] = [];
  let events: SeenEvent[] = [];
  for (const response of responses) {
    events.push(...response.events);
    if (response.revision === undefined) continue;
    units.push({ revision: response.revision, events, initial: response.initialEventsEnd });
    events = [];
  }
  return units;
}

/** The last resume point of a stream; undefined before the first. */
export function resumePointOf(responses: readonly SeenResponse[]): number | undefined {
  return responses.findLast(({ revision }) => revision !== undefined)?.revision;
}

/** The state at `revision`, by key. */
export function stateAt(changes: readonly Change[], revision: number): Map<string, SeenObject> {
  const state = new Map<string, SeenObject>();
  for (const change of changes) {
    if (change.revision > revision) break;
    if (change.after === undefined) state.delete(change.key);
    else state.set(change.key, change.after);
  }
  return state;
}

/** Whether the object was in view before the change, and whether it is after it. */
export function inView(change: Change, view: View): { before: boolean; after: boolean } {
  const sees = (object: SeenObject | undefined): boolean =>
    object !== undefined && view.includes(object.key) && view.matches(object);
  return { before: sees(change.before), after: sees(change.after) };
}

/** The type of the event of a change; undefined: it has no event, or one that is not requested. */
export function typeInView(change: Change, view: View): SeenEvent["type"] | undefined {
  const { before, after } = inView(change, view);
  if (!before && !after) return undefined;
  const type = !after ? "DELETED" : before ? "MODIFIED" : "ADDED";
  return view.types?.has(type) === false ? undefined : type;
}

/** What is delivered of an object: the full one, with bytes left out. */
export function shown<T extends SeenObject | undefined>(object: T, view: View): T;
export function shown(object: SeenObject | undefined, { shows }: View): SeenObject | undefined {
  return object === undefined || shows === undefined ? object : shows(object);
}

/** The view of keys. */
export function withoutValue(object: SeenObject): SeenObject {
  return { ...object, value: "" };
}

export function shortEvent({ type, object }: SeenEvent): string {
  return `${type} ${shortObject(object)}`;
}

export function shortObject({ key, modRevision }: SeenObject): string {
  return `${JSON.stringify(key)}@${modRevision}`;
}
