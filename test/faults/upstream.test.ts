import { describe, expect } from "vitest";
import type { Write } from "../guarantees/writes.ts";
import { isThorough, rounds } from "../thorough.ts";
import { faultTest } from "./fault-test.ts";
import type { InProcessReplica } from "./in-process-replica.ts";
import { untilSeen } from "./patience.ts";
import { rawKeys } from "./raw-keys.ts";
import { deliveredBy } from "./wire.ts";
import type { World } from "./world.ts";

/** How often all replicas' watches of etcd have broken. */
function reconnects({ inProcess }: World): number {
  return inProcess.reduce((sum, { cacher }) => sum + cacher.stats().reconnects, 0);
}

describe("etcd killed and restarted", () => {
  faultTest("loses nothing, each time it is killed", 1, {}, async (world) => {
    const kills = rounds(3, 1);
    for (let i = 0; i < kills; i++) {
      await world.afterWrites(world.random.between(10, 60));
      for (const member of world.cluster.members) await world.cluster.kill(member);
      await world.afterWrites(5);
      await world.cluster.heal();
    }
    await world.afterWrites(20);
    expect(reconnects(world)).toBeGreaterThanOrEqual(kills);
  });
});

describe("the upstream stream reset at any byte", () => {
  faultTest("loses nothing", 5, { replicas: 3 }, async (world) => {
    const relays = world.replicas.flatMap(({ upstream }) => upstream);
    // A cut that falls between two watches breaks none: then further ones follow.
    const [cutTimes, least] = [rounds(25, 8), rounds(15, 4)];
    for (let i = 0; i < cutTimes || (i < 200 && reconnects(world) <= least); i++) {
      const relay = world.random.pick(relays);
      const { cuts } = relay;
      relay.cutAfter(world.random.between(0, 3_000));
      await untilSeen("the connection to be cut", async () =>
        relay.cuts > cuts ? true : undefined,
      );
    }
    await world.afterWrites(10);
    expect(reconnects(world)).toBeGreaterThan(least);
  });
});

describe("the upstream stream lost behind a change of a raw key", () => {
  faultTest("loses nothing, and is resumed without a relist", 6, { children: 1 }, async (world) => {
    const sum = (count: "reconnects" | "relists"): number =>
      world.inProcess.reduce((total, { cacher }) => total + cacher.stats()[count], 0);
    for (const [index] of rawKeys.entries()) {
      // Put and deleted alternately; in a thorough run each key with both.
      for (const isDelete of isThorough ? [false, true] : [index % 2 > 0]) {
        await world.endWithRawKey(index, isDelete);
        const before = sum("reconnects");
        for (const { upstream } of world.replicas) for (const relay of upstream) relay.cut();
        await untilSeen("each watch of etcd to have broken", async () =>
          sum("reconnects") >= before + world.inProcess.length ? true : undefined,
        );
        world.goOn();
        await world.afterWrites(5);
      }
    }
    expect(sum("relists")).toBe(0);
  });
});

describe("etcd away", () => {
  faultTest(
    "serves what needs no etcd, and fails the rest with UPSTREAM_UNAVAILABLE",
    7,
    {},
    async (world) => {
      await world.afterWrites(30);
      const [replica] = world.inProcess;
      if (replica === undefined) throw new Error("There is no replica.");
      const connection = world.connectionTo(replica);
      for (const member of world.cluster.members) await world.cluster.kill(member);
      const { revision } = replica.cacher.stats();
      expect((await connection.list({}, 2, 0)).revision).toBe(revision);
      expect((await connection.list({}, 3, revision)).revision).toBe(revision);
      await expect(connection.list({}, 1, 0)).rejects.toMatchObject({
        reason: "UPSTREAM_UNAVAILABLE",
      });
      // A watch is resumed, and has what is there.
      const [first] = world.watchers;
      const from = Math.max(1, (first?.level ?? 1) - 5);
      for await (const delivered of connection.watch({}, { afterRevision: from })) {
        const { revision: at } = deliveredBy(delivered);
        if (at === revision) break;
      }
      const silence = replica.cacher.stats().upstreamSilenceMs;
      await world.afterWrites(3);
      expect(replica.cacher.stats().upstreamSilenceMs).toBeGreaterThan(silence);
      expect(replica.cacher.upstreamFailure?.reason).toBe("UPSTREAM_UNAVAILABLE");
      connection.close();
      await world.cluster.heal();
    },
  );
});

