import { expect, test } from "vitest";
import type { Event__Output } from "../../src/wire/generated/watchfanout/v1/Event.ts";
import type { HistoryRequest } from "../../src/wire/generated/watchfanout/v1/HistoryRequest.ts";
import type { HistoryResponse__Output } from "../../src/wire/generated/watchfanout/v1/HistoryResponse.ts";
import { put } from "../server/putting.ts";
import { serveThings } from "../server/served.ts";
import type { TestClient } from "../server/test-client.ts";
import { describeStoreContract } from "./backends.ts";
import { openWorld, resource, untilCached, type World } from "./replica.ts";
import { eventsOf } from "./watch-summaries.ts";

/** All pages of a history. `between` is called after each but the last. */
async function pagesOf(
  client: TestClient,
  request: HistoryRequest,
  between: () => Promise<unknown> = async () => {},
): Promise<HistoryResponse__Output[]> {
  const pages: HistoryResponse__Output[] = [];
  for (let page_token = ""; ; ) {
    const page = await client.history({ resource, ...request, page_token });
    pages.push(page);
    page_token = page.next_page_token;
    if (page_token === "") return pages;
    await between();
  }
}

/** Such as `7 MODIFIED two`. */
function saidOf({ events }: Pick<HistoryResponse__Output, "events">): string[] {
  return events.map(({ type, object }) => {
    return `${object?.mod_revision} ${type.replace("EVENT_TYPE_", "")} ${object?.value}`;
  });
}

/** Creates `k`, changes it, deletes it and creates it again, with another key between. Returns the revisions. */
async function fill(world: World): Promise<number[]> {
  const values = ["one", "two", null, "three", "four"];
  const revisions: number[] = [];
  for (const value of values) {
    revisions.push(await world.write(["k", value]));
    await world.write(["k/other", "x"]);
  }
  return revisions;
}

const bare = ({ type, object }: Event__Output) => ({ type, object, previous: null });

