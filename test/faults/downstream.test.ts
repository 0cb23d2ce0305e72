import { describe, expect } from "vitest";
import { rounds } from "../thorough.ts";
import { faultTest } from "./fault-test.ts";
import { untilSeen } from "./patience.ts";
import type { World } from "./world.ts";

const child = { replicas: 1, children: 1, subscribers: 1 } as const;

/** The replica that is a process of its own. */
function theChild({ children }: World) {
  const [replica] = children;
  if (replica === undefined) throw new Error("There is no such replica.");
  return replica;
}

describe("this service killed and restarted", () => {
  faultTest("is resumed at another replica, and at the same again", 41, child, async (world) => {
    for (let i = 0; i < rounds(2, 1); i++) {
      await world.afterWrites(world.random.between(5, 40));
      await theChild(world).kill();
      theChild(world).disturb();
      await world.afterWrites(world.random.between(5, 40));
      await theChild(world).start();
      await world.afterWrites(10);
    }
    expect(world.watchers.reduce((sum, { resumed }) => sum + resumed, 0)).toBeGreaterThan(5);
  });

  faultTest("drained, one after the other", 42, {}, async (world) => {
    for (const replica of world.inProcess) {
      await world.afterWrites(world.random.between(5, 30));
      await replica.drain();
      await world.afterWrites(world.random.between(5, 30));
      await replica.start();
    }
    const drained = world.watchers
      .flatMap(({ ends }) => ends)
      .filter(({ reason }) => reason === "DRAINING");
    expect(drained.length).toBeGreaterThan(3);
  });

  faultTest("all at once, and etcd too", 43, child, async (world) => {
    await world.afterWrites(20);
    for (const member of world.cluster.members) await world.cluster.kill(member);
    await theChild(world).kill();
    for (const replica of world.inProcess) await replica.drain();
    await world.afterWrites(3);
    await world.cluster.heal();
    await Promise.all(world.replicas.map((replica) => replica.start()));
    await world.afterWrites(20);
  });
});

describe("the event loop held up for seconds", () => {
  faultTest(
    "loses and reorders nothing, whether clients wait or leave",
    44,
    child,
    async (world) => {
      for (let i = 0; i < rounds(2, 1); i++) {
        await world.afterWrites(world.random.between(5, 30));
        theChild(world).pause();
        theChild(world).disturb();
        // Data written meanwhile fills its sockets, and is delivered when it continues.
        await world.afterWrites(world.random.between(rounds(60, 40), rounds(120, 60)));
        theChild(world).resume();
      }
      await world.afterWrites(10);
    },
  );
});

describe("downstream connections", () => {
  faultTest(
    "cut, and cut at any byte, lose nothing",
    45,
    { replicas: 3, subscribers: 1 },
    async (world) => {
      const cutTimes = rounds(25, 8);
      for (let i = 0; i < cutTimes; i++) {
        const { relay } = world.random.pick(world.replicas);
        if (world.random.chance(0.3)) {
          relay.cut();
          await world.afterWrites(1);
          continue;
        }
        const { cuts } = relay;
        relay.cutAfter(world.random.between(0, 5_000));
        await untilSeen("the connection to be cut", async () =>
          relay.cuts > cuts ? true : undefined,
        );
      }
      expect(world.watchers.reduce((sum, { resumed }) => sum + resumed, 0)).toBeGreaterThan(
        cutTimes,
      );
    },
  );

  faultTest("held and delayed, lose nothing", 46, { replicas: 3 }, async (world) => {
    for (let i = 0; i < rounds(6, 3); i++) {
      const replica = world.random.pick(world.replicas);
      if (world.random.chance(0.5)) replica.relay.hold();
      else replica.relay.delay(world.random.between(1, 40));
      replica.disturb();
      await world.afterWrites(world.random.between(5, 30));
      replica.relay.heal();
    }
  });
});

describe("clients that stop reading", () => {
  const little = { replica: { historyEvents: 200 }, filling: 4_000 };
  faultTest(
    "do not delay others, and end with SLOW_CONSUMER when the event window has passed them",
    47,
    little,
    async (world) => {
      world.reasons.add("SLOW_CONSUMER").add("REVISION_TOO_OLD");
      const [replica] = world.inProcess;
      if (replica === undefined) throw new Error("There is no replica.");
      const connection = world.connectionTo(replica, 16_384);
      const calls = Array.from({ length: 20 }, () =>
        connection.watch({}, { afterRevision: undefined }),
      );
      const { slowConsumers } = replica.cacher.stats();
      // These are not read: they accept only what flow control allows.
      while (replica.cacher.stats().slowConsumers < slowConsumers + calls.length) {
        await world.afterWrites(50);
      }
      connection.close();
    },
  );
});

describe("clients that vanish", () => {
  faultTest("without closing leave nothing behind", 48, {}, async (world) => {
    const [replica] = world.inProcess;
    if (replica === undefined) throw new Error("There is no replica.");
    await world.afterWrites(10);
    for (let i = 0; i < 20; i++) {
      const connection = world.connectionTo(replica);
      const calls = Array.from({ length: 20 }, () =>
        connection.watch({ prefix: world.random.pick(["", "a/"]) }, { afterRevision: undefined }),
      );
      // Some have received a first response, and some have not.
      for (const call of calls.slice(0, world.random.between(0, 3))) {
        for await (const _ of call) break;
      }
      connection.close();
    }
    const most = world.watches;
    await untilSeen("the watches of the vanished clients to be gone", async () => {
      const open = Object.values(replica.cacher.stats().watchers);
      return open.reduce((sum, count) => sum + count, 0) <= most ? true : undefined;
    });
  });
});
