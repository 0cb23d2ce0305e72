import { describe, expect, test } from "vitest";
import type { GetRequest } from "../../src/wire/generated/watchfanout/v1/GetRequest.ts";
import type { TestClient } from "../server/test-client.ts";
import { describeStoreContract } from "./backends.ts";
import { keysOf, pagesOf } from "./paging.ts";
import { openWorld, resource, startReplica, thing, untilCached, untilWaiting } from "./replica.ts";

const any = "REVISION_MATCH_ANY";
const notOlderThan = "REVISION_MATCH_NOT_OLDER_THAN";
const exact = "REVISION_MATCH_EXACT";
const freshnessTimeoutMs = 3_000;

/** The result of any read of `a`: its value (empty: absent), and the revision. */
type Read = (
  client: TestClient,
  where?: Pick<GetRequest, "revision_match" | "revision">,
) => Promise<[value: string, revision: number]>;

const reads: readonly [string, Read][] = [
  [
    "Get",
    async (client, where) => {
      const { object, revision } = await client.get({ resource, key: "a", ...where });
      return [object?.value.toString() ?? "", Number(revision)];
    },
  ],
  [
    "List",
    async (client, where) => {
      const { items, revision } = await client.list({ resource, prefix: "a", ...where });
      return [items[0]?.value.toString() ?? "", Number(revision)];
    },
  ],
];

