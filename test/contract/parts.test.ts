import { expect, test } from "vitest";
import { listWatchService } from "../../src/wire/services.ts";
import { describeContract } from "./backends.ts";
import { pagesOf } from "./paging.ts";
import { openWorld, resource, thing, untilCached, untilWaiting, type World } from "./replica.ts";
import { eventsOf, firstOf, initialEventsOf } from "./watch-summaries.ts";

const whole = 2n ** 64n;

/** Part `index` of `count` parts of all hashes. */
function shard(index: number, count: number) {
  const begin = (part: number): bigint => (BigInt(part) * whole) / BigInt(count);
  return { ranges: [{ first: `${begin(index)}`, last: `${begin(index + 1) - 1n}` }] };
}

/** Keys `k-0` and so on with a label, an object with another one among them. */
async function fill(world: World, count: number): Promise<number> {
  await world.write(["k-other", thing("other")]);
  let revision = 0;
  for (let i = 0; i < count; i++) revision = await world.write([`k-${i}`, thing("web", `n${i}`)]);
  await untilCached(world, revision);
  return revision;
}

describeContract("Keys only", (open) => {
  test("VIEW_KEYS of a List: the same objects without their values, also if a selector selects them", async () => {
    const world = await openWorld(open);
    await fill(world, 5);
    for (const selected of [
      {},
      { label_selector: "app=web" },
      { field_selector: "spec.node=n3" },
    ]) {
      const full = await world.client.list({ resource, ...selected });
      const keys = await world.client.list({ resource, ...selected, view: "VIEW_KEYS" });
      expect(full.items.every(({ value }) => value.length > 0)).toBe(true);
      expect(keys).toEqual({
        ...full,
        items: full.items.map((item) => ({ ...item, value: Buffer.of() })),
      });
    }
  });

  test("VIEW_KEYS of a Watch: the same events without values, before and after", async () => {
    const world = await openWorld(open);
    const request = {
      ...{ resource, send_initial_events: true, include_previous: true },
      label_selector: "app=web",
    };
    await fill(world, 2);
    const [full, keys] = [
      world.client.watch(request),
      world.client.watch({ ...request, view: "VIEW_KEYS" }),
    ];
    const expected = await initialEventsOf(full);
    const seen = await initialEventsOf(keys);
    await world.write(["k-0", thing("web", "changed")], ["k-2", thing("web")]);
    await world.write(["k-1", thing("other")]);
    const last = await world.write(["k-0", null]);
    expected.push(...(await eventsOf(full, last)));
    seen.push(...(await eventsOf(keys, last)));
    expect(expected.length).toBe(6);
    const bare = <T extends object>(object: T | null) =>
      object && { ...object, value: Buffer.of() };
    expect(seen).toEqual(
      expected.map((event) => ({
        ...event,
        object: bare(event.object),
        previous: bare(event.previous),
      })),
    );
  });

  test("VIEW_KEYS from the store, if the cache does not reach the revision in 3 s", async () => {
    const world = await openWorld(open);
    await fill(world, 2);
    world.upstream.hold();
    const revision = await world.write(["k-new", thing("web")]);
    for (const view of ["VIEW_KEYS", "VIEW_COUNT"] as const) {
      const response = world.client.list({ resource, view, label_selector: "app=web" });
      await untilWaiting(world);
      world.clock.advance(3_000);
      const { items, remaining_item_count: count, revision: at } = await response;
      expect(at).toBe(`${revision}`);
      if (view === "VIEW_COUNT") expect([items.length, count]).toEqual([0, "3"]);
      else
        expect(items.map(({ key, value }) => `${key}=${value}`)).toEqual([
          "k-0=",
          "k-1=",
          "k-new=",
        ]);
    }
  });

  test("VIEW_COUNT: the number of objects without the objects, of all, of a prefix, of a selector, and at a revision", async () => {
    const world = await openWorld(open);
    const revision = await fill(world, 12);
    await untilCached(world, await world.write(["k-1", null]));
    const counted = async (request: object): Promise<[number, string | undefined, string]> => {
      const counting = { resource, view: "VIEW_COUNT", page_size: 1, ...request } as const;
      const {
        items,
        remaining_item_count: count,
        next_page_token,
      } = await world.client.list(counting);
      return [items.length, count, next_page_token];
    };
    expect(await counted({})).toEqual([0, "12", ""]);
    expect(await counted({ prefix: "k-1" })).toEqual([0, "2", ""]);
    expect(await counted({ prefix: "x" })).toEqual([0, "0", ""]);
    expect(await counted({ label_selector: "app=web" })).toEqual([0, "11", ""]);
    const exact = { revision_match: "REVISION_MATCH_EXACT", revision };
    expect(await counted(exact)).toEqual([0, "13", ""]);
    expect(await counted({ ...exact, label_selector: "app=web" })).toEqual([0, "12", ""]);
  });

  test("VIEW_COUNT of a Watch, and a view that the server does not have, are refused", async () => {
    const { client } = await openWorld(open);
    const refusal = { reason: "INVALID_REQUEST", field: "view" };
    await expect(firstOf(client.watch({ resource, view: "VIEW_COUNT" }))).rejects.toMatchObject(
      refusal,
    );
    await expect(firstOf(client.watch({ resource, view: 77 as never }))).rejects.toMatchObject(
      refusal,
    );
    await expect(client.list({ resource, view: 77 as never })).rejects.toMatchObject(refusal);
  });
});

