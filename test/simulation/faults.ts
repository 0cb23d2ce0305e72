import { rawKeys } from "../faults/raw-keys.ts";
import type { Seeded } from "../faults/seeded.ts";
import type { EtcdCluster } from "./etcd-cluster.ts";
import type { EtcdServer } from "./etcd-server.ts";
import type { Link, Network } from "./network.ts";
import type { SimulatedReplica } from "./replica.ts";
import type { Scheduler } from "./scheduler.ts";

/** Something that is done to a world, and undone after a while. It depends on nothing but its own numbers. */
export interface Fault {
  readonly kind: FaultKind;
  /** When it begins, since the clients have begun, and how long it lasts, in milliseconds. */
  readonly atMs: number;
  readonly forMs: number;
  /** Choose its target: in [0, 1). */
  readonly one: number;
  readonly other: number;
}

/** What faults are done to. */
export interface Disturbed {
  readonly scheduler: Pick<Scheduler, "stop" | "dayAheadMs">;
  readonly network: Network;
  readonly cluster: EtcdCluster;
  readonly servers: readonly EtcdServer[];
  readonly replicas: readonly SimulatedReplica[];
  readonly watchers: readonly {
    vanish(): void;
    leave(): void;
    comeBack(): void;
  }[];
  /** Why streams may end. */
  readonly reasons: Set<string>;
  /** Compacts a revision, chosen among the last ones. */
  compact(by: number): void;
  /** No effect if that is compacted already, or has not happened. */
  compactAt(revision: number): void;
  /**
   * Returns what puts etcd back to its state of now. `isMarked`: the operator puts another id into the marker key, as
   * docs/guarantees.md advises.
   */
  snapshot(isMarked: boolean): () => Promise<void>;
  changeRawKey(index: number, isDelete: boolean): void;
}

/** Begins a fault. Resolves to what ends it. */
type Begin = (world: Disturbed, fault: Fault) => Promise<() => Promise<void> | void>;

interface Kind {
  /** How often it comes, relative to the others. */
  readonly weight: number;
  readonly begin: Begin;
}

function chosen<T>(of: readonly T[], by: number): T {
  const one = of[Math.min(of.length - 1, Math.floor(by * of.length))];
  if (one === undefined) throw new RangeError("There is nothing to choose from.");
  return one;
}

const nothing = (): void => {};

/** A link between a replica and what it follows. */
function upstreamOf(world: Disturbed, { one, other }: Fault): Link {
  return chosen(chosen(world.replicas, one).upstream, other);
}

/** The links of the clients to a replica. */
function downstreamOf(world: Disturbed, { one }: Fault): Link {
  return chosen(world.replicas, one).downstream;
}

function cut(
  linkOf: (world: Disturbed, fault: Fault) => Link,
  who: "both" | "client" | "server",
): Begin {
  return async (world, fault) => {
    world.network.cut(linkOf(world, fault), who);
    return nothing;
  };
}

function held(linkOf: (world: Disturbed, fault: Fault) => Link): Begin {
  return async (world, fault) => {
    const link = linkOf(world, fault);
    link.state.isHeld = true;
    return () => world.network.release(link);
  };
}

/** The delays of those that are delayed, from the usual one to the last one that began. */
const delays = new WeakMap<object, number[]>();

/** Sets a delay. Returns what ends it: then the one that began before it holds, if that has not ended, or the usual one. */
function delayed<Name extends string>(
  target: Record<Name, number>,
  name: Name,
  ms: number,
): () => void {
  const all = delays.get(target) ?? [target[name]];
  delays.set(target, all);
  all.push(ms);
  target[name] = ms;
  return () => {
    all.splice(all.lastIndexOf(ms), 1);
    target[name] = all.at(-1) ?? ms;
  };
}

