import type { Model, State } from "./compile.ts";
import { exhaust, type Search, sample } from "./explore.ts";
import { QuintSet, type Value } from "./values.ts";

/** The model of docs/model, from the root of the repository. */
export const modelFile = "docs/model/listWatch.qnt";

/** How large a run of the model is: its type `Bounds`. */
export interface Bounds {
  /** Revisions of one history. */
  readonly revisions: number;
  readonly faults: number;
  readonly restores: number;
  /** Writes through the service; other writes only have the revisions as a bound. */
  readonly writes: number;
  /** The sets of keys, of 1 and 2, that one revision may change. */
  readonly changes: readonly (readonly number[])[];
  /** Whether selectors match what is written: both, or one of the two. */
  readonly matches: readonly boolean[];
  readonly roots: readonly string[];
  readonly relays: readonly string[];
  /** Of every, selected and latest. */
  readonly clients: readonly string[];
  /** How clients may begin: list, any (a list), state or now. */
  readonly calls: readonly string[];
  /** Whether caches read the revisions before their list. */
  readonly hasBackfill: boolean;
  /** Whether clients ask for the progress of all their watches. */
  readonly hasProgress: boolean;
  /** Whether a client reads the history of a key. */
  readonly hasHistories: boolean;
}

/** For random runs. */
export const standard: Bounds = {
  ...{ revisions: 8, faults: 6, restores: 1, writes: 1 },
  ...{ changes: [[1], [2], [1, 2]], matches: [true, false] },
  ...{ roots: ["a", "b"], relays: ["relay"], clients: ["every", "selected", "latest"] },
  ...{ calls: ["list", "any", "state", "now"], hasBackfill: true, hasProgress: true },
  // It depends on etcd alone: see `histories`.
  hasHistories: false,
};

/** A single key, root and client, to which the others add. */
const smallest: Bounds = {
  ...{ revisions: 2, faults: 1, restores: 0, writes: 0, changes: [[1]], matches: [true] },
  ...{ roots: ["a"], relays: [], clients: ["every"] },
  ...{ calls: ["list", "state"], hasBackfill: false, hasProgress: false },
  hasHistories: false,
};

/** Etcd, and a client that reads the history of a key, which needs nothing of a cache. */
export const histories: Bounds = {
  ...{ ...smallest, roots: [], clients: [], calls: [] },
  ...{ revisions: 2, faults: 2, restores: 1, hasHistories: true },
};

/** Small enough to visit every state: some 50,000 to 500,000 each. */
export const exhaustible: Readonly<Record<string, Bounds>> = {
  "EVERY_EVENT, three revisions": { ...smallest, revisions: 3 },
  "LATEST_STATE with a selector": { ...smallest, clients: ["latest"], matches: [true, false] },
  "revisions of two keys": { ...smallest, changes: [[1], [1, 2]] },
  "a write through the service": { ...smallest, writes: 1 },
  "two roots": { ...smallest, roots: ["a", "b"], faults: 0 },
  "a root and a relay": { ...smallest, relays: ["relay"], faults: 0 },
  "a restore": { ...smallest, restores: 1 },
  "watches from now on, and a backfill": { ...smallest, calls: ["now"], hasBackfill: true },
  "two watches on one stream": {
    ...{ ...smallest, clients: ["every", "latest"], changes: [[1], [1, 2]] },
    ...{ calls: ["now"], faults: 0, revisions: 1, hasProgress: true },
  },
  "the history of a key": histories,
};

/** A rule of the design that the model can leave out, and a guarantee that falls without it. */
export interface Rule {
  readonly guarantee: string;
  /** Where the steps to that are too rare among random ones of `standard`. */
  readonly bounds?: Partial<Bounds>;
  readonly isExhaustive?: boolean;
}

/** All of its states are few. */
const ofHistories: Rule = { guarantee: "Complete", bounds: histories, isExhaustive: true };

