import { describe, expect } from "vitest";
import { isThorough, rounds } from "../thorough.ts";
import { faultTest } from "./fault-test.ts";
import { untilSeen } from "./patience.ts";
import type { RecordedWatcher } from "./recorded-watcher.ts";
import type { World } from "./world.ts";

/** How often a watcher's streams have ended for this reason. */
function ends({ ends }: RecordedWatcher, reason: string): number {
  return ends.filter((end) => end.reason === reason).length;
}

/** Cuts every replica off from etcd, at the same moment. */
function away({ replicas }: World): void {
  for (const { upstream } of replicas) for (const relay of upstream) relay.refuse();
}

function back({ replicas }: World): void {
  for (const { upstream } of replicas) for (const relay of upstream) relay.heal();
}

describe("compaction past the cache's revision while disconnected", () => {
  faultTest(
    "ends every EVERY_EVENT stream with HISTORY_LOST, without a gap in any",
    21,
    { subscribers: 1 },
    async (world) => {
      await world.afterWrites(rounds(40, 20));
      away(world);
      await world.afterWrites(rounds(40, 15));
      // LATEST_STATE streams continue; each of the others must be notified.
      world.reasons.add("HISTORY_LOST").add("REVISION_TOO_OLD");
      await world.compact();
      await world.afterWrites(10);
      back(world);
      await world.until("every watcher to be notified that history was lost", () =>
        world.watchers.every(
          (watcher) =>
            watcher.continuesAfterLoss ||
            ends(watcher, "HISTORY_LOST") + ends(watcher, "REVISION_TOO_OLD") > 0,
        ),
      );
      await world.afterWrites(20);
    },
  );

  faultTest("while connected affects no client", 22, {}, async (world) => {
    for (let i = 0; i < rounds(3, 2); i++) {
      await world.afterWrites(20);
      await untilSeen("the caches to be synced", async () => {
        const revision = await world.cluster.revision();
        return world.inProcess.every(({ cacher }) => cacher.stats().revision >= revision - 20)
          ? true
          : undefined;
      });
      await world.compact();
    }
    await world.afterWrites(20);
  });
});

describe("etcd restored from an older snapshot", () => {
  const marker = [
    ["with the marker key readable", { subscribers: 1 }],
    // An invalid id is left alone. A client that then switches to a replica that has detected it, while etcd has
    // grown past the client, could not be notified: so there is one replica.
    ["without a marker key", { replicas: 1, before: { "/watchfanout/history": "not an id" } }],
  ] as const;

  describe.each(marker)("%s", (_what, options) => {
    faultTest("below the replicas' revision, ends every stream", 23, options, async (world) => {
      expectMarker(world, !("before" in options));
      await world.afterWrites(20);
      const snapshot = await world.snapshot();
      await world.afterWrites(60);
      await world.restore(snapshot);
      await allChanged(world);
      world.goOn();
      await world.afterWrites(20);
    });

    if ("before" in options && !isThorough) return;

    faultTest(
      "grown past the replicas' revision, ends every stream",
      24,
      options,
      async (world) => {
        await world.afterWrites(20);
        const snapshot = await world.snapshot();
        await world.afterWrites(30);
        away(world);
        const before = Math.max(...world.inProcess.map(({ cacher }) => cacher.stats().revision));
        await world.restore(snapshot);
        world.goOn();
        while ((await world.cluster.revision()) <= before + 20) await world.afterWrites(10);
        back(world);
        await allChanged(world);
        await world.afterWrites(20);
      },
    );

    // Of one stream, restores.test.ts has both in each run: the first for several writes, with and without a marker key; the second
    // for each kind of write with one, and for all kinds without one in a thorough run only.
    if ("before" in options || !isThorough) return;

    faultTest(
      "when the resource was idle since the snapshot, ends every stream at the next write",
      26,
      options,
      async (world) => {
        await world.afterWrites(20);
        await world.holdWrites();
        const snapshot = await world.cluster.snapshot();
        await growElsewhere(world, snapshot.revision + 20);
        await world.untilReplicasBeyond(snapshot.revision + 10);
        away(world);
        const before = Math.max(...world.inProcess.map(({ cacher }) => cacher.stats().revision));
        await world.restore(snapshot);
        world.goOn();
        while ((await world.cluster.revision()) <= before + 20) await world.afterWrites(10);
        back(world);
        await allChanged(world);
        await world.afterWrites(20);
      },
    );

    faultTest(
      "with writes through the service before it is detected, names each write's history",
      27,
      { ...options, throughService: 0.9 },
      async (world) => {
        await world.afterWrites(20);
        const snapshot = await world.snapshot();
        await world.afterWrites(40);
        await world.untilReplicasBeyond(snapshot.revision + 1);
        await world.restore(snapshot);
        // No client waits until the replicas have detected it: their responses must be correct nevertheless.
        world.goOn();
        await allChanged(world);
        await world.afterWrites(40);
      },
    );
  });

  faultTest("on all three members", 25, { cluster: { size: 3 } }, async (world) => {
    await world.afterWrites(20);
    const snapshot = await world.snapshot();
    await world.afterWrites(40);
    await world.restore(snapshot);
    world.goOn();
    await allChanged(world);
    await world.afterWrites(20);
  });
});

/** Writes keys outside of the resource, until etcd is at `revision`. */
async function growElsewhere({ cluster }: World, revision: number): Promise<void> {
  const key = Buffer.from("/elsewhere").toString("base64");
  while ((await cluster.revision()) < revision) await cluster.call("kv/put", { key });
}

function expectMarker({ inProcess }: World, isThere: boolean): void {
  const ids = inProcess.map(({ cacher }) => cacher.currentHistoryId);
  expect(new Set(ids).size).toBe(1);
  expect(ids[0] !== "").toBe(isThere);
}

/** A client that resumes only after a replica has listed again may also come from before its history. */
async function allChanged(world: World): Promise<void> {
  const isChanged = (watcher: RecordedWatcher): boolean =>
    ends(watcher, "HISTORY_CHANGED") + ends(watcher, "REVISION_TOO_OLD") > 0;
  await world.until("every watcher to be notified that history has changed", () =>
    world.watchers.every(isChanged),
  );
}