const kinds = {
  "upstream cut": { weight: 8, begin: cut(upstreamOf, "both") },
  "upstream lost, which etcd notices first": { weight: 3, begin: cut(upstreamOf, "server") },
  "upstream held": { weight: 5, begin: held(upstreamOf) },
  "upstream refused": {
    weight: 4,
    begin: async (world, fault) => {
      const link = upstreamOf(world, fault);
      link.state.isRefused = true;
      world.network.cut(link);
      return () => {
        link.state.isRefused = false;
      };
    },
  },
  "upstream slow": {
    weight: 3,
    begin: async (world, fault) => {
      return delayed(upstreamOf(world, fault).state, "latencyMs", 20 + 400 * fault.other);
    },
  },
  "downstream cut": { weight: 6, begin: cut(downstreamOf, "both") },
  "downstream lost, which the client notices first": {
    weight: 3,
    begin: cut(downstreamOf, "client"),
  },
  "downstream held": {
    weight: 3,
    begin: async (world, fault) => {
      chosen(world.replicas, fault.one).disturb();
      return held(downstreamOf)(world, fault);
    },
  },
  "replica replaced": {
    weight: 4,
    begin: async (world, { one }) => {
      const replica = chosen(world.replicas, one);
      replica.disturb();
      await replica.stop();
      return () => replica.start();
    },
  },
  "replica crashed": {
    weight: 4,
    begin: async (world, { one }) => {
      const replica = chosen(world.replicas, one);
      replica.disturb();
      await replica.crash();
      return () => replica.start();
    },
  },
  "client vanishes": {
    weight: 3,
    begin: async (world, { one }) => {
      if (world.watchers.length > 0) chosen(world.watchers, one).vanish();
      return nothing;
    },
  },
  "member killed": {
    weight: 4,
    begin: async (world, { one }) => {
      const server = chosen(world.servers, one);
      server.stop();
      return () => void server.start();
    },
  },
  "member cut off": {
    weight: 4,
    begin: async (world, { one }) => {
      const member = chosen(world.cluster.members, one);
      member.connect(false);
      return () => member.connect(true);
    },
  },
  "member lags": {
    weight: 4,
    begin: async (world, { one, other }) => {
      return delayed(chosen(world.cluster.members, one), "lagMs", 5 + 300 * other);
    },
  },
  "member installs a snapshot": {
    weight: 3,
    begin: async (world, { one, other }) => {
      const { members } = world.cluster;
      chosen(members, one).installSnapshot(chosen(members, other));
      return nothing;
    },
  },
  "etcd compacted": {
    weight: 4,
    begin: async (world, { one }) => {
      world.compact(one);
      return nothing;
    },
  },
  "compacted past a replica": {
    weight: 4,
    begin: async (world, { one, other }) => {
      const replica = chosen(world.replicas, one);
      const revision = replica.cacher?.stats().revision ?? 0;
      for (const link of replica.upstream) {
        link.state.isRefused = true;
        world.network.cut(link);
      }
      return () => {
        // The revisions around the last one that it has are where watches differ.
        world.compactAt(revision + Math.floor(other * 4) - 1);
        for (const link of replica.upstream) link.state.isRefused = false;
      };
    },
  },
  "etcd full": {
    weight: 2,
    begin: async (world) => {
      world.reasons.add("STORAGE_FULL");
      world.cluster.isFull = true;
      return () => {
        world.cluster.isFull = false;
      };
    },
  },
  "etcd restored": {
    weight: 1,
    begin: async (world) => world.snapshot(false),
  },
  "raw keys change": {
    weight: 2,
    begin: async (world, { one, other }) => {
      world.changeRawKey(Math.floor(one * rawKeys.length), other < 0.4);
      return nothing;
    },
  },
  // Drawn apart, below.
  "processes stopped": {
    weight: 0,
    begin: async (world, { other }) => {
      for (const replica of world.replicas) replica.disturb();
      world.scheduler.stop(100 * 200 ** other);
      return nothing;
    },
  },
  "etcd restored with another id": {
    weight: 0,
    begin: async (world) => world.snapshot(true),
  },
  // Its timers fire, and it hears nothing and is not heard.
  "replica silent": {
    weight: 0,
    begin: async (world, { one }) => {
      const replica = chosen(world.replicas, one);
      replica.disturb();
      const links = [...replica.upstream, replica.downstream];
      for (const link of links) link.state.isHeld = true;
      return () => {
        for (const link of links) world.network.release(link);
      };
    },
  },
  // SIGTERM: as it is replaced, but its clients are not warned, and call it until the end.
  "replica drained": {
    weight: 0,
    begin: async (world, { one }) => {
      const replica = chosen(world.replicas, one);
      await replica.stop();
      return () => replica.start();
    },
  },
  "worker killed": {
    weight: 0,
    begin: async (world, { one, other }) => {
      chosen(world.replicas, one).killWorker(other);
      return nothing;
    },
  },
  // After 20 seconds its main process replaces it.
  "worker cut off from its main process": {
    weight: 0,
    begin: async (world, { one, other }) => chosen(world.replicas, one).holdWorker(other),
  },
  "client away": {
    weight: 0,
    begin: async (world, { one }) => {
      if (world.watchers.length === 0) return nothing;
      const watcher = chosen(world.watchers, one);
      watcher.leave();
      return () => watcher.comeBack();
    },
  },
  // Until everything is written.
  "client away to the end": {
    weight: 0,
    begin: async (world, { one }) => {
      if (world.watchers.length > 0) chosen(world.watchers, one).leave();
      return nothing;
    },
  },
  "compacted where watches are": {
    weight: 0,
    begin: async (world) => {
      const all = world.cluster.members.map(({ watches }) => watches);
      // Before these have read it: a client that resumes may have asked before whether it is there.
      for (const watches of all) watches.onBehind = (revision) => world.compactAt(revision);
      return () => {
        for (const watches of all) watches.onBehind = nothing;
      };
    },
  },
  "clock set": {
    weight: 0,
    begin: async ({ scheduler }, { one, other }) => {
      scheduler.dayAheadMs += (one < 0.5 ? -1 : 1) * 10 * 1e7 ** other;
      return nothing;
    },
  },
} as const satisfies Readonly<Record<string, Kind>>;

