import { Seeded } from "../faults/seeded.ts";
import type { Coordinating } from "./coordinating-clients.ts";
import type { WatchBehaviour } from "./etcd-watch.ts";
import {
  drawFaults,
  drawRareFaults,
  drawRestarts,
  drawResumeFaults,
  drawServiceFaults,
  drawTimeFaults,
  type Fault,
} from "./faults.ts";
import type { Chunking } from "./network.ts";
import type { Parts } from "./parts-clients.ts";
import type { Reading } from "./reading-clients.ts";
import type { Pace } from "./scheduler.ts";
import type { Embedded } from "./simulated-disk.ts";
import type { Transacting } from "./transacting-clients.ts";

/** All that a simulation is, besides what its seed decides event by event. */
export interface Scenario {
  readonly seed: number;
  /** Changes what the seed decides event by event, and nothing else: 0, until a failure is shrunk. */
  readonly salt: number;
  /** The versions of etcd's members. */
  readonly members: readonly string[];
  readonly etcd: WatchBehaviour;
  /** Number of replicas that follow etcd. */
  readonly roots: number;
  /** Number of workers of each root. 0: it is a single process. */
  readonly workers: number;
  /** Number of relays of each tier, the first of which follows the roots. */
  readonly tiers: readonly number[];
  /** Maximum number of events in the window of each cache. */
  readonly windowEvents: number;
  /** Whether watches from before the window are read from the store. */
  readonly hasDeepReads: boolean;
  /** Whether the newest revision is not compacted where etcd then loses deletions, as is assumed. */
  readonly keepsNewest: boolean;
  /** The shortest time between two dispatch rounds of a cache, in milliseconds. */
  readonly dispatchIntervalMs: number;
  /** Of the recorded watchers, those with these numbers. */
  readonly watchers: readonly number[];
  readonly writers: number;
  readonly hasReader: boolean;
  readonly hasLibrary: boolean;
  /** Clients of etcd's API at the roots. */
  readonly etcdWatchers: number;
  readonly etcdCallers: number;
  /** Those that hold leases of etcd. */
  readonly leaseholders: number;
  /** Whether relays serve etcd's API as well, and follow that of the replicas above. */
  readonly relaysEtcdApi: boolean;
  /** Clients of many watches on one stream, and of parts of a resource. */
  readonly parts: Parts;
  /** Clients of ranges, orders, attributes, masks and histories, and whether responses are compressed. */
  readonly reading: Reading;
  /** Clients of transactions. */
  readonly transacting: Transacting;
  /** Clients of a lock and of an election. */
  readonly coordinating: Coordinating;
  /** The embedded store: then there is neither etcd nor anything else. */
  readonly embedded?: Embedded | undefined;
  /** Whether replicas keep their caches on disk, and start with what is there. */
  readonly keepsCaches?: boolean | undefined;
  /** Pause after each write, in milliseconds at most. */
  readonly writePauseMs: number;
  /** For how long faults happen and clients write, in milliseconds. */
  readonly durationMs: number;
  /** How long a chunk is under way, in milliseconds: up to twice as much. */
  readonly latencyMs: number;
  readonly pace: Pace;
  readonly chunking: Chunking;
  readonly faults: readonly Fault[];
}

/** Number of kinds of recorded watchers (test/faults/clients.ts). */
const watcherKinds = 13;

/**
 * What half of the simulations have besides all else: leases, etcd's API at relays, workers, and replicas that are drained. The
 * others are as they would be without.
 */
function drawAdditions(seed: number, durationMs: number) {
  const random = new Seeded(seed ^ 0x3e2f);
  const isLeft = random.chance(0.5);
  const leaseholders = isLeft ? 0 : random.pick([0, 1, 1, 2]);
  const relaysEtcdApi = !isLeft && random.chance(0.6);
  const workers = isLeft ? 0 : random.pick([0, 0, 2]);
  const has = { hasLeases: leaseholders > 0, hasWorkers: workers > 0 };
  const faults = isLeft ? [] : drawServiceFaults(random.fork(), durationMs, has);
  return { leaseholders, relaysEtcdApi, workers, faults };
}

