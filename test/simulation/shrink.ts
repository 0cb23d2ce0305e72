import type { Scenario } from "./scenario.ts";
import { type Outcome, simulate } from "./simulate.ts";

/** How many orders of events are tried for a smaller scenario: with fewer faults the seed decides otherwise. */
const salts = [0, 1, 2];

export interface Failure {
  readonly scenario: Scenario;
  readonly outcome: Outcome;
}

/** The name of the guarantee that a violation is of. */
export function guaranteeOf(wrong: string): string {
  return /(?:^|: )([A-Z][A-Za-z]+): /.exec(wrong)?.[1] ?? wrong;
}

/**
 * A smaller scenario that violates the same guarantee: without faults, clients and processes that are not needed for it. Tries
 * until nothing more can be left out, or `mayContinue` returns false.
 */
export async function shrink(failure: Failure, mayContinue: () => boolean): Promise<Failure> {
  let smallest = failure;
  const sought = guaranteeOf(failure.outcome.wrong[0] ?? "");
  for (let hasShrunk = true; hasShrunk && mayContinue(); ) {
    hasShrunk = false;
    for (const simpler of simplifications) {
      for (let i = 0; mayContinue(); ) {
        const candidate = simpler(smallest.scenario, i);
        if (candidate === undefined) break;
        const found = await failing(candidate, sought);
        if (found === undefined) {
          i++;
          continue;
        }
        smallest = found;
        hasShrunk = true;
      }
    }
  }
  return smallest;
}

async function failing(candidate: Scenario, sought: string): Promise<Failure | undefined> {
  for (const salt of salts) {
    const scenario = { ...candidate, salt };
    const outcome = await simulate(scenario);
    if (outcome.wrong.some((wrong) => guaranteeOf(wrong) === sought)) return { scenario, outcome };
  }
  return undefined;
}

/** The scenario without its part number `i`; undefined: there are no more parts. */
type Simplification = (scenario: Scenario, i: number) => Scenario | undefined;

function without<T>(all: readonly T[], i: number): T[] {
  return all.filter((_, at) => at !== i);
}

/** One that leaves out a part once, if it is there. */
function once(change: (scenario: Scenario) => Partial<Scenario> | undefined): Simplification {
  return (scenario, i) => {
    const changed = i === 0 ? change(scenario) : undefined;
    return changed && { ...scenario, ...changed };
  };
}

const simplifications: readonly Simplification[] = [
  // Half of the faults at a time, then each.
  (scenario, i) => {
    const { faults } = scenario;
    const middle = faults.length >>> 1;
    if (i > 1 || faults.length < 4) return undefined;
    return { ...scenario, faults: i === 0 ? faults.slice(0, middle) : faults.slice(middle) };
  },
  (scenario, i) => {
    const { faults } = scenario;
    return i < faults.length ? { ...scenario, faults: without(faults, i) } : undefined;
  },
  once(({ hasLibrary }) => (hasLibrary ? { hasLibrary: false } : undefined)),
  once(({ parts }) => (parts.hasReader ? { parts: { ...parts, hasReader: false } } : undefined)),
  once(({ parts }) =>
    parts.hasWatchers ? { parts: { ...parts, hasWatchers: false } } : undefined,
  ),
  once(({ parts }) => {
    const { subscribers } = parts;
    return subscribers > 0 ? { parts: { ...parts, subscribers: subscribers - 1 } } : undefined;
  }),
  once(({ reading }) =>
    reading.hasWatchers ? { reading: { ...reading, hasWatchers: false } } : undefined,
  ),
  once(({ reading }) =>
    reading.hasSubscriber ? { reading: { ...reading, hasSubscriber: false } } : undefined,
  ),
  once(({ reading }) =>
    reading.hasLister ? { reading: { ...reading, hasLister: false } } : undefined,
  ),
  once(({ reading }) => {
    const { historyReaders: count } = reading;
    return count > 0 ? { reading: { ...reading, historyReaders: count - 1 } } : undefined;
  }),
  once(({ reading: { accepts, ...rest } }) =>
    accepts === undefined ? undefined : { reading: rest },
  ),
  once(({ hasReader }) => (hasReader ? { hasReader: false } : undefined)),
  once(({ etcdCallers }) => (etcdCallers > 0 ? { etcdCallers: etcdCallers - 1 } : undefined)),
  once(({ leaseholders }) => (leaseholders > 0 ? { leaseholders: leaseholders - 1 } : undefined)),
  once(({ workers }) => (workers > 0 ? { workers: 0 } : undefined)),
  once(({ relaysEtcdApi }) => (relaysEtcdApi ? { relaysEtcdApi: false } : undefined)),
  once(({ etcdWatchers }) => (etcdWatchers > 0 ? { etcdWatchers: etcdWatchers - 1 } : undefined)),
  (scenario, i) => {
    const { watchers } = scenario;
    return i < watchers.length ? { ...scenario, watchers: without(watchers, i) } : undefined;
  },
  once(({ tiers }) => (tiers.length > 0 ? { tiers: tiers.slice(0, -1) } : undefined)),
  once(({ members: [first = ""], members }) =>
    members.length > 1 ? { members: [first] } : undefined,
  ),
  once(({ roots }) => (roots > 1 ? { roots: roots - 1 } : undefined)),
  once(({ writers }) => (writers > 1 ? { writers: 1 } : undefined)),
  once(({ dispatchIntervalMs }) =>
    dispatchIntervalMs > 0 ? { dispatchIntervalMs: 0 } : undefined,
  ),
  once(({ durationMs }) => (durationMs > 200 ? { durationMs: durationMs / 2 } : undefined)),
  once(({ chunking: { split, joined } }) =>
    split + joined > 0 ? { chunking: { split: 0, joined: 0 } } : undefined,
  ),
  once(({ pace }) =>
    pace.turnMs + pace.readingMs > 0 ? { pace: { ...pace, turnMs: 0, readingMs: 0 } } : undefined,
  ),
  once(({ pace }) => (pace.haste > 0 ? { pace: { ...pace, haste: 0 } } : undefined)),
];