describeStoreContract("The history of an object", (open) => {
  test("has what a watch would send, the newest first, with deletions and re-creations", async () => {
    const world = await openWorld(open);
    const { revision: start } = await world.client.list({ resource });
    const watch = world.client.watch({ resource, key: "k", after_revision: start });
    const revisions = await fill(world);
    const seen = await eventsOf(watch, revisions.at(-1) ?? 0);
    const page = await world.client.history({ resource, key: "k" });
    expect(page.events).toEqual(seen.map(bare).reverse());
    const [one, two, deleted, three, four] = revisions;
    expect(saidOf(page)).toEqual([
      `${four} MODIFIED four`,
      `${three} ADDED three`,
      `${deleted} DELETED two`,
      `${two} MODIFIED two`,
      `${one} ADDED one`,
    ]);
  });

  test("includes every write that completed before the call, also if the cache has not", async () => {
    const world = await openWorld(open);
    await world.write(["k", "one"]);
    world.upstream.hold();
    const revision = await world.write(["k", "two"]);
    const page = await world.client.history({ resource, key: "k" });
    expect(saidOf(page)[0]).toBe(`${revision} MODIFIED two`);
    expect(Number(page.revision)).toBeGreaterThanOrEqual(revision);
  });

  test("has one revision on all pages, after which a watch continues it", async () => {
    const world = await openWorld(open);
    await fill(world);
    const whole = await world.client.history({ resource, key: "k" });
    for (const page_size of [1, 2, 3]) {
      const revision = Number(whole.revision);
      let later = revision;
      const pages = await pagesOf(world.client, { key: "k", page_size, revision }, async () => {
        later = await world.write(["k", "later"]);
      });
      expect(new Set(pages.map((page) => page.revision))).toEqual(new Set([whole.revision]));
      expect(pages.flatMap((page) => page.events)).toEqual(whole.events);
      expect(pages.every(({ events }) => events.length <= page_size)).toBe(true);
      await untilCached(world, later);
      const after_revision = whole.revision;
      const watch = world.client.watch({ resource, key: "k", after_revision });
      const { events } = await world.client.history({ resource, key: "k", revision: later });
      const since = events.filter(({ object }) => Number(object?.mod_revision) > revision);
      expect((await eventsOf(watch, later)).map(bare)).toEqual(since.reverse());
      watch.cancel();
    }
  });

  test("ends with the creation, or where etcd was compacted", async () => {
    const world = await openWorld(open);
    const [one = 0, two = 0, deleted = 0, three = 0] = await fill(world);
    const ofAll = async (key: string) => {
      const pages = await pagesOf(world.client, { key, page_size: 2 });
      for (const page of pages.slice(0, -1)) {
        expect(page).toMatchObject({ end: "HISTORY_END_UNSPECIFIED", oldest_revision: "0" });
      }
      const { end, oldest_revision } = pages.at(-1) as HistoryResponse__Output;
      return [pages.flatMap(saidOf).length, end, Number(oldest_revision)];
    };
    for (const [key, count] of [
      ["k", 5],
      ["never", 0],
    ] as const) {
      const [changes, end, oldest] = await ofAll(key);
      expect([changes, end]).toEqual([count, "HISTORY_END_CREATION"]);
      expect(oldest).toBeGreaterThan(0);
      expect(oldest).toBeLessThan(one);
    }
    await world.backend.compact(two);
    expect(await ofAll("k")).toEqual([4, "HISTORY_END_COMPACTION", two]);
    // What a compaction at a deletion leaves does not have it.
    await world.backend.compact(deleted);
    expect(await ofAll("k")).toEqual([2, "HISTORY_END_CREATION", deleted]);
    await world.backend.compact(three + 1);
    expect(await ofAll("k")).toEqual([2, "HISTORY_END_CREATION", three + 1]);
  });

  test("that is compacted between two pages ends with COMPACTION", async () => {
    const world = await openWorld(open);
    const revisions = await fill(world);
    const last = revisions.at(-1) ?? 0;
    const pages = await pagesOf(world.client, { key: "k", page_size: 1 }, async () => {
      await world.backend.compact(last).catch(() => {});
    });
    expect(pages.map(saidOf)).toEqual([[`${last} MODIFIED four`], []]);
    expect(pages.at(-1)).toMatchObject({
      ...{ end: "HISTORY_END_COMPACTION", oldest_revision: `${last}` },
      revision: pages[0]?.revision,
    });
  });

  test("up to a compacted revision is REVISION_TOO_OLD, above etcd's own HISTORY_CHANGED", async () => {
    const world = await openWorld(open);
    const [one = 0, two = 0] = await fill(world);
    await world.backend.compact(two);
    await expect(world.client.history({ resource, key: "k", revision: one })).rejects.toMatchObject(
      {
        reason: "REVISION_TOO_OLD",
        metadata: { requested_revision: `${one}`, oldest_revision: `${two}` },
      },
    );
    await expect(
      world.client.history({ resource, key: "k", revision: 1_000_000 }),
    ).rejects.toMatchObject({ reason: "HISTORY_CHANGED" });
  });

  test("of a store that was restored between two pages is HISTORY_CHANGED", async () => {
    const world = await openWorld(open);
    await fill(world);
    const { next_page_token: page_token, history_id } = await world.client.history({
      ...{ resource, key: "k", page_size: 1 },
    });
    const renewed = await world.cacher.renewHistory(history_id);
    world.upstream.cut();
    await expect
      .poll(() => {
        world.clock.advance(2_000);
        return world.cacher.currentHistoryId;
      })
      .toBe(renewed);
    for (const request of [{ page_token }, { history_id }]) {
      const next = world.client.history({ resource, key: "k", page_size: 1, ...request });
      await expect(next).rejects.toMatchObject({
        ...{ reason: "HISTORY_CHANGED", metadata: { history_id: renewed } },
      });
    }
  });

  test("in another form or with another page's token is refused", async () => {
    const world = await openWorld(open);
    await fill(world);
    const { next_page_token } = await world.client.history({ resource, key: "k", page_size: 1 });
    const listed = await world.client.list({ resource, page_size: 1 });
    for (const [field, request] of [
      ["key", { key: "" }],
      ["page_size", { page_size: -1 }],
      ["revision", { revision: -1 }],
      ["view", { view: "VIEW_COUNT" }],
      ["page_token", { page_token: next_page_token, key: "k/other" }],
      ["page_token", { page_token: next_page_token, revision: 5 }],
      ["page_token", { page_token: next_page_token, view: "VIEW_KEYS" }],
      ["page_token", { page_token: listed.next_page_token }],
      ["page_token", { page_token: "junk" }],
    ] as const) {
      const refused = world.client.history({ resource, key: "k", ...request });
      await expect(refused).rejects.toMatchObject({ reason: "INVALID_REQUEST", field });
    }
  });

  test("with VIEW_KEYS has the same changes without values", async () => {
    const world = await openWorld(open);
    await fill(world);
    const full = await world.client.history({ resource, key: "k" });
    const keys = await world.client.history({ resource, key: "k", view: "VIEW_KEYS" });
    expect(keys).toEqual({
      ...full,
      events: full.events.map(({ object, ...event }) => ({
        ...event,
        object: object && { ...object, value: Buffer.of() },
      })),
    });
  });

  test("has pages below 4 MiB, of at least one change", async () => {
    const world = await openWorld(open);
    const large = "x".repeat(1_300_000);
    for (let i = 0; i < 7; i++) await world.write(["k", `${i}${large}`]);
    const pages = await pagesOf(world.client, { key: "k" });
    // A slow store makes pages shorter.
    for (const { events } of pages) expect([1, 2, 3]).toContain(events.length);
    const first = pages.flatMap(({ events }) => events.map(({ object }) => object?.value[0]));
    expect(Buffer.from(first as number[]).toString()).toBe("6543210");
  });
});

test("Pages of a history have at most 1,000 changes.", async () => {
  const { client, storage } = await serveThings();
  for (let i = 0; i < 1_001; i++) await put(storage, "k", `${i}`);
  for (const page_size of [0, 5_000]) {
    const { events, next_page_token } = await client.history({
      ...{ resource, key: "k", page_size },
    });
    expect([events.length, next_page_token === ""]).toEqual([1_000, false]);
  }
});