describe("etcd's responses in any order that it may choose", () => {
  const options = { cluster: { size: 3 }, reorders: true } as const;
  faultTest(
    "lose nothing, while watches break and the leader moves",
    11,
    options,
    async (world) => {
      for (let i = 0; i < rounds(6, 3); i++) {
        await world.afterWrites(world.random.between(10, 40));
        // A cut that falls between two watches breaks none.
        const level = await world.cluster.revision();
        const isWatching = ({ cacher }: InProcessReplica): boolean =>
          cacher.stats().step === "watching" && cacher.stats().revision >= level;
        await untilSeen("each replica to watch etcd", async () =>
          world.inProcess.every(isWatching) ? true : undefined,
        );
        const before = reconnects(world);
        for (const relay of world.replicas.flatMap(({ upstream }) => upstream)) relay.cut();
        await untilSeen("each watch of etcd to have broken", async () =>
          reconnects(world) >= before + world.inProcess.length ? true : undefined,
        );
        if (i % 3 === 0) await world.cluster.moveLeader();
      }
      await world.afterWrites(20);
    },
  );
});

describe("etcd's space quota reached", () => {
  const small = { cluster: { quotaBytes: 4 * 1024 * 1024 }, filling: 60_000, throughService: 0.5 };
  faultTest(
    "refuses writes with STORAGE_FULL, and serves reads and watches",
    8,
    small,
    async (world) => {
      const refused = (): readonly Write[] =>
        world.writers.flatMap(({ writes }) =>
          writes.filter(({ reason }) => reason === "STORAGE_FULL"),
        );
      world.reasons.add("STORAGE_FULL");
      while (refused().length === 0) await world.afterWrites(10);
      await world.cluster.untilAlarmed();
      world.isAlarmed = true;
      const { completed } = world.reader;
      while (!refused().some(({ outcome }) => outcome === "refused")) await world.afterWrites(10);
      await world.afterWrites(20);
      const connection = world.connectionTo(world.replicas[0]);
      const level = await world.cluster.revision();
      expect((await connection.list({}, 1, 0)).revision).toBeGreaterThanOrEqual(level);
      expect(world.reader.completed).toBeGreaterThan(completed);
      connection.close();
      await world.until("every watcher to be synced with a full etcd", () =>
        world.watchers.every((watcher) => watcher.level > 0),
      );
      await world.holdWrites();
      world.isAlarmed = false;
      await world.compact();
      await world.cluster.defragment();
      await world.cluster.disarm();
      world.goOn();
      await world.afterWrites(10);
    },
  );
});

describe("the auth token expired", () => {
  const password = "secret";
  const authenticated = {
    cluster: { rootPassword: password, args: ["--auth-token-ttl=1", "--bcrypt-cost=4"] },
    replica: { auth: { username: "root", password } },
  } as const;

  faultTest("is renewed, also for the watch", 9, authenticated, async (world) => {
    await world.afterWrites(20);
    await world.holdWrites();
    await world.reader.stop();
    // Each is tried once, as trying it keeps it alive: when one is refused, so is every older one.
    const [member] = world.cluster.members;
    const tokens: (string | undefined)[] = [];
    for (let i = 0; i < 80; i++) tokens.push(await member?.authenticate());
    let triedAt = 0;
    await untilSeen("the tokens to have expired", async () => {
      if (performance.now() - triedAt < 100) return undefined;
      triedAt = performance.now();
      const response = await fetch(`${member?.url}/v3/kv/range`, {
        method: "POST",
        body: JSON.stringify({ key: "AA==" }),
        headers: { authorization: tokens.pop() ?? "" },
      });
      return (await response.text()).includes("invalid auth token") ? true : undefined;
    });
    const before = reconnects(world);
    for (const { upstream } of world.replicas) for (const relay of upstream) relay.cut();
    world.reader.start();
    world.goOn();
    await world.afterWrites(20);
    expect(reconnects(world)).toBeGreaterThan(before);
  });

  faultTest("with etcd killed, which forgets all tokens", 10, authenticated, async (world) => {
    for (let i = 0; i < rounds(2, 1); i++) {
      await world.afterWrites(20);
      for (const one of world.cluster.members) await world.cluster.kill(one);
      await world.afterWrites(2);
      await world.cluster.heal();
    }
    await world.afterWrites(20);
  });
});