describeStoreContract("A read", (open) => {
  describe.each(reads)("%s", (_name, read) => {
    test.each(["REVISION_MATCH_UNSPECIFIED", "REVISION_MATCH_LINEARIZABLE"] as const)(
      "%s: at least as new as any write that completed before the call began",
      async (revision_match) => {
        const world = await openWorld(open);
        for (let i = 0; i < 20; i++) {
          const revision = await world.write(["a", `${i}`]);
          expect(await read(world.client, { revision_match })).toEqual([`${i}`, revision]);
        }
      },
    );

    test("LINEARIZABLE if the cache does not reach the revision in 3 s: answered by the store", async () => {
      const world = await openWorld(open);
      world.upstream.hold();
      const revision = await world.write(["a", "new"]);
      const response = read(world.client);
      await untilWaiting(world);
      world.clock.advance(freshnessTimeoutMs);
      expect(await response).toEqual(["new", revision]);
    });

    test("ANY: what the cache holds now, without asking the store", async () => {
      const world = await openWorld(open);
      const before = await world.write(["a", "old"]);
      await untilCached(world, before);
      world.upstream.hold();
      await world.write(["a", "new"]);
      const asked = world.upstream.revisionsAsked;
      expect(await read(world.client, { revision_match: any })).toEqual(["old", before]);
      expect(world.upstream.revisionsAsked).toBe(asked);
    });

    test("NOT_OLDER_THAN: at least that revision, waiting until the cache reaches it", async () => {
      const world = await openWorld(open);
      await world.write(["a", "old"]);
      world.upstream.hold();
      const revision = await world.write(["a", "new"]);
      const response = read(world.client, { revision_match: notOlderThan, revision });
      await untilWaiting(world);
      world.upstream.release();
      expect(await response).toEqual(["new", revision]);
      const [value, at] = await read(world.client, { revision_match: notOlderThan, revision: 1 });
      expect(value).toBe("new");
      expect(at).toBeGreaterThanOrEqual(revision);
    });

    test("EXACT: the state at that revision, for every past revision", async () => {
      const world = await openWorld(open);
      const states: [number, string][] = [];
      for (let i = 0; i < 10; i++) {
        states.push([await world.write(["a", `${i}`]), `${i}`]);
        states.push([await world.write([`b-${i}`, ""]), `${i}`]);
      }
      for (const [revision, value] of states) {
        const where = { revision_match: exact, revision } as const;
        expect(await read(world.client, where)).toEqual([value, revision]);
      }
    });

    test("EXACT beyond the event window: from the store, until that is compacted", async () => {
      const world = await openWorld(open);
      const first = await world.write(["a", "1"]);
      const second = await world.write(["a", "2"]);
      const third = await world.write(["a", "3"]);
      const eventWindow = { ageMs: 0, minEvents: 1, maxEvents: 1, maxBytes: 1 };
      const replica = await world.another({ cacher: { eventWindow } });
      const at = (revision: number) => read(replica.client, { revision_match: exact, revision });
      expect(await at(first)).toEqual(["1", first]);
      await world.backend.compact(second);
      expect(await at(second)).toEqual(["2", second]);
      expect(await at(third)).toEqual(["3", third]);
      await expect(at(first)).rejects.toMatchObject({
        reason: "REVISION_TOO_OLD",
        metadata: { requested_revision: `${first}` },
      });
    });

    test.each([notOlderThan, exact] as const)(
      "%s of a revision in etcd that the cache has not reached: waits 3 s, then REVISION_TOO_NEW",
      async (revision_match) => {
        const world = await openWorld(open);
        const cached = await world.write(["a", "old"]);
        await untilCached(world, cached);
        world.upstream.hold();
        const revision = await world.write(["a", "new"]);
        const where = { revision_match, revision };
        const released = read(world.client, where);
        await untilWaiting(world);
        world.upstream.release();
        expect(await released).toEqual(["new", revision]);
        world.upstream.hold();
        const newer = await world.write(["a", "newer"]);
        const response = expect(
          read(world.client, { revision_match, revision: newer }),
        ).rejects.toMatchObject({
          reason: "REVISION_TOO_NEW",
          metadata: { requested_revision: `${newer}`, current_revision: `${revision}` },
        });
        await untilWaiting(world);
        world.clock.advance(freshnessTimeoutMs);
        await response;
      },
    );

    test.each([notOlderThan, exact] as const)(
      "%s above etcd's own revision: HISTORY_CHANGED, at once",
      async (revision_match) => {
        const world = await openWorld(open);
        const revision = (await world.write(["a", "1"])) + 1;
        const { history_id } = await world.client.list({ resource });
        await expect(read(world.client, { revision_match, revision })).rejects.toMatchObject({
          reason: "HISTORY_CHANGED",
          metadata: { history_id },
        });
      },
    );

    test("waits for the cache by requesting progress from the store, if a key of another resource moved the revision", async () => {
      const world = await openWorld(open);
      const before = await world.write(["a", "1"]);
      await untilCached(world, before);
      const after = await world.write(["z", "1"]);
      const [value, revision] = await read(world.client, {
        revision_match: notOlderThan,
        revision: after,
      });
      expect([value, revision]).toEqual(["1", after]);
    });
  });
});

