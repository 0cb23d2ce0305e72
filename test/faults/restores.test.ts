import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { hasReason, WatchFanoutError } from "../../src/base/errors.ts";
import type { WatchStream } from "../../src/storage/storage.ts";
import { isThorough } from "../thorough.ts";
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
  test.each(written)("ends every stream, and is detected by %s", async (_what, entries, keys) => {
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
  });

  test("is not missed by reads while nothing arrives from etcd", async () => {
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

  test("distinguishes two deletions of one key at one revision by what else was written", async () => {
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

describe("A watch that resumes from before the event window", () => {
  /** A replica whose window has two events, of an etcd that then has others, and the revision after which they differ. */
  async function open(marker: Marker, writes: number) {
    const eventWindow = { minEvents: 2, maxEvents: 2 };
    const world = await Restorable.open({ cluster, marker, eventWindow });
    const first = await world.write(["a", "both"]);
    const snapshot = await world.snapshot();
    for (let i = 0; i < writes; i++) await world.write(["a", "old".padEnd(64 * 1024)]);
    const before = await world.level();
    const { cacher } = world;
    const resume = () =>
      cacher.watch({ scope: { prefix: "" }, afterRevision: first - 1, withPrevious: true });
    const restore = async (): Promise<void> => {
      await world.away();
      await world.restore(snapshot);
      for (let i = 0; i < 10; i++) await world.write(["a", `new ${i}`]);
      await world.growTo(before + 5);
      world.back();
    };
    return { world, resume, restore };
  }

  /** The values that it delivers until it ends, and the reason of that. */
  async function readAll(stream: WatchStream): Promise<readonly [string[], string]> {
    const values: string[] = [];
    for (;;) {
      for (let batch = stream.read(); batch !== undefined; batch = stream.read())
        values.push(...batch.events.map(({ object }) => Buffer.from(object.value).toString()));
      const { ended } = stream;
      if (ended instanceof WatchFanoutError) return [values, ended.reason];
      await delay(2);
    }
  }

  test.each<Marker>(["with the marker key", "without the marker key"])(
    "gets nothing of an etcd that was restored, before the replica has found that out, %s",
    async (marker) => {
      const { resume, restore } = await open(marker, 10);
      await restore();
      // The replica's next attempt is due when its clock advances, which it does not. gRPC connects in real time.
      let [values, reason] = await readAll(resume());
      while (reason === "UPSTREAM_UNAVAILABLE" && values.length === 0)
        [values, reason] = await readAll(resume());
      expect([values, reason]).toEqual([[], "HISTORY_CHANGED"]);
    },
  );

  test("gets nothing of it while it reads, and ends", async () => {
    const { world, resume, restore } = await open("with the marker key", 80);
    const stream = resume();
    while (stream.read() === undefined) await delay(2);
    await restore();
    const read = readAll(stream);
    await world.goOn(() => stream.ended !== undefined);
    const [values, reason] = await read;
    expect(values.filter((value) => value.startsWith("new"))).toEqual([]);
    expect(["HISTORY_CHANGED", "UPSTREAM_UNAVAILABLE"]).toContain(reason);
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
    // Without the key, `npm test` has a Put alone.
    test.each(isThorough || marker === "with the marker key" ? writes : writes.slice(0, 1))(
      "%s gets a history in which its revision is read",
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

    test("a refused write makes the cache detect it as well", async () => {
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
