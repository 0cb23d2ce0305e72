import type { ChildReplica } from "./child-replica.ts";
import { rawKeys } from "./raw-keys.ts";
import type { Relay } from "./relay.ts";
import type { World } from "./world.ts";

/** Does something to a world and undoes it. Resolves to whether it has had any effect. */
type Fault = (world: World) => Promise<boolean>;

/** One fault of a soak: how often it comes, relative to the others, and what it does. */
interface Catalogued {
  readonly weight: number;
  readonly fault: Fault;
}

/** A few writes, so that something happens while the fault lasts. */
function meanwhile(world: World, least: number = 2, most: number = 12): Promise<void> {
  return world.afterWrites(world.random.between(least, most));
}

function upstreamOf(world: World): Relay {
  const relays = world.random.pick(world.replicas).upstream;
  const used = relays.filter(({ connections }) => connections > 0);
  return world.random.pick(used.length > 0 ? used : relays);
}

function downstreamOf(world: World): Relay {
  return world.random.pick(world.replicas).relay;
}

/** Cuts once so many bytes have passed, if they pass within some writes. */
async function cutAtAnyByte(world: World, relay: Relay): Promise<boolean> {
  const { cuts } = relay;
  relay.cutAfter(world.random.between(0, 4_000));
  for (let i = 0; i < 10 && relay.cuts === cuts; i++) await world.afterWrites(1);
  relay.heal();
  return relay.cuts > cuts;
}

async function during(relay: Relay, world: World, begin: () => void): Promise<boolean> {
  begin();
  await meanwhile(world);
  relay.heal();
  return true;
}

/** A replica with workers; undefined: all are without. */
function withWorkers({ children, random }: World): ChildReplica | undefined {
  const found = children.filter(({ hasWorkers }) => hasWorkers);
  return found.length === 0 ? undefined : random.pick(found);
}

