import { expect, test } from "vitest";
import type { ListRequest } from "../../src/wire/generated/watchfanout/v1/ListRequest.ts";
import type { Order } from "../../src/wire/generated/watchfanout/v1/Order.ts";
import type { StoredObject__Output } from "../../src/wire/generated/watchfanout/v1/StoredObject.ts";
import type { WatchRequest } from "../../src/wire/generated/watchfanout/v1/WatchRequest.ts";
import fc, { costlyRuns } from "../property.ts";
import type { TestClient } from "../server/test-client.ts";
import { describeContract } from "./backends.ts";
import { relayStorage, startRelay, startUncached } from "./fronts.ts";
import { keysOf, pagesOf } from "./paging.ts";
import { openWorld, resource, thing, untilCached, untilWaiting, type World } from "./replica.ts";
import { eventsOf, firstOf, initialEventsOf } from "./watch-summaries.ts";

const keys = [
  ...["a", "a/", "a/1", "a/2", "a/20", "a0", "b/1", "b/2", "c"],
  ...["\u00e9/1", "\uffff", "\u{1f600}/1"],
];
const ends = ["", "\0", "a/1", "a/15", "a0", "b/", "b/2", "b/2\0", "\ue000", "\u{10ffff}", "zz"];
const orders = [
  ...(["KEY_ASCENDING", "KEY_DESCENDING"] as const),
  ...(["MOD_REVISION_ASCENDING", "MOD_REVISION_DESCENDING"] as const),
  ...(["CREATE_REVISION_ASCENDING", "CREATE_REVISION_DESCENDING"] as const),
];

function isAtLeast(key: string, other: string): boolean {
  return Buffer.compare(Buffer.from(key), Buffer.from(other)) >= 0;
}

function isInRange(key: string, { start_key: from = "", end_key: to = "" }: ListRequest): boolean {
  return isAtLeast(key, from) && (to === "" || !isAtLeast(key, to));
}

/** Sorts as the request's order says. */
function sorted(objects: readonly StoredObject__Output[], order: Order): StoredObject__Output[] {
  const [, field = "", direction] = /^ORDER_(.+)_(\w+)$/.exec(String(order)) ?? [];
  const sign = direction === "DESCENDING" ? -1 : 1;
  const place = ({ mod_revision, create_revision }: StoredObject__Output): number =>
    Number(field === "MOD_REVISION" ? mod_revision : create_revision);
  const byKey = (one: StoredObject__Output, other: StoredObject__Output): number =>
    Buffer.compare(Buffer.from(one.key), Buffer.from(other.key));
  return objects.toSorted((one, other) =>
    field === "KEY"
      ? sign * byKey(one, other)
      : sign * (place(one) - place(other)) || byKey(one, other),
  );
}

/** Transactions of one to three keys each, some of which are deleted. */
async function fill(world: World, random: () => number, count = 40): Promise<number> {
  let revision = 0;
  for (let i = 0; i < count; i++) revision = await world.write(...entriesOf(random, i));
  return revision;
}

function entriesOf(random: () => number, name: number) {
  const chosen = new Set<string>();
  for (let i = 0; i < 1 + (name % 3); i++)
    chosen.add(keys[Math.floor(random() * keys.length)] ?? "");
  return [...chosen].map((key): [string, string | null] => [
    key,
    random() < 0.25 ? null : thing(random() < 0.5 ? "web" : "db", `n${name}`),
  ]);
}

/** The same numbers for the same seed. */
function numbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fff_ffff;
    return state / 0x8000_0000;
  };
}

const half = { ranges: [{ first: "0", last: `${2n ** 63n}` }] };

