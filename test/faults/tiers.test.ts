import { describe, expect } from "vitest";
import { isThorough, rounds } from "../thorough.ts";
import { faultTest } from "./fault-test.ts";
import { untilSeen } from "./patience.ts";
import type { World } from "./world.ts";

/** Clients of Subscribe, through the library and without it, received how far all their watches are. */
function expectProgress({ progress: { library, others } }: World): void {
  expect(library).toBeGreaterThan(2);
  expect(others).toBeGreaterThan(2);
}

/** Two roots, two relays of them, and a relay of these. */
const threeTiers = { replicas: 2, tiers: [2, 1], subscribers: 2 } as const;

/** Two replicas, one of which has two workers, a tier of their own. */
const withWorkers = { replicas: 1, children: 1, workers: [2], subscribers: 2 } as const;

async function relists({ relays }: World): Promise<number> {
  const each = relays.map((relay) => relay.metric("watch_fanout_upstream_relists_total"));
  return (await Promise.all(each)).reduce((sum, count) => sum + count, 0);
}

describe("clients that hop between three tiers", () => {
  faultTest("lose nothing while roots and relays are replaced", 81, threeTiers, async (world) => {
    const all = [...world.inProcess, ...world.relays];
    // One of each tier: they are alike.
    for (const replica of isThorough ? all : [all[0], all[2], all[4]]) {
      if (replica === undefined) throw new Error("There is no such replica.");
      await world.afterWrites(world.random.between(5, 25));
      await replica.drain();
      await world.afterWrites(world.random.between(5, 25));
      await replica.start();
    }
    await world.afterWrites(20);
    // Each relay listed once for each start.
    expect(await relists(world)).toBe(0);
    expect(world.watchers.reduce((sum, { resumed }) => sum + resumed, 0)).toBeGreaterThan(
      rounds(10, 5),
    );
    expectProgress(world);
  });

  faultTest("lose nothing while workers are killed", 83, withWorkers, async (world) => {
    const [replica] = world.children;
    if (replica === undefined) throw new Error("There is no replica with workers.");
    for (let i = 0; i < rounds(2, 1); i++) {
      await world.afterWrites(world.random.between(5, 25));
      const pid = await untilSeen("a worker", () => replica.killWorker(world.random));
      await world.afterWrites(world.random.between(5, 25));
      await replica.untilReplaced(pid);
    }
    await world.afterWrites(20);
    expect(world.watchers.reduce((sum, { resumed }) => sum + resumed, 0)).toBeGreaterThan(5);
    expectProgress(world);
  });

  faultTest("lose nothing while streams are cut at any byte", 82, threeTiers, async (world) => {
    const networks = world.relays.flatMap(({ upstream }) => upstream);
    for (let i = 0; i < rounds(15, 4); i++) {
      // The relays whose connections were cut may not have connected again yet.
      const used = await untilSeen("a connection", async () => {
        const open = networks.filter(({ connections }) => connections > 0);
        return open.length > 0 ? open : undefined;
      });
      const network = world.random.pick(used);
      const { cuts } = network;
      network.cutAfter(world.random.between(0, 3_000));
      await untilSeen("the connection to be cut", async () =>
        network.cuts > cuts || network.connections === 0 ? true : undefined,
      );
    }
    await world.afterWrites(10);
    expect(await relists(world)).toBe(0);
    expectProgress(world);
  });
});