export const rules: Readonly<Record<string, Rule>> = {
  "only what matches before or after is sent": { guarantee: "Filter" },
  "an object that comes into view is ADDED": { guarantee: "Typed" },
  "a coalesced event spans its batch": { guarantee: "Typed" },
  "a stream that waits gets no bookmark": { guarantee: "Ordered" },
  "a resume point ahead of the cache waits for it": {
    guarantee: "Unique",
    bounds: { ...smallest, roots: ["a", "b"], revisions: 6, calls: ["now"] },
  },
  "the watch begins at the revision of the list": { guarantee: "Reliable" },
  "a compacted resume point is given up": { guarantee: "Reliable" },
  "etcd reports progress only when its watch is synced": { guarantee: "Reliable" },
  "the window begins at the revision of its list": { guarantee: "Reliable" },
  "a resume point below the window is refused": { guarantee: "Reliable" },
  "a relist ends streams of EVERY_EVENT": { guarantee: "Reliable" },
  "a relist sends LATEST_STATE the difference": { guarantee: "Reliable" },
  "an initial state has no bookmark before its end": { guarantee: "Reliable" },
  "the events after an initial state follow its revision": { guarantee: "Reliable" },
  "a stream that misses events ends": { guarantee: "Reliable" },
  "a revision is one atomic batch": { guarantee: "Atomic" },
  "a resumed stream begins with its resume point": { guarantee: "Resumable" },
  "a bookmark follows the events below it": { guarantee: "Bookmarkable" },
  "previous is the object before the batch": { guarantee: "Previous" },
  "what is coalesced to nothing moves the resume point": {
    guarantee: "Previous",
    bounds: { ...smallest, clients: ["latest"], revisions: 8, matches: [true, false] },
  },
  "a fragment waits for its whole revision": { guarantee: "Linearizable" },
  "an initial state is of one revision": { guarantee: "Linearizable" },
  "a linearizable read asks etcd for its revision": { guarantee: "Linearizable" },
  "a linearizable read confirms the history": { guarantee: "Linearizable" },
  "a watch after a list is confirmed": {
    guarantee: "Linearizable",
    bounds: { ...smallest, restores: 1 },
    isExhaustive: true,
  },
  "an end names the last resume point that was sent": { guarantee: "Honest" },
  "another history ends every stream": { guarantee: "Honest" },
  "a list is of one history": {
    guarantee: "OneHistory",
    // One revision in each history: a root reads the id of the first, and the state of the second.
    bounds: {
      ...{ ...smallest, roots: ["a", "b"], clients: ["every", "selected"] },
      ...{ revisions: 1, restores: 1, calls: ["any"] },
    },
    isExhaustive: true,
  },
  "a resume names its history": { guarantee: "OneHistory" },
  "a resumed watch is confirmed": { guarantee: "OneHistory" },
  "another history gets another id": { guarantee: "OneHistory" },
  "a relay names the history of its upstream": {
    guarantee: "OneHistory",
    bounds: { roots: ["a"], clients: ["every"], writes: 0, revisions: 6 },
  },
  "a write is sent once": { guarantee: "Faithful" },
  "a progress waits for every watch": { guarantee: "Cut" },
  "a progress asks etcd for its revision": { guarantee: "Cut" },
  "a progress follows the ends of watches": { guarantee: "Cut" },
  "a page ends before what is missing": ofHistories,
  "a deletion is searched where an object is absent": ofHistories,
  "a page is of the history of the first one": ofHistories,
};

/** Every guarantee of docs/guarantees.md. */
export const everyGuarantee = "everyGuarantee";

/** Maximum number of steps of a random run. Most end earlier: nothing is left to do. */
const maxSteps = 100;

/** The model's first state, without one of the rules or with all. */
export function start(model: Model, bounds: Bounds, without: readonly string[] = []): State {
  const { changes, matches, roots, relays, clients, calls, ...numbers } = bounds;
  const sets = { changes: changes.map(QuintSet.of), matches, roots, relays, clients, calls };
  const fields = Object.entries<Value>(numbers).concat(
    Object.entries<Iterable<Value>>(sets).map(([name, values]) => [name, QuintSet.of(values)]),
  );
  const sorted = fields.sort(([one], [other]) => (one < other ? -1 : 1));
  return model.init("initWith", Object.fromEntries(sorted), QuintSet.of(without));
}

/** Runs the whole design at random. */
export function sampleDesign(model: Model, traces: number, seed: number): Search {
  return sample(model, start(model, standard), everyGuarantee, { traces, steps: maxSteps, seed });
}

/** Looks for a run without the rule that breaks its guarantee. Throws for an unknown rule. */
export function sampleWithout(model: Model, name: string, traces: number, seed: number): Search {
  const rule = rules[name];
  if (rule === undefined) throw new Error(`There is no rule ${JSON.stringify(name)}.`);
  const { guarantee, bounds, isExhaustive = false } = rule;
  const init = start(model, { ...standard, ...bounds }, [name]);
  if (isExhaustive) return exhaust(model, init, guarantee, maxStates);
  return sample(model, init, guarantee, { traces, steps: maxSteps, seed });
}

/** Maximum number of states of an exhaustive search: each takes about 2 KB. */
export const maxStates = 2_000_000;