const list = fc.record({
  prefix: fc.constantFrom("", "", "", "", "", "a", "a/", "b/", "\u00e9"),
  start_key: fc.oneof(fc.constant(""), fc.constantFrom(...ends)),
  end_key: fc.oneof(fc.constant(""), fc.constantFrom(...ends)),
  order: fc.constantFrom(...orders).map((order) => `ORDER_${order}` as const),
  page_size: fc.constantFrom(0, 1, 2, 3, 5),
  label_selector: fc.constantFrom("", "", "app=web"),
  shard: fc.constantFrom(null, null, half),
  shown: fc.constantFrom(
    {},
    {},
    { view: "VIEW_KEYS" as const },
    { view: "VIEW_ATTRIBUTES" as const },
    { read_mask: { paths: ["spec"] } },
  ),
  at: fc.constantFrom("LINEARIZABLE", "ANY", "NOT_OLDER_THAN", "EXACT"),
  back: fc.nat(12),
});

describeContract("A List of a range, in an order", (open) => {
  async function checkLists(
    world: World,
    client: TestClient,
    seed: number,
    cases: number = 400,
  ): Promise<void> {
    const random = numbers(seed);
    let last = await fill(world, random);
    await untilCached(world, last);
    let lists = 0;
    await fc.assert(
      fc.asyncProperty(list, async ({ at, back, shown, ...given }) => {
        const isPast = at === "EXACT" || at === "NOT_OLDER_THAN";
        const revision_match = `REVISION_MATCH_${at}` as ListRequest["revision_match"];
        const request: ListRequest = {
          ...{ ...given, ...shown, resource, revision_match },
          ...(isPast ? { revision: last - (at === "EXACT" ? back : 0) } : {}),
        } as ListRequest;
        const pages = await pagesOf(client, request, async () => {
          last = await world.write(...entriesOf(random, lists++));
        });
        await untilCached(world, last);
        const revision = pages[0]?.revision ?? "0";
        const { start_key, end_key, order, page_size, ...whole } = request;
        const exact = { revision_match: "REVISION_MATCH_EXACT", revision } as const;
        const all = await world.client.list({ ...whole, ...exact });
        const inRange = all.items.filter(({ key }) => isInRange(key, request));
        const expected = sorted(inRange, order as Order);
        const items = pages.flatMap((page) => page.items);
        expect(items.map(({ key }) => key)).toEqual(expected.map(({ key }) => key));
        expect(items).toEqual(expected);
        let seen = 0;
        for (const { items: some, remaining_item_count: rest, ...page } of pages) {
          expect(page.revision).toBe(revision);
          seen += some.length;
          if (given.page_size > 0) expect(some.length).toBeLessThanOrEqual(given.page_size);
          if (rest !== undefined) expect(Number(rest)).toBe(expected.length - seen);
        }
        const counted = { view: "VIEW_COUNT", read_mask: null } as const;
        const count = await client.list({ ...request, ...exact, ...counted });
        expect([count.items, count.remaining_item_count]).toEqual([[], `${expected.length}`]);
        if (isPast && at === "EXACT") expect(Number(revision)).toBe(Number(request.revision));
      }),
      { numRuns: costlyRuns(cases) },
    );
    expect(lists).toBeGreaterThan(costlyRuns(cases) / 5);
  }

  test("has the objects of the whole list at its revision that are in the range, sorted", async () => {
    const world = await openWorld(open);
    await checkLists(world, world.client, 1);
  }, 240_000);

  test("has the same without a cache", async () => {
    const world = await openWorld(open);
    await checkLists(world, await startUncached(world.backend), 2);
  }, 240_000);

  test("has the same from a relay", async () => {
    const world = await openWorld(open);
    const relay = await startRelay(world);
    await checkLists(world, relay.client, 3, 300);
    await checkLists(world, await startUncached(world.backend, relayStorage(world)), 6, 120);
  }, 240_000);

  test("has the same from the store, if the cache does not reach the revision in 3 s", async () => {
    const world = await openWorld(open);
    await untilCached(world, await fill(world, numbers(4)));
    world.upstream.hold();
    await world.write(["a/1", thing("web")], ["b/2", thing("web")]);
    const late = async (request: ListRequest) => {
      const response = world.client.list({
        resource,
        start_key: "a/1",
        end_key: "b/2\0",
        ...request,
      });
      await untilWaiting(world);
      world.clock.advance(3_000);
      return (await response).items;
    };
    const all = await late({});
    expect(all.length).toBeGreaterThan(2);
    for (const name of orders) {
      const order = `ORDER_${name}` as const;
      expect(await late({ order, page_size: 2 })).toEqual(sorted(all, order).slice(0, 2));
    }
  });

  test("start_key is included, end_key is not, and neither has to be an object", async () => {
    const world = await openWorld(open);
    await untilCached(world, await world.write(["a", "1"], ["b", "1"], ["c", "1"]));
    const listed = async (request: object) =>
      keysOf(await world.client.list({ resource, ...request }));
    expect(await listed({ start_key: "a", end_key: "c" })).toEqual(["a", "b"]);
    expect(await listed({ start_key: "aa" })).toEqual(["b", "c"]);
    expect(await listed({ end_key: "bb" })).toEqual(["a", "b"]);
    expect(await listed({ prefix: "b", start_key: "a" })).toEqual(["b"]);
    for (const none of [
      { start_key: "c", end_key: "a" },
      { start_key: "b", end_key: "b" },
    ])
      expect(await listed(none)).toEqual([]);
  });

  test("has objects with the same revision in key order, also descending", async () => {
    const world = await openWorld(open);
    await world.write(["b", "1"], ["a", "1"]);
    await untilCached(world, await world.write(["c", "1"], ["d", "1"]));
    for (const order of ["MOD_REVISION", "CREATE_REVISION"] as const) {
      for (const page_size of [0, 1, 3]) {
        const listed = async (direction: "ASCENDING" | "DESCENDING") =>
          (
            await pagesOf(world.client, {
              ...{ resource, page_size, order: `ORDER_${order}_${direction}` as const },
            })
          ).flatMap(keysOf);
        expect(await listed("ASCENDING")).toEqual(["a", "b", "c", "d"]);
        expect(await listed("DESCENDING")).toEqual(["c", "d", "a", "b"]);
      }
    }
  });

  test("has a page token of its own range and order", async () => {
    const world = await openWorld(open);
    await untilCached(world, await world.write(...keys.map((key) => [key, "1"] as const)));
    const request = { resource, page_size: 2, start_key: "a/", end_key: "c" };
    const ordered = { ...request, order: "ORDER_MOD_REVISION_DESCENDING" } as const;
    const { next_page_token: page_token } = await world.client.list(ordered);
    const refusal = { reason: "INVALID_REQUEST", field: "page_token" };
    for (const other of [
      ...[{ start_key: "a" }, { end_key: "" }, { start_key: "", end_key: "" }],
      ...(["ORDER_UNSPECIFIED", "ORDER_MOD_REVISION_ASCENDING"] as const).map((order) => ({
        order,
      })),
    ])
      await expect(world.client.list({ ...ordered, ...other, page_token })).rejects.toMatchObject(
        refusal,
      );
    expect(keysOf(await world.client.list({ ...ordered, page_token }))).toHaveLength(2);
  });

  test("of an unknown order is refused", async () => {
    const { client } = await openWorld(open);
    await expect(client.list({ resource, order: 77 as never })).rejects.toMatchObject({
      ...{ reason: "INVALID_REQUEST", field: "order" },
    });
  });

  test("without a cache is LIST_TOO_LARGE above 100,000 objects, but not in key order", async () => {
    const backend = await open();
    const client = await startUncached(backend);
    for (let i = 0; i < 800; i++) {
      await backend.write(
        Array.from({ length: 125 }, (_, j) => ({
          ...{ type: "put" as const, key: `k-${i}-${j}` },
          value: Buffer.of(),
        })),
      );
    }
    const newest = { resource, order: "ORDER_MOD_REVISION_DESCENDING", page_size: 2 } as const;
    expect(keysOf(await client.list(newest))).toEqual(["k-799-0", "k-799-1"]);
    await backend.write([{ type: "put", key: "z", value: Buffer.of() }]);
    for (const order of orders.slice(1)) {
      await expect(client.list({ ...newest, order: `ORDER_${order}` })).rejects.toMatchObject({
        ...{ reason: "LIST_TOO_LARGE", message: expect.stringContaining("Narrow the range") },
      });
    }
    expect(keysOf(await client.list({ ...newest, start_key: "k-5" }))).toEqual(["z", "k-799-0"]);
    expect(keysOf(await client.list({ resource, page_size: 1, start_key: "l" }))).toEqual(["z"]);
  });
});