/**
 * From which seed on simulations may have what was added to them later. A seed below one of these means what it did before, to
 * the byte: the seeds of the corpus stay valid. Whatever is added next is drawn from a source of random numbers of its own, as
 * all below, and only for seeds from the next number on.
 */
const since = {
  parts: 10_000,
  deepReads: 20_000,
  keptNewest: 30_000,
  reading: 60_000,
  transacting: 100_000,
  coordinating: 110_000,
  embedded: 120_000,
  keptCaches: 130_000,
} as const;

/** The first seed of those that have the same additions as this one. */
export function firstSeedLike(seed: number): number {
  return Math.max(1, ...Object.values(since).filter((first) => first <= seed));
}

const noParts: Parts = { subscribers: 0, hasWatchers: false, hasReader: false };

function drawParts(seed: number): Parts {
  const random = new Seeded(seed ^ 0x5b5c);
  const isAdded = seed >= since.parts && random.chance(0.8);
  const subscribers = random.pick([0, 1, 1, 2]);
  const [hasWatchers, hasReader] = [random.chance(0.5), random.chance(0.5)];
  if (!isAdded) return noParts;
  return { subscribers, hasWatchers, hasReader };
}

const noReading: Reading = {
  ...{ hasWatchers: false, hasSubscriber: false, hasLister: false },
  ...{ historyReaders: 0, librarySubscribes: false },
};

function drawReading(random: Seeded): Reading {
  const [hasWatchers, hasSubscriber] = [random.chance(0.6), random.chance(0.5)];
  const [hasLister, historyReaders] = [random.chance(0.6), random.pick([0, 1, 2])];
  const compression = random.pick([{}, { accepts: "gzip" }, { accepts: "zstd" }] as const);
  const clients = { hasWatchers, hasSubscriber, hasLister, historyReaders };
  return { ...clients, librarySubscribes: random.chance(0.7), ...compression };
}

/** Without other clients more seeds fit an hour. */
const noOthers = {
  ...{ watchers: [], hasReader: false, hasLibrary: false },
  ...{ etcdWatchers: 0, etcdCallers: 0, leaseholders: 0 },
  parts: noParts,
} as const;

/** What is decided last, and may leave other clients out. */
function drawLast(seed: number): Pick<Scenario, "reading"> & Partial<typeof noOthers> {
  if (seed < since.reading) return { reading: noReading };
  const random = new Seeded(seed ^ 0x6ead);
  const isAlone = random.chance(seed < since.keptCaches ? 0.6 : 0.2);
  const reading = drawReading(random);
  return isAlone ? { reading, ...noOthers } : { reading };
}

function drawTransacting(seed: number): Transacting {
  const clients = new Seeded(seed ^ 0x7ac7).between(1, 3);
  return { clients: seed >= since.transacting ? clients : 0 };
}

/** How much longer a simulation with leases lasts, in milliseconds: for some to be lost, and granted again. */
const longerMs = 6_000;

/**
 * Clients of locks and elections, without restores, which take back what was granted, and without clients that read attributes,
 * since the values of locks are no JSON.
 */
function withCoordinating(scenario: Omit<Scenario, "coordinating">): Scenario {
  const { seed, faults, durationMs } = scenario;
  const clients = new Seeded(seed ^ 0x1ead).between(1, 3);
  const isAdded = seed >= since.coordinating && seed < since.embedded;
  if (!isAdded) return { ...scenario, coordinating: { clients: 0 } };
  return {
    ...{ ...scenario, ...noOthers, reading: noReading, coordinating: { clients } },
    ...{ durationMs: durationMs + longerMs, writePauseMs: 150 },
    faults: faults.filter(({ kind }) => !kind.startsWith("etcd restored")),
  };
}

/** Of the seeds of the embedded store, so many first ones are one scenario each of whose steps ends a process in one of them. */
const everyStep = 400;

