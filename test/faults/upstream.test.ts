import { describe } from "vitest";
import { faultTest } from "./fault-test.ts";

describe("etcd killed and restarted", () => {
  faultTest("keeps every promise, each time it is killed", 1, {}, async (world) => {
    for (let i = 0; i < 3; i++) {
      await world.afterWrites(world.random.between(10, 60));
      for (const member of world.cluster.members) await world.cluster.kill(member);
      await world.afterWrites(5);
      await world.cluster.heal();
    }
    await world.afterWrites(20);
  });
});