export type FaultKind = keyof typeof kinds;

/** Faults of all kinds, in the order in which they begin. */
export function drawFaults(
  random: Seeded,
  durationMs: number,
  topology: { readonly roots: number },
): Fault[] {
  const weights = Object.fromEntries(
    Object.entries(kinds).map(([kind, { weight }]) => [kind, weight]),
  ) as Record<FaultKind, number>;
  const count = random.between(0, 3 + topology.roots * 3);
  const drawn = Array.from({ length: count }, (): Fault => {
    const kind = random.pickWeighted(weights);
    const forMs = random.pick([5, 50, 500, 500, 3_000, 12_000]) * (0.5 + random.next());
    return {
      ...{ kind, forMs, atMs: random.next() * durationMs },
      ...{ one: random.next(), other: random.next() },
    };
  });
  return drawn.sort((one, other) => one.atMs - other.atMs);
}

/** Faults of the time: everything stops for up to 20 seconds, and the clock of the day is set up to a day off. */
export function drawTimeFaults(random: Seeded, durationMs: number): Fault[] {
  return Array.from({ length: random.pick([0, 0, 1, 2]) }, () => ({
    ...{ kind: random.pick(["processes stopped", "clock set"] as const), forMs: 0 },
    ...{ atMs: random.next() * durationMs, one: random.next(), other: random.next() },
  }));
}

