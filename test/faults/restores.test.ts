import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { hasReason } from "../../src/base/errors.ts";
import { EtcdCluster } from "./etcd-cluster.ts";
import { type Marker, Restorable, resource } from "./restorable.ts";

const markers: readonly Marker[] = ["with the marker key", "without the marker key"];

let cluster: EtcdCluster;
beforeAll(async () => {
  cluster = await EtcdCluster.start();
});
afterAll(async () => {
  await cluster.stop();
});

/** The new history's writes to a resource that was idle in the old history since before the backup. */
const written: readonly (readonly [string, readonly [string, string | null][], string[]])[] = [
  ["a new object", [["d", "after"]], ["a", "b", "c", "d"]],
  ["another value of an object", [["a", "after"]], ["a", "b", "c"]],
  ["a deletion", [["b", null]], ["a", "c"]],
  [
    "a deletion and a new object, so that there are as many as before",
    [
      ["b", null],
      ["d", "after"],
    ],
    ["a", "c", "d"],
  ],
];

describe.each(markers)("A restore while the resource is idle, %s", (marker) => {
  test.each(written)(
    "ends every stream, and is detected by %s",
    { timeout: 60_000 },
    async (_what, entries, keys) => {
      const world = await Restorable.open({ cluster, marker });
      const snapshot = await world.snapshot();
      await world.growTo(snapshot.revision + 5);
      const before = await world.level();
      const { history_id } = await world.client.list({ resource });
      expect(before).toBe(snapshot.revision + 5);
      const stream = await world.watch(before);
      await world.away();
      await world.restore(snapshot);
      await world.write(...entries);
      await world.growTo(before + 5);
      world.back();
      await world.connected();
      const state = await world.client.list({ resource });
      expect(state.items.map(({ key }) => key)).toEqual(keys);
      expect(await stream.ended).toMatchObject({ reason: "HISTORY_CHANGED" });
      if (marker === "with the marker key") expect(state.history_id).not.toBe(history_id);
      else expect(state.history_id).toBe("");
    },
  );

  test("is not missed by reads while nothing arrives from etcd", { timeout: 60_000 }, async () => {
    const world = await Restorable.open({ cluster, marker });
    const snapshot = await world.snapshot();
    await world.growTo(snapshot.revision + 5);
    const before = await world.level();
    await world.away();
    await world.restore(snapshot);
    await world.write(["d", "after"]);
    await world.growTo(before);
    world.back();
    // The replica pauses still, and etcd stands where the cache does.
    const state = await world.client.list({ resource }).catch((error: unknown) => error);
    if (state instanceof Error) expect(state).toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });
    else expect(state).toMatchObject({ items: [{}, {}, {}, { key: "d" }] });
  });
});

describe("A watch that is resumed", () => {
  test("resumes if etcd is the same as before, also with keys that are not part of the resource", async () => {
    const world = await Restorable.open({ cluster, marker: "with the marker key" });
    const notText = Buffer.concat([Buffer.from(world.prefix), Buffer.from([0xff])]);
    await world.source.putBytes(notText, "left out");
    const before = await world.level();
    await world.growTo(before + 3);
    const revision = await world.level();
    const stream = await world.watch(revision);
    await world.away();
    await world.source.putBytes(notText, "left out again");
    world.back();
    await world.connected();
    const added = await world.write(["d", "after"]);
    expect(await stream.next()).toMatchObject({ revision: `${added}` });
    expect(world.cacher.stats()).toMatchObject({ relists: 0 });
  });

  test("distinguishes two deletions of one key at one revision by what else was written", {
    timeout: 60_000,
  }, async () => {
    const world = await Restorable.open({ cluster, marker: "without the marker key" });
    const snapshot = await world.snapshot();
    await world.write(["a", "old history"]);
    const before = await world.write(["b", null]);
    expect(await world.level()).toBe(before);
    const stream = await world.watch(before);
    await world.away();
    await world.restore(snapshot);
    await world.write(["c", "new history"]);
    expect(await world.write(["b", null])).toBe(before);
    await world.growTo(before + 5);
    world.back();
    await world.connected();
    expect(await stream.ended).toMatchObject({ reason: "HISTORY_CHANGED" });
  });
});

/** The next calls that a client may make with the response to a write. */
async function readAtLeast(world: Restorable, revision: string, history_id: string) {
  const revision_match = "REVISION_MATCH_NOT_OLDER_THAN";
  return world.client.list({ resource, revision_match, revision, history_id });
}

/** Writes once gRPC has connected to etcd again, which it does in real time: until then nothing is written. */
async function onceConnected<T>(write: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await write();
    } catch (error) {
      if (!hasReason(error, "UPSTREAM_UNAVAILABLE")) throw error;
    }
  }
}

const writes: readonly (readonly [
  string,
  (
    world: Restorable,
  ) => Promise<{ readonly revision: string; readonly history_id: string; readonly keys: string[] }>,
])[] = [
  [
    "a Put",
    async ({ client }) => ({
      ...(await client.put({ resource, key: "d", value: Buffer.from("after") })),
      keys: ["a", "b", "c", "d"],
    }),
  ],
  [
    "a Put with a time to live",
    async ({ client }) => ({
      ...(await client.put({ resource, key: "d", ttl: { seconds: 600 } })),
      keys: ["a", "b", "c", "d"],
    }),
  ],
  [
    "a Put of an object that must not exist",
    async ({ client }) => ({
      ...(await client.put({ resource, key: "d", expected_mod_revision: 0 })),
      keys: ["a", "b", "c", "d"],
    }),
  ],
  [
    "a Delete",
    async ({ client }) => ({
      ...(await client.delete({ resource, key: "b" })),
      keys: ["a", "c"],
    }),
  ],
];

describe.each(markers)("A write before the restore has been noticed, %s", (marker) => {
  describe.each([
    ["below where the cache is", -3],
    ["grown past where the cache is", 3],
  ])("etcd %s", (_where, distance) => {
    test.each(writes)(
      "%s gets a history in which its revision is read",
      { timeout: 60_000 },
      async (_what, write) => {
        const world = await Restorable.open({ cluster, marker });
        const snapshot = await world.snapshot();
        await world.growTo(snapshot.revision + 5);
        const before = await world.level();
        const { history_id: old } = await world.client.list({ resource });
        await world.away();
        await world.restore(snapshot);
        await world.write(["a", "after"]);
        await world.growTo(before + distance);
        world.back();
        // The replica's next attempt is due when its clock advances, which it does not.
        const { revision, history_id, keys } = await onceConnected(() => write(world));
        if (marker === "with the marker key") expect(history_id).not.toBe(old);
        const { items } = await readAtLeast(world, revision, history_id);
        expect(items.map(({ key }) => key)).toEqual(keys);
        expect(world.cacher.stats()).toMatchObject({ relists: 1 });
      },
    );

    test("a refused write makes the cache detect it as well", { timeout: 60_000 }, async () => {
      const world = await Restorable.open({ cluster, marker });
      const snapshot = await world.snapshot();
      await world.growTo(snapshot.revision + 5);
      const before = await world.level();
      await world.away();
      await world.restore(snapshot);
      await world.write(["a", "after"]);
      await world.growTo(before + distance);
      world.back();
      const refused = onceConnected(() =>
        world.client.put({ resource, key: "a", expected_mod_revision: 0 }),
      );
      await expect(refused).rejects.toMatchObject({ reason: "REVISION_CONFLICT" });
      const { items } = await world.client.list({ resource, revision_match: "REVISION_MATCH_ANY" });
      expect(items.map(({ value }) => value?.toString())).toEqual(["after", "before", "before"]);
    });
  });
});
