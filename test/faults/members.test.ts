import { describe, expect } from "vitest";
import { rounds } from "../thorough.ts";
import { faultTest } from "./fault-test.ts";

const three = { cluster: { size: 3 } } as const;

describe("one member of etcd killed and restarted", () => {
  faultTest("of three, one after the other", 2, three, async (world) => {
    for (const member of world.cluster.members) {
      await world.afterWrites(world.random.between(5, 40));
      await world.cluster.kill(member);
      await world.afterWrites(world.random.between(10, 40));
      await world.cluster.heal();
    }
    const reconnects = world.inProcess.map(({ cacher }) => cacher.stats().reconnects);
    expect(Math.max(...reconnects)).toBeGreaterThan(0);
  });
});

describe("etcd's leader moved", () => {
  faultTest("loses nothing", 3, three, async (world) => {
    for (let i = 0; i < rounds(4, 2); i++) {
      await world.afterWrites(world.random.between(5, 40));
      await world.cluster.moveLeader();
    }
    await world.afterWrites(20);
  });
});

describe("a member of etcd cut off from the others", () => {
  faultTest("is abandoned for a member that has a leader", 4, three, async (world) => {
    for (const member of world.cluster.members.slice(0, rounds(3, 1))) {
      await world.afterWrites(world.random.between(5, 30));
      const before = await world.cluster.revision();
      world.cluster.cutOff(member);
      await world.afterWrites(30);
      const written = await world.cluster.revision();
      expect(written).toBeGreaterThan(before);
      // While it is still cut off.
      await world.until("every replica's watches to deliver the writes", () =>
        world.inProcess.every(({ cacher }) => cacher.stats().revision >= written),
      );
      await world.cluster.heal();
    }
  });
});

describe("a member that is open and silent", () => {
  faultTest("is detected, and the other members are used", 6, three, async (world) => {
    await world.afterWrites(20);
    const [replica] = world.inProcess;
    const before = replica?.cacher.stats().reconnects ?? 0;
    // Whichever member it watches, it is silent in the middle of it.
    const [silent, ...others] = world.replicas[0]?.upstream ?? [];
    for (const other of others) other.refuse();
    const reached = await world.cluster.revision();
    await world.until("the replica to watch the member that will be silent", () => {
      return (replica?.cacher.stats().revision ?? 0) > reached;
    });
    silent?.hold();
    for (const other of others) other.heal();
    await world.afterWrites(10);
    const written = await world.cluster.revision();
    await world.until("what was written to come from another member", () => {
      return (replica?.cacher.stats().revision ?? 0) >= written;
    });
    expect(replica?.cacher.stats().reconnects).toBeGreaterThan(before);
  });
});
