import { Model } from "./compile.ts";
import { exhaust, type Search } from "./explore.ts";
import { everyGuarantee, maxStates } from "./list-watch.ts";
import { QuintSet, type Value } from "./values.ts";

/** A model of leases and what is built on them, or of restarts. Each is small enough to visit all of its states. */
interface SmallModel {
  readonly file: string;
  /** The model's type `Bounds`. */
  readonly bounds: Bounds;
  /** By rule of the design: the guarantee that falls without it. */
  readonly rules: Readonly<Record<string, string>>;
}

type Bounds = Readonly<Record<string, number | boolean | readonly string[]>>;

export const smallModels: Readonly<Record<string, SmallModel>> = {
  leases: {
    file: "docs/model/leases.qnt",
    bounds: { ttl: 3, late: 1, ticks: 10, faults: 2 },
    rules: {
      "a deadline leaves a margin for a slow clock": "KeptAlive",
      "a deadline counts from the request": "KeptAlive",
      "a keep-alive is answered by the store": "KeptAlive",
      "a keep-alive waits for a renewal that begins after it": "KeptAlive",
      "a lease whose term is over is not renewed": "Bounded",
    },
  },
  locks: {
    file: "docs/model/locks.qnt",
    bounds: { clients: ["a", "b"], revisions: 3 },
    rules: {
      "a holder stops at its deadline": "OneHolder",
      "a holder relies on its lease when the response comes": "OneHolder",
      "a holder stops before it releases": "OneHolder",
      "the queue is read after the own key was created": "OneHolder",
      "the first of the queue holds the lock": "TokensGrow",
      "a guarded write compares the token": "Fenced",
      "a key of the queue is attached to the lease of its client": "Held",
    },
  },
  shards: {
    file: "docs/model/shards.qnt",
    bounds: { members: ["a", "b"], slots: 3, faults: 1 },
    rules: {
      "a member stops at its deadline": "OneOwner",
      "a slot is taken only where it has no owner": "OneOwner",
      "a slot is released when its work has ended": "OneOwner",
      "a slot is attached to the lease of its owner": "Owned",
      "a member is attached to its lease": "Owned",
      "a slot of another member is given up": "Assigned",
    },
  },
  "request ids": {
    file: "docs/model/requests.qnt",
    bounds: { replicas: ["a", "b"], attempts: 3, revisions: 4, hasCondition: true },
    rules: {
      "the record is written in the transaction of the write": "Answered",
      "the record is looked for in the transaction of the write": "Answered",
      "the record is looked for before the condition": "Answered",
      "a request with a record is not applied": "Answered",
      "a request is not repeated when its record may be gone": "Answered",
      "the record has a hash of its request": "Distinguished",
    },
  },
  "request ids without a condition": {
    file: "docs/model/requests.qnt",
    bounds: { replicas: ["a", "b"], attempts: 3, revisions: 4, hasCondition: false },
    rules: {
      "the record is written in the transaction of the write": "AppliedOnce",
      "the record is looked for in the transaction of the write": "AppliedOnce",
      "a request with a record is not applied": "AppliedOnce",
      "a request is not repeated when its record may be gone": "AppliedOnce",
    },
  },
  "a store on a disk": {
    file: "docs/model/durable.qnt",
    bounds: { writes: 3, crashes: 2, failures: 1, ttl: 2, ticks: 0 },
    rules: {
      "an answer waits for the sync": "Kept",
      "a refusal waits until what it shows is kept": "Shown",
      "a read is of the newest revision that is kept": "Shown",
      "a watch is sent what is kept": "Shown",
      "what the disk has no room for is undone": "Refused",
      "a store that does not know what is kept ends": "Refused",
      "a commit is kept whole, or not at all": "Whole",
    },
  },
  "leases of a store on a disk": {
    file: "docs/model/durable.qnt",
    bounds: { writes: 0, crashes: 2, failures: 1, ttl: 2, ticks: 5 },
    rules: {
      "a lease is kept before its client relies on it": "KeptAlive",
      "a lease has its full length after a start": "KeptAlive",
    },
  },
  "a cache that starts warm": {
    file: "docs/model/warm.qnt",
    bounds: { writes: 2, restores: 1, compactions: 1, starts: 1 },
    rules: {
      "what is on disk is a state that the cache had": "OneHistory",
      "a state from disk is of the history that the store has": "OneHistory",
      "a stream is resumed within its history": "OneHistory",
      "a state from disk is followed if the store has what follows": "Reliable",
      "a linearizable read waits for the store": "Linearizable",
    },
  },
};

/** A search of one of the models, and what it looks for. */
export interface NamedSearch {
  readonly name: string;
  readonly property: string;
  /** Whether the property has to hold: no rule is left out. */
  readonly holds: boolean;
  readonly search: () => Search;
}

/** All states of each model, with all rules, and without each of them. */
export function* smallSearches(): Generator<NamedSearch> {
  for (const [name, { file, bounds, rules }] of Object.entries(smallModels)) {
    const model = new Model(file);
    const without = (rule: readonly string[], property: string): Search => {
      const init = model.init("initWith", boundsValue(bounds), QuintSet.of(rule));
      return exhaust(model, init, property, maxStates);
    };
    const design = (): Search => without([], everyGuarantee);
    yield { name, property: everyGuarantee, holds: true, search: design };
    for (const [rule, property] of Object.entries(rules)) {
      const search = (): Search => without([rule], property);
      yield { name: `${name}: ${rule}`, property, holds: false, search };
    }
  }
}

function boundsValue(bounds: Bounds): Value {
  const sorted = Object.entries(bounds).sort(([one], [other]) => (one < other ? -1 : 1));
  return Object.fromEntries(
    sorted.map(([name, value]) => [name, typeof value === "object" ? QuintSet.of(value) : value]),
  );
}