function drawEmbedded(seed: number): Embedded | undefined {
  if (seed < since.embedded || seed >= since.keptCaches) return undefined;
  const index = seed - since.embedded;
  const isSystematic = index < everyStep;
  const random = new Seeded(isSystematic ? 0xe3b : seed ^ 0xe3b);
  const disk = {
    ...{ writeMs: random.pick([0.01, 0.2, 2]), syncMs: random.pick([0.05, 1, 10]) },
    ...{ slowness: random.pick([0, 0.02]), revisions: random.pick([3_000, 100_000]) },
  };
  const failures = random.pick([0, 0, 0.7]);
  return isSystematic
    ? { disk, failures: 0, endsBefore: [index], kills: 1 }
    : { disk, failures, endsBefore: [], kills: random.between(1, 5) };
}

/** Replicas that keep their caches on disk, and end more often, also while etcd is restored. */
function withKeptCaches(scenario: Scenario): Scenario {
  const { seed, durationMs, faults } = scenario;
  if (seed < since.keptCaches) return scenario;
  const restarts = drawRestarts(new Seeded(seed ^ 0x3ee9), durationMs);
  const all = [...faults, ...restarts].sort((one, other) => one.atMs - other.atMs);
  return { ...scenario, keepsCaches: true, faults: all };
}

/** The scenario of a seed. */
export function scenarioOf(seed: number): Scenario {
  const random = new Seeded(seed);
  const version = random.pick(["3.5.13", "3.5.21", "3.6.4"]);
  const members = Array.from({ length: random.pick([1, 1, 3]) }, () => version);
  const durationMs = random.between(500, 4_000);
  const tiers = random.pick([[], [], [1], [2], [1, 1]]);
  // Of its own, so that what it decides changes nothing else.
  const added = new Seeded(seed ^ 0xa91);
  const topology = { members, roots: random.between(1, 2), tiers };
  const hasDeepReads = seed >= since.deepReads;
  const keepsNewest = seed >= since.keptNewest;
  const scenario = {
    ...{ seed, salt: 0, durationMs, ...topology, hasDeepReads, keepsNewest },
    etcd: {
      maxBatchRevisions: random.pick([1, 2, 5, 1_000]),
      maxFragmentEvents: random.pick([1, 2, 3, 1_000]),
      slowness: random.pick([0, 0.02, 0.2]),
    },
    windowEvents: random.pick([20, 100, 100_000]),
    watchers: Array.from({ length: watcherKinds }, (_, i) => i).filter(() => random.chance(0.5)),
    writers: random.between(1, 2),
    hasReader: random.chance(0.7),
    hasLibrary: random.chance(0.5),
    writePauseMs: random.pick([20, 50, 150]),
    latencyMs: random.pick([0.05, 0.5, 5]),
    pace: {
      turnMs: random.pick([0, 0.05, 1]),
      readingMs: random.pick([0, 0.001, 0.2]),
      haste: random.pick([0, 0.1, 0.5]),
    },
    chunking: { split: random.pick([0, 0.05, 0.5]), joined: random.pick([0, 0.5]) },
    etcdWatchers: added.pick([0, 1, 2]),
    etcdCallers: added.pick([0, 0, 1, 2]),
  };
  const faults = [
    ...drawFaults(random.fork(), durationMs, topology),
    ...drawTimeFaults(added.fork(), durationMs),
  ];
  const resuming = drawResumeFaults(new Seeded(seed ^ 0xab5), durationMs, faults);
  const rare = drawRareFaults(new Seeded(seed ^ 0x4d2a), durationMs);
  const { faults: later, ...additions } = drawAdditions(seed, durationMs);
  const drawn = withCoordinating({
    ...{ ...scenario, ...additions },
    faults: [...faults, ...rare, ...resuming, ...later].sort((one, other) => one.atMs - other.atMs),
    dispatchIntervalMs: added.pick([0, 0, 0, 5, 500]),
    parts: drawParts(seed),
    ...drawLast(seed),
    transacting: drawTransacting(seed),
    embedded: drawEmbedded(seed),
  });
  return withKeptCaches(drawn);
}
