import { describe, expect, test } from "vitest";
import { describeStoreContract, type EtcdBackend, openEtcd } from "./backends.ts";
import { openWorld, resource, untilCached, type World } from "./replica.ts";
import { eventsUntil, nextSummary } from "./watch-summaries.ts";

const absent = 0;

const etcdOf = describeStoreContract("A write", (open) => {
  const value = Buffer.from("new");

  /** `a` stands at the revision, `b` does not exist. */
  async function opened(): Promise<World & { readonly revision: number }> {
    const world = await openWorld(open);
    return { ...world, revision: await world.write(["a", "old"]) };
  }

  describe("expected_mod_revision of a Put", () => {
    test.each([
      ["absent: write regardless, of what is there", "a", undefined, true],
      ["absent: write regardless, of what is not", "b", undefined, true],
      ["0: must not exist, and does not", "b", () => 0, true],
      ["0: must not exist, but does", "a", () => 0, false],
      ["N: stands at N, and does", "a", (n: number) => n, true],
      ["N: stands at N, but does at another", "a", (n: number) => n - 1, false],
      ["N: stands at N, but does not exist (metadata 0)", "b", (n: number) => n, false],
    ] as const)("%s", async (_row, key, expectation, holds) => {
      const { client, revision } = await opened();
      const expected_mod_revision = expectation?.(revision);
      const call = client.put({
        ...{ resource, key, value },
        ...(expected_mod_revision === undefined ? {} : { expected_mod_revision }),
      });
      if (holds) {
        const written = await call;
        expect(Number(written.revision)).toBe(revision + 1);
        expect((await client.get({ resource, key })).object).toEqual(written.object);
        return;
      }
      const mod_revision = String(key === "a" ? revision : absent);
      await expect(call).rejects.toMatchObject({
        reason: "REVISION_CONFLICT",
        metadata: { mod_revision },
      });
      expect((await client.list({ resource })).revision).toBe(`${revision}`);
    });
  });

  describe("expected_mod_revision of a Delete", () => {
    test.each([
      ["absent: delete regardless", "a", undefined, ""],
      ["absent, of an absent key: OBJECT_NOT_FOUND", "b", undefined, "OBJECT_NOT_FOUND"],
      ["N: stands at N, and does", "a", (n: number) => n, ""],
      ["N: stands at N, but does at another", "a", (n: number) => n - 1, "REVISION_CONFLICT"],
      ["N, of an absent key: OBJECT_NOT_FOUND", "b", (n: number) => n, "OBJECT_NOT_FOUND"],
    ] as const)("%s", async (_row, key, expectation, reason) => {
      const { client, revision } = await opened();
      const { stale_for: _, ...before } = await client.get({ resource, key: "a" });
      const expected_mod_revision = expectation?.(revision);
      const call = client.delete({
        ...{ resource, key },
        ...(expected_mod_revision === undefined ? {} : { expected_mod_revision }),
      });
      if (reason === "") {
        // The deleted object, unchanged; at the revision of the deletion.
        const { object, history_id } = before;
        expect(await call).toEqual({
          object,
          history_id,
          conflict: false,
          revision: `${revision + 1}`,
        });
        return;
      }
      await expect(call).rejects.toMatchObject({ reason });
      expect((await client.list({ resource })).revision).toBe(`${revision}`);
    });
  });

  test("is visible to every read that begins after it, on every replica", async () => {
    const world = await openWorld(open);
    const replica = await world.another();
    for (let i = 0; i < 10; i++) {
      const { object } = await world.client.put({ resource, key: "a", value: Buffer.from(`${i}`) });
      expect((await replica.client.get({ resource, key: "a" })).object).toEqual(object);
      expect((await replica.client.list({ resource })).items).toEqual([object]);
    }
  });

  test("under a lease with an id of 63 bits", async () => {
    const { client } = await openWorld(open);
    const first = await client.put({ resource, key: "a", ttl: { seconds: 600 } });
    const lease = first.object?.lease ?? "";
    expect(BigInt(lease)).toBeGreaterThan(0n);
    const second = await client.put({ resource, key: "b", lease });
    expect(second.object?.lease).toBe(lease);
    expect((await client.get({ resource, key: "b" })).object?.lease).toBe(lease);
    // A put without one leaves it.
    expect((await client.put({ resource, key: "b" })).object?.lease).toBe("0");
  });

  test("with a ttl: a new Put replaces its lease", async () => {
    const { client } = await openWorld(open);
    const leases = new Set<string | undefined>();
    for (let i = 0; i < 3; i++) {
      const { object } = await client.put({ resource, key: "a", ttl: { seconds: 600 } });
      leases.add(object?.lease);
    }
    expect(leases.size).toBe(3);
  });
});