/** In one of five simulations: restores that come at any time, and replicas that are silent, often when another is restored. */
export function drawRareFaults(random: Seeded, durationMs: number): Fault[] {
  if (random.chance(0.8)) return [];
  return Array.from({ length: random.between(1, 3) }, () => ({
    kind: random.pick(["etcd restored with another id", "replica silent"] as const),
    forMs: random.pick([50, 500, 3_000]) * (0.5 + random.next()),
    ...{ atMs: random.next() * durationMs, one: random.next(), other: random.next() },
  }));
}

/**
 * What concerns resume points, beside other faults: clients that stay away for seconds, or over a restore of etcd, and
 * compactions where watches are that read the store.
 */
export function drawResumeFaults(
  random: Seeded,
  durationMs: number,
  others: readonly Fault[],
): Fault[] {
  const targets = (): Pick<Fault, "one" | "other"> => ({
    one: random.next(),
    other: random.next(),
  });
  const kinds: FaultKind[] = [
    ...Array.from({ length: random.pick([0, 0, 0, 1, 3]) }, () => "client away" as const),
    ...(random.chance(0.2) ? ["compacted where watches are" as const] : []),
  ];
  const drawn = kinds.map((kind) => ({
    ...{ kind, atMs: random.next() * durationMs, forMs: random.between(500, 6_000) },
    ...targets(),
  }));
  const restores = others.filter(({ kind }) => kind === "etcd restored");
  const absences = restores.flatMap(({ atMs, forMs }) =>
    Array.from({ length: random.pick([0, 1, 3]) }, () => ({
      ...{ kind: "client away to the end" as const, atMs: atMs + random.next() * forMs },
      ...{ forMs: 0, ...targets() },
    })),
  );
  return [...drawn, ...absences];
}

/**
 * Replicas that are drained, one after the other at times; workers that are killed, or get nothing; and, while there are
 * leases, clients that are away for longer than these live.
 */
export function drawServiceFaults(
  random: Seeded,
  durationMs: number,
  { hasLeases, hasWorkers }: { readonly hasLeases: boolean; readonly hasWorkers: boolean },
): Fault[] {
  const drawn = (kind: FaultKind, count: number, forMs: () => number): Fault[] =>
    Array.from({ length: count }, () => ({
      ...{ kind, atMs: random.next() * durationMs, forMs: forMs() },
      ...{ one: random.next(), other: random.next() },
    }));
  const kills = hasWorkers ? random.pick([0, 1, 2]) : 0;
  const holds = hasWorkers ? random.pick([0, 1, 2]) : 0;
  const absences = hasLeases ? random.pick([0, 1, 3]) : 0;
  return [
    ...drawn("replica drained", random.pick([0, 1, 1, 3]), () => random.between(5, 500)),
    ...drawn("worker killed", kills, () => 0),
    ...drawn("worker cut off from its main process", holds, () =>
      random.pick([50, 500, 3_000, 25_000]),
    ),
    ...drawn("client away", absences, () => random.between(2_500, 6_000)),
  ];
}

/** Replicas that end and start again, and often a restore of etcd meanwhile. */
export function drawRestarts(random: Seeded, durationMs: number): Fault[] {
  const drawn = (kind: FaultKind, forMs: number): Fault => ({
    ...{ kind, forMs, atMs: random.next() * durationMs },
    ...{ one: random.next(), other: random.next() },
  });
  const restarts = Array.from({ length: random.between(2, 5) }, () =>
    drawn(
      random.pick(["replica crashed", "replica replaced"] as const),
      random.pick([5, 50, 500, 3_000]) * (0.5 + random.next()),
    ),
  );
  if (random.chance(0.4)) return restarts;
  // Restored while a replica is away that has come further than the backup.
  const restore = drawn("etcd restored with another id", 300);
  const away = { ...drawn("replica crashed", 400), atMs: restore.atMs + 200 };
  return [...restarts, restore, away];
}

/** Begins a fault. Resolves to what ends it. */
export function beginFault(world: Disturbed, fault: Fault): Promise<() => Promise<void> | void> {
  const begin: Begin = kinds[fault.kind].begin;
  return begin(world, fault);
}