/** Whatever can go wrong between, in and around the processes of a world of child replicas. */
export const faultCatalogue: Readonly<Record<string, Catalogued>> = {
  "upstream cut at any byte": {
    weight: 14,
    fault: (world) => cutAtAnyByte(world, upstreamOf(world)),
  },
  "downstream cut at any byte": {
    weight: 14,
    fault: (world) => cutAtAnyByte(world, downstreamOf(world)),
  },
  "upstream cut": {
    weight: 8,
    fault: async (world) => {
      upstreamOf(world).cut();
      await meanwhile(world, 1, 4);
      return true;
    },
  },
  "upstream cut behind a change of a raw key": {
    weight: 4,
    fault: async (world) => {
      const { random } = world;
      await world.endWithRawKey(random.between(0, rawKeys.length - 1), random.chance(0.3));
      upstreamOf(world).cut();
      world.goOn();
      await meanwhile(world, 1, 4);
      return true;
    },
  },
  "downstream cut": {
    weight: 8,
    fault: async (world) => {
      downstreamOf(world).cut();
      await meanwhile(world, 1, 4);
      return true;
    },
  },
  "client vanishes": {
    weight: 10,
    fault: async (world) => {
      world.random.pick(world.watchers).vanish();
      await world.afterWrites(1);
      return true;
    },
  },
  "upstream delayed": {
    weight: 3,
    fault: (world) => {
      const relay = upstreamOf(world);
      return during(relay, world, () => relay.delay(world.random.between(1, 50)));
    },
  },
  "upstream held": {
    weight: 3,
    fault: (world) => {
      const relay = upstreamOf(world);
      return during(relay, world, () => relay.hold());
    },
  },
  "upstream refused": {
    weight: 3,
    fault: (world) => {
      const relay = upstreamOf(world);
      return during(relay, world, () => relay.refuse());
    },
  },
  "upstream responses lost": {
    weight: 3,
    fault: (world) => {
      const relay = upstreamOf(world);
      return during(relay, world, () => relay.loseResponses());
    },
  },
  "downstream delayed": {
    weight: 3,
    fault: (world) => {
      const relay = downstreamOf(world);
      return during(relay, world, () => relay.delay(world.random.between(1, 50)));
    },
  },
  "downstream held": {
    weight: 3,
    fault: async (world) => {
      const replica = world.random.pick(world.replicas);
      replica.relay.hold();
      replica.disturb();
      await meanwhile(world);
      await replica.heal();
      return true;
    },
  },
  "replica paused": {
    weight: 4,
    fault: async (world) => {
      const replica = world.random.pick(world.children);
      replica.pause();
      replica.disturb();
      await meanwhile(world, 5, 40);
      replica.resume();
      return true;
    },
  },
  "replica killed": {
    weight: 3,
    fault: async (world) => {
      // The first one lives on, so that what it takes can be watched.
      const replica = world.random.pick(world.children.slice(1));
      await replica.kill();
      replica.disturb();
      await meanwhile(world);
      await replica.start();
      return true;
    },
  },
  "worker killed": {
    weight: 4,
    fault: async (world) => {
      const replica = withWorkers(world);
      // Its main process replaces it, and clients continue at other workers.
      if ((await replica?.killWorker(world.random)) === undefined) return false;
      await meanwhile(world);
      return true;
    },
  },
  "worker paused": {
    weight: 2,
    fault: async (world) => {
      const replica = withWorkers(world);
      if (replica === undefined || !(await replica.pauseWorker(world.random))) return false;
      replica.disturb();
      await meanwhile(world, 5, 40);
      replica.resume();
      return true;
    },
  },
  "relay's upstream replaced by another replica": {
    weight: 4,
    fault: async (world) => {
      if (world.relays.length === 0) return false;
      const relay = world.random.pick(world.relays);
      relay.replaceUpstream(world.random);
      await meanwhile(world);
      await relay.heal();
      return true;
    },
  },
  "relay replaced": {
    weight: 6,
    fault: async (world) => {
      if (world.relays.length === 0) return false;
      const relay = world.random.pick(world.relays);
      await relay.drain();
      relay.disturb();
      await meanwhile(world);
      await relay.start();
      return true;
    },
  },
  "etcd's leader moved": {
    weight: 4,
    fault: async (world) => {
      await world.cluster.moveLeader();
      return true;
    },
  },
  "etcd's member killed": {
    weight: 2,
    fault: async (world) => {
      await world.cluster.kill(world.random.pick(world.cluster.members));
      await meanwhile(world);
      await world.cluster.heal();
      return true;
    },
  },
  "etcd's member paused": {
    weight: 2,
    fault: async (world) => {
      await world.cluster.pause(world.random.pick(world.cluster.members));
      await meanwhile(world);
      await world.cluster.heal();
      return true;
    },
  },
  "etcd's member cut off": {
    weight: 2,
    fault: async (world) => {
      world.cluster.cutOff(world.random.pick(world.cluster.members));
      await meanwhile(world);
      await world.cluster.heal();
      return true;
    },
  },
  "etcd killed": {
    weight: 1,
    fault: async (world) => {
      await Promise.all(world.cluster.members.map((member) => world.cluster.kill(member)));
      await meanwhile(world, 1, 4);
      await world.cluster.heal();
      return true;
    },
  },
  "etcd compacted": {
    weight: 3,
    fault: async (world) => {
      world.reasons.add("HISTORY_LOST");
      await world.compact();
      return true;
    },
  },
  "compacted past a replica": {
    weight: 2,
    fault: async (world) => {
      world.reasons.add("HISTORY_LOST");
      const { upstream } = world.random.pick(world.replicas);
      for (const relay of upstream) relay.refuse();
      await meanwhile(world);
      await world.compact();
      for (const relay of upstream) relay.heal();
      await meanwhile(world);
      return true;
    },
  },
  "etcd restored": {
    weight: 0.7,
    fault: async (world) => {
      const snapshot = await world.snapshot();
      await meanwhile(world);
      await world.untilReplicasBeyond(snapshot.revision);
      await world.restore(snapshot);
      // No client writes until every replica has detected it, so that no client receives two histories as one.
      await world.untilReplicasFound();
      world.goOn();
      return true;
    },
  },
  "etcd restored while relays are away": {
    weight: 0.7,
    fault: async (world) => {
      if (world.relays.length === 0) return false;
      const snapshot = await world.snapshot();
      await meanwhile(world);
      await world.untilReplicasBeyond(snapshot.revision);
      const networks = world.relays.flatMap(({ upstream }) => upstream);
      for (const network of networks) network.refuse();
      await world.restore(snapshot);
      await world.untilReplicasFound([...world.inProcess, ...world.children]);
      world.goOn();
      // The new history may grow past what the relays have of the old one.
      await meanwhile(world, 2, 40);
      await world.holdWrites();
      for (const network of networks) network.heal();
      await world.untilReplicasFound();
      world.goOn();
      return true;
    },
  },
};