describe("A ttl, on etcd", () => {
  interface EtcdLeases {
    readonly leases?: readonly { readonly ID: string }[];
  }

  async function opened(): Promise<World & { readonly backend: EtcdBackend }> {
    const backend = await openEtcd(await etcdOf());
    return { ...(await openWorld(async () => backend)), backend };
  }

  test.each([
    ["whole seconds are as they are", { seconds: 100 }, 100],
    ["parts of a second are rounded up", { seconds: 100, nanos: 1_000_000 }, 101],
  ])("%s", async (_row, ttl, grantedTTL) => {
    const { backend, client } = await opened();
    const { object } = await client.put({ resource, key: "a", ttl });
    const granted = await backend.source.call("lease/timetolive", { ID: object?.lease });
    expect(granted).toMatchObject({ grantedTTL: `${grantedTTL}` });
  });

  test("a failed Put revokes it", async () => {
    const { backend, client, write } = await opened();
    await write(["a", ""]);
    const leases = (await backend.source.call("lease/leases", {})) as EtcdLeases;
    const put = { resource, key: "a", ttl: { seconds: 100 }, expected_mod_revision: 0 };
    await expect(client.put(put)).rejects.toMatchObject({ reason: "REVISION_CONFLICT" });
    expect(await backend.source.call("lease/leases", {})).toMatchObject({
      leases: leases.leases ?? [],
    });
  });

  test("an object whose lease expires is DELETED, with its last content", async () => {
    const { backend, client } = await opened();
    const put = { resource, key: "a", value: Buffer.from("1"), ttl: { seconds: 100 } };
    const { object } = await client.put(put);
    const watch = client.watch({ resource });
    await watch.next();
    await backend.source.call("lease/revoke", { ID: object?.lease });
    const { events, revision } = await watch.next();
    expect(events).toEqual([
      {
        type: "EVENT_TYPE_DELETED",
        object: { ...object, mod_revision: revision },
        previous: null,
      },
    ]);
  });
});

describe("A key in etcd that is not valid UTF-8, or is the prefix itself", () => {
  test("is not part of the resource, and its revision still counts", async () => {
    const backend = await openEtcd(await etcdOf());
    const world = await openWorld(async () => backend);
    await world.write(["a", ""]);
    const watch = world.client.watch({ resource, eager_bookmarks: true });
    await watch.next();
    await backend.source.putBytes(Buffer.concat([Buffer.from(backend.prefix), Buffer.of(0xff)]));
    const revision = await backend.source.putBytes(Buffer.from(backend.prefix));
    expect(await eventsUntil(watch, revision)).toEqual([]);
    const list = await world.client.list({ resource });
    expect(list.items.map(({ key }) => key)).toEqual(["a"]);
    expect(Number(list.revision)).toBeGreaterThanOrEqual(revision);
    const fresh = await world.another();
    expect((await fresh.client.list({ resource })).items).toHaveLength(1);
  });
});

describe("Keys on the wire, on etcd", () => {
  test("are relative to the prefix, and keys outside it are not part of the resource", async () => {
    const backend = await openEtcd(await etcdOf());
    const world = await openWorld(async () => backend);
    const { prefix, source } = backend;
    const watch = world.client.watch({ resource });
    await watch.next();
    await source.putBytes(Buffer.from(prefix.slice(0, -1)));
    await source.putBytes(Buffer.from(`${prefix.slice(0, -1)}0`));
    const revision = await source.putBytes(Buffer.from(`${prefix}ns-1/pod-7`));
    expect(await nextSummary(watch)).toBe(`ADDED ns-1/pod-7@${revision}, =${revision}`);
    await untilCached(world, revision);
    const { items } = await world.client.list({ resource });
    expect(items.map(({ key }) => key)).toEqual(["ns-1/pod-7"]);
  });
});