describeStoreContract("Pages of a List", (open) => {
  const keys = ["a", "a/1", "a/2", "b", "n/\u{ffee}", "n/\u{1f388}", "z"];

  test.each([1, 2, 3, 7, 0])(
    "of size %i: each key once, in the order of UTF-8",
    async (page_size) => {
      const world = await openWorld(open);
      await world.write(...keys.toReversed().map((key) => [key, ""] as const));
      const pages = await pagesOf(world.client, { resource, page_size });
      expect(pages.flatMap(keysOf)).toEqual(keys);
      for (const page of pages.slice(0, -1)) expect(page.items).toHaveLength(page_size);
    },
  );

  test.each([
    ["", keys],
    ["a", ["a", "a/1", "a/2"]],
    ["a/", ["a/1", "a/2"]],
    ["n/\u{ffee}", ["n/\u{ffee}"]],
    ["nothing", []],
  ])("prefix %j: of the key; empty: all", async (prefix, expected) => {
    const world = await openWorld(open);
    await world.write(...keys.map((key) => [key, ""] as const));
    expect((await pagesOf(world.client, { resource, prefix })).flatMap(keysOf)).toEqual(expected);
  });

  test("revision: the same on every page, also with writes in between", async () => {
    const world = await openWorld(open);
    const revision = await world.write(...keys.map((key) => [key, "before"] as const));
    const pages = await pagesOf(world.client, { resource, page_size: 2 }, async () => {
      await untilCached(world, await world.write(["z", "after"], ["a/2", null], ["b0", "after"]));
    });
    expect(pages.map((page) => page.revision)).toEqual(Array(4).fill(`${revision}`));
    const items = pages.flatMap((page) => page.items);
    expect(items.map(({ key, value }) => `${key} ${value}`)).toEqual(
      keys.map((key) => `${key} before`),
    );
  });

  test("remaining_item_count: number of items that follow; absent with a selector", async () => {
    const world = await openWorld(open);
    await world.write(...keys.map((key) => [key, thing("web")] as const));
    const plain = await pagesOf(world.client, { resource, page_size: 3 });
    expect(plain.map((page) => page.remaining_item_count)).toEqual(["4", "1", "0"]);
    const request = { resource, page_size: 3, label_selector: "app" };
    const [first] = await pagesOf(world.client, request);
    expect(first?.remaining_item_count).toBeUndefined();
  });

  test("page_token: any replica serves it, from the store if its cache can't", async () => {
    const world = await openWorld(open);
    const revision = await world.write(...keys.map((key) => [key, "before"] as const));
    const { next_page_token: page_token } = await world.client.list({ resource, page_size: 3 });
    await world.write(["z", "after"], ["n/new", "after"]);
    const eventWindow = { ageMs: 0, minEvents: 1, maxEvents: 1, maxBytes: 1 };
    const replica = await world.another({ cacher: { eventWindow } });
    const page = await replica.client.list({ resource, page_token });
    expect(page.revision).toBe(`${revision}`);
    expect(page.items.map(({ key, value }) => `${key} ${value}`)).toEqual(
      keys.slice(3).map((key) => `${key} before`),
    );
    // A replica that is still behind that revision also reads from the store.
    const late = await world.another();
    late.upstream.hold();
    const newer = await world.write(["a", "newest"]);
    const token = (await world.client.list({ resource, page_size: 3 })).next_page_token;
    const rest = await late.client.list({ resource, page_token: token });
    expect(rest.revision).toBe(`${newer}`);
    expect(rest.items.map(({ key }) => key)).not.toContain("a");
  });

  test("page_token of a compacted revision: REVISION_TOO_OLD if no cache has it", async () => {
    const world = await openWorld(open);
    await world.write(...keys.map((key) => [key, ""] as const));
    const { next_page_token: page_token } = await world.client.list({ resource, page_size: 3 });
    await world.backend.compact(await world.write(["z", "after"]));
    const replica = await startReplica(world.backend);
    await expect(replica.client.list({ resource, page_token })).rejects.toMatchObject({
      reason: "REVISION_TOO_OLD",
    });
  });

  test("page_token: contains its history", async () => {
    const world = await openWorld(open);
    await world.write(...keys.map((key) => [key, ""] as const));
    const { next_page_token, history_id } = await world.client.list({ resource, page_size: 3 });
    expect(Buffer.from(next_page_token, "base64url").includes(history_id)).toBe(true);
    // For a token of another history see test/server/services/histories.test.ts.
    const page = await world.client.list({ resource, page_token: next_page_token });
    expect(page.history_id).toBe(history_id);
  });

  test("key order: the same from the cache and from the store", async () => {
    const world = await openWorld(open);
    await world.write(...keys.map((key) => [key, ""] as const));
    expect((await pagesOf(world.client, { resource })).flatMap(keysOf)).toEqual(keys);
    world.upstream.hold();
    await world.write(["z", "1"]);
    const response = world.client.list({ resource });
    await untilWaiting(world);
    world.clock.advance(freshnessTimeoutMs);
    expect(keysOf(await response)).toEqual(keys);
  });
});