describeContract("A Watch of a range", (open) => {
  const ranges = ends.flatMap((start_key) =>
    ["", ...ends]
      .filter((end_key) => end_key === "" || !isAtLeast(start_key, end_key))
      .map((end_key) => ({ start_key, end_key })),
  );

  async function checkWatches(world: World, client: TestClient, seed: number): Promise<void> {
    const random = numbers(seed);
    await untilCached(world, await fill(world, random));
    const chosen = ranges.filter((_, i) => i % 7 === seed % 7);
    const asked: WatchRequest = { resource, send_initial_events: true, eager_bookmarks: true };
    for (const selected of [{}, { label_selector: "app=web" }, { shard: half }]) {
      const all = client.watch({ ...asked, ...selected, include_previous: true });
      const whole = await initialEventsOf(all);
      const watches = chosen.map((range) =>
        client.watch({ ...asked, ...selected, include_previous: true, range }),
      );
      const stream = client.subscribe();
      const [range = { start_key: "", end_key: "" }] = chosen;
      stream.add(1, { ...asked, ...selected, range });
      const initial = await Promise.all(watches.map(initialEventsOf));
      const last = await fill(world, random, 15);
      const changes = await eventsOf(all, last);
      for (const [i, watch] of watches.entries()) {
        const isIn = ({ object }: (typeof whole)[number]): boolean =>
          isInRange(object?.key ?? "", chosen[i] ?? {});
        expect(initial[i]).toEqual(whole.filter(isIn));
        expect(await eventsOf(watch, last)).toEqual(changes.filter(isIn));
        if (i > 0) continue;
        const words = [...whole, ...changes]
          .filter(isIn)
          .map(({ type, object }) => `${type.slice(11)} ${object?.key}@${object?.mod_revision}`);
        expect(await stream.eventsOf(1, last)).toEqual(words);
      }
      for (const watch of [all, ...watches]) watch.cancel();
      stream.cancel();
    }
  }

  test("has the events of the whole watch whose keys are in the range, and so has one of Subscribe", async () => {
    const world = await openWorld(open);
    await checkWatches(world, world.client, 1);
  });

  test("has the same from a relay", async () => {
    const world = await openWorld(open);
    const relay = await startRelay(world);
    await checkWatches(world, relay.client, 2);
  });

  test("begins with the state of the store, if the cache does not reach the revision in 3 s", async () => {
    const world = await openWorld(open);
    await fill(world, numbers(5));
    world.upstream.hold();
    const revision = await world.write(...keys.map((key) => [key, "new"] as const));
    const range = { start_key: "a/1", end_key: "b/2" };
    const watch = world.client.watch({ resource, range, send_initial_events: true });
    await untilWaiting(world);
    world.clock.advance(3_000);
    const initial = await initialEventsOf(watch);
    expect(initial.map(({ object }) => [object?.key, object?.mod_revision])).toEqual(
      ["a/1", "a/2", "a/20", "a0", "b/1"].map((key) => [key, `${revision}`]),
    );
  });

  test.each([
    { start_key: "b", end_key: "a" },
    { start_key: "b", end_key: "b" },
  ])("without keys, %o, is refused", async (range) => {
    const { client } = await openWorld(open);
    await expect(firstOf(client.watch({ resource, range }))).rejects.toMatchObject({
      ...{ reason: "INVALID_REQUEST", field: "range" },
    });
  });
});