describeContract("Types of events", (open) => {
  test("event_types: only these are sent, and resume points also say what was left out", async () => {
    const world = await openWorld(open);
    const deleted = world.client.watch({ resource, event_types: ["EVENT_TYPE_DELETED"] });
    const first = await deleted.next();
    expect(first.events).toEqual([]);
    await world.write(["a", thing("web")]);
    await world.write(["a", thing("db")]);
    const gone = await world.write(["a", null], ["b", thing("web")]);
    const events = await eventsOf(deleted, gone);
    expect(events.map(({ type, object }) => `${type} ${object?.key}`)).toEqual([
      "EVENT_TYPE_DELETED a",
    ]);
  });

  test("event_types are relative to the selectors", async () => {
    const world = await openWorld(open);
    const types = ["EVENT_TYPE_ADDED", "EVENT_TYPE_DELETED"] as const;
    const request = { resource, label_selector: "app=web", event_types: [...types] };
    const watch = world.client.watch(request);
    await watch.next();
    await world.write(["a", thing("db")]);
    await world.write(["a", thing("web")]);
    await world.write(["a", thing("web", "again")]);
    const left = await world.write(["a", thing("db")]);
    const events = await eventsOf(watch, left);
    expect(
      events.map(({ type, object }) => `${type}@${Number(object?.mod_revision) - left}`),
    ).toEqual(["EVENT_TYPE_ADDED@-2", "EVENT_TYPE_DELETED@0"]);
  });

  test("event_types without ADDED can't begin with the state", async () => {
    const { client } = await openWorld(open);
    const refusal = { reason: "INVALID_REQUEST", field: "event_types" };
    const modified = { resource, event_types: ["EVENT_TYPE_MODIFIED" as const] };
    const watch = client.watch({ ...modified, send_initial_events: true });
    await expect(firstOf(watch)).rejects.toMatchObject(refusal);
    for (const type of [0, 9] as never[])
      await expect(firstOf(client.watch({ resource, event_types: [type] }))).rejects.toMatchObject(
        refusal,
      );
  });
});

describeContract("Shards", (open) => {
  test.each([1, 2, 7])(
    "in %i parts have each key once, in Lists, counts and Watches",
    async (count) => {
      const world = await openWorld(open);
      const parts = Array.from({ length: count }, (_, i) => shard(i, count));
      await fill(world, 40);
      const all = await world.client.list({ resource });
      const listed: string[][] = [];
      for (const part of parts) {
        const pages = await pagesOf(world.client, { resource, shard: part, page_size: 3 });
        listed.push(pages.flatMap(({ items }) => items.map(({ key }) => key)));
        const { remaining_item_count } = await world.client.list({
          resource,
          shard: part,
          view: "VIEW_COUNT",
        });
        expect(remaining_item_count).toBe(String(listed.at(-1)?.length));
      }
      expect(listed.flat().toSorted()).toEqual(all.items.map(({ key }) => key).toSorted());
      if (count === 2) for (const keys of listed) expect(keys.length).toBeGreaterThan(10);
      const asked = { resource, send_initial_events: true, eager_bookmarks: true };
      const watches = parts.map((part) => world.client.watch({ ...asked, shard: part }));
      for (const [i, watch] of watches.entries()) {
        const initial = (await initialEventsOf(watch)).map(({ object }) => object?.key);
        expect(initial).toEqual(listed[i]);
      }
      await world.write(...Array.from({ length: 40 }, (_, i) => [`k-${i}`, "new"] as const));
      const last = await world.write(["k-7", null], ["k-new", "new"]);
      for (const [i, watch] of watches.entries()) {
        const events = await eventsOf(watch, last);
        const changed = events.map(({ object }) => object?.key ?? "");
        const expected = listed[i]?.filter((key) => key !== "k-other") ?? [];
        expect(changed.filter((key) => key !== "k-new" && key !== "k-7").toSorted()).toEqual(
          expected.filter((key) => key !== "k-7").toSorted(),
        );
        expect(changed.filter((key) => key === "k-7").length).toBe(
          expected.includes("k-7") ? 2 : 0,
        );
      }
    },
  );

  test("go by XXH64 with seed 0 of the key's UTF-8 bytes", async () => {
    const world = await openWorld(open);
    // The hashes are those of the reference implementation.
    const hashes = { a: 0xd24ec4f1a98c6e5bn, "ns-1/pod-7": 0x29f1ea39dc4dc821n };
    for (const [key, hash] of Object.entries(hashes)) {
      await untilCached(world, await world.write([key, ""]));
      const at = (first: bigint, last: bigint) =>
        world.client.list({
          resource,
          shard: { ranges: [{ first: `${first}`, last: `${last}` }] },
        });
      expect((await at(hash, hash)).items.map((item) => item.key)).toEqual([key]);
      expect((await at(0n, hash - 1n)).items.map((item) => item.key)).not.toContain(key);
      expect((await at(hash + 1n, whole - 1n)).items.map((item) => item.key)).not.toContain(key);
    }
  });

  test.each([
    ["no ranges", []],
    ["a range that ends before it begins", [[2, 1]]],
    [
      "ranges that overlap",
      [
        [1, 5],
        [5, 9],
      ],
    ],
    ["more than 1,024 ranges", Array.from({ length: 1_025 }, (_, i) => [2 * i, 2 * i])],
  ])("with %s are refused", async (_what, ranges) => {
    const { client } = await openWorld(open);
    const part = { ranges: ranges.map(([first = 0, last = 0]) => ({ first, last })) };
    const refusal = { reason: "INVALID_REQUEST", field: expect.stringMatching(/^shard/) };
    await expect(client.list({ resource, shard: part })).rejects.toMatchObject(refusal);
    await expect(firstOf(client.watch({ resource, shard: part }))).rejects.toMatchObject(refusal);
  });
});

describeContract("A page token", (open) => {
  test("belongs to its view and its shard", async () => {
    const world = await openWorld(open);
    await fill(world, 5);
    const { next_page_token: page_token } = await world.client.list({ resource, page_size: 2 });
    const refusal = { reason: "INVALID_REQUEST", field: "page_token" };
    for (const other of [{ view: "VIEW_KEYS" as const }, { shard: shard(0, 2) }])
      await expect(world.client.list({ resource, page_token, ...other })).rejects.toMatchObject(
        refusal,
      );
    const full = { resource, page_token, view: "VIEW_FULL" as const };
    expect((await world.client.list(full)).items).toHaveLength(4);
  });
});

describeContract("Resources", (open) => {
  test("names fields, the oldest revision and views", async () => {
    const world = await openWorld(open, { cacher: { indexes: ["phase"] } });
    await fill(world, 1);
    const { resources } = await world.client.unary(listWatchService.Resources, {});
    expect(resources).toMatchObject([
      {
        fields: ["phase", "spec.node"],
        indexed_fields: ["phase"],
        oldest_revision: String(world.cacher.oldestRevision),
        views: ["VIEW_FULL", "VIEW_KEYS", "VIEW_COUNT", "VIEW_ATTRIBUTES"],
      },
    ]);
    expect(world.cacher.oldestRevision).toBeGreaterThan(0);
  });
});
