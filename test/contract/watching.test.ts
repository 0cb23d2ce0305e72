import { describe, expect, test } from "vitest";
import type { WatchRequest } from "../../src/wire/generated/watchfanout/v1/WatchRequest.ts";
import { describeStoreContract } from "./backends.ts";
import { openWorld, resource, thing, untilCached, type World } from "./replica.ts";
import { watchResponseSize } from "./response-size.ts";
import { eventsUntil, nextSummary, summaryOf } from "./watch-summaries.ts";

const minute = 60_000;
const mebibyte = 1024 ** 2;
const fourMebibytes = 4 * mebibyte;

describeStoreContract("Bookmarks", (open) => {
  /** A watch of what is never written, and how to move the store's revision. */
  async function idle(request: WatchRequest = {}, options: { deadline?: number } = {}) {
    const world = await openWorld(open);
    const watch = world.client.watch({ resource, prefix: "idle/", ...request }, options);
    await watch.next();
    const move = async (): Promise<number> => {
      const revision = await world.write(["elsewhere", ""]);
      await untilCached(world, revision);
      return revision;
    };
    return { ...world, watch, move };
  }

  test("come every bookmark_interval while nothing else moves the resume point", async () => {
    const { clock, move, watch } = await idle({ bookmark_interval: { seconds: 10 } });
    for (let i = 0; i < 3; i++) {
      await move();
      await clock.elapse(9_000);
      const revision = await move();
      await clock.elapse(1_500);
      // Had one come sooner, it would be of the revision before.
      expect(await nextSummary(watch)).toBe(`=${revision}`);
    }
  });

  test("come every 60 s without a bookmark_interval", async () => {
    const { clock, move, watch } = await idle();
    await move();
    await clock.elapse(minute - 1_000);
    const revision = await move();
    await clock.elapse(1_500);
    expect(await nextSummary(watch)).toBe(`=${revision}`);
  });

  test("come once 2 s before the call's deadline", async () => {
    const deadline = Date.now() + 10 * minute;
    const request = { bookmark_interval: { seconds: 3_600 } };
    const { clock, move, watch } = await idle(request, { deadline });
    await move();
    await clock.elapse(9 * minute);
    const revision = await move();
    await clock.elapse(minute - 1_000);
    expect(await nextSummary(watch)).toBe(`=${revision}`);
  });

  test("advance also if the resource is idle and the store is not", async () => {
    const { backend, clock, watch } = await idle({ bookmark_interval: { seconds: 1 } });
    const revision = await backend.write([{ type: "put", key: "elsewhere", value: Buffer.of() }]);
    // The first one that is due has the store asked; a later one can say it.
    let last = 0;
    while (last < revision) {
      const next = watch.next();
      await clock.elapse(1_500);
      const { events, revision: bookmark } = await next;
      expect(events).toEqual([]);
      last = Number(bookmark);
    }
    expect(last).toBe(revision);
  });

  test("eager_bookmarks: also whenever the cache learns of a newer revision", async () => {
    const { move, watch } = await idle({ eager_bookmarks: true });
    for (let i = 0; i < 3; i++) {
      const revision = await move();
      expect(await eventsUntil(watch, revision)).toEqual([]);
    }
  });

  test("are never above the last delivery of the stream", async () => {
    const world = await openWorld(open);
    const watch = world.client.watch({ resource, prefix: "a", eager_bookmarks: true });
    await watch.next();
    let last = 0;
    for (let i = 0; i < 50; i++) {
      last = await world.write([i % 3 === 0 ? "a" : "b", `${i}`]);
      if (i % 7 === 0) world.cacher.requestProgress();
    }
    last = await world.write(["a", "last"]);
    let delivered = 0;
    let events = 0;
    for (const response of await watch.until(({ revision }) => revision === `${last}`)) {
      for (const { object } of response.events) {
        expect(Number(object?.mod_revision)).toBeGreaterThan(delivered);
        expect(Number(object?.mod_revision)).toBeLessThanOrEqual(Number(response.revision));
        events++;
      }
      expect(Number(response.revision)).toBeGreaterThanOrEqual(delivered);
      delivered = Number(response.revision);
    }
    expect(events).toBe(18);
  });

  test("never come while an atomic batch is open", async () => {
    const world = await openWorld(open);
    for (let i = 0; i < 8; i++) await world.write([`large-${i}`, "x".repeat(mebibyte)]);
    const watch = world.client.watch({
      ...{ resource, send_initial_events: true, eager_bookmarks: true },
      bookmark_interval: { seconds: 1 },
    });
    let responses = 0;
    for (let ended = false; !ended; responses++) {
      const response = await watch.next();
      ended = response.initial_events_end;
      expect(response.revision === undefined).toBe(!ended);
      await untilCached(world, await world.write(["elsewhere", ""]));
      await world.clock.elapse(2_000);
    }
    expect(responses).toBeGreaterThan(3);
  });
});

describeStoreContract("A selector is applied to the object before and after:", (open) => {
  const inside = thing("web", "n1");
  const alsoInside = thing("db", "n1");
  const outside = thing("web", "n2");
  const absent = null;
  const rows: [string, string | null, string | null, string][] = [
    ["entering it by creation is ADDED", absent, inside, "ADDED"],
    ["entering it by change is ADDED", outside, inside, "ADDED"],
    ["staying is MODIFIED", inside, alsoInside, "MODIFIED"],
    ["leaving it is DELETED", inside, outside, "DELETED"],
    ["being deleted is DELETED", inside, absent, "DELETED"],
    ["neither, by creation: nothing, but the revision counts", absent, outside, ""],
    [
      "not matching before and after a change: nothing, but the revision counts",
      outside,
      "no JSON",
      "",
    ],
    ["neither, by deletion: nothing, but the revision counts", outside, absent, ""],
  ];

  describe.each([
    ["without an index", []],
    ["with an index on the field", ["spec.node"]],
  ])("%s", (_how, indexes) => {
    test.each(rows)("%s", async (_row, before, after, type) => {
      const world = await openWorld(open, { cacher: { indexes } });
      await world.write(["a", before ?? "short-lived"]);
      if (before === null) await world.write(["a", null]);
      const request = { resource, field_selector: "spec.node=n1", include_previous: true };
      const watch = world.client.watch({ ...request, eager_bookmarks: true });
      await watch.next();
      const revision = await world.write(["a", after]);
      const responses = await watch.until((response) => response.revision === `${revision}`);
      const [event, ...others] = responses.flatMap(({ events }) => events);
      expect(others).toEqual([]);
      if (type === "") return expect(event).toBeUndefined();
      expect(event).toMatchObject({
        type: `EVENT_TYPE_${type}`,
        object: {
          key: "a",
          // DELETED: the last content that matched, with the revision that removed it.
          value: Buffer.from((type === "DELETED" ? before : after) ?? ""),
          mod_revision: `${revision}`,
        },
      });
      // The object just before, even if it did not match.
      expect(event?.previous?.value.toString()).toBe(before ?? undefined);
    });
  });

  test("both selectors must match", async () => {
    const world = await openWorld(open);
    const selectors = { label_selector: "app=web", field_selector: "spec.node=n1" };
    const watch = world.client.watch({ resource, ...selectors });
    await watch.next();
    await world.write(["a", outside], ["b", alsoInside]);
    const revision = await world.write(["c", inside]);
    expect(await eventsUntil(watch, revision)).toEqual([`ADDED c@${revision}`]);
  });

  test("an absent field is the empty string, and a value that can't be decoded has no fields", async () => {
    const world = await openWorld(open);
    const revision = await world.write(["a", "{}"], ["b", "no JSON"], ["c", inside]);
    const { items } = await world.client.list({ resource, field_selector: "spec.node=" });
    expect(items.map(({ key, value }) => `${key} ${value}`)).toEqual(["a {}", "b no JSON"]);
    const request = { resource, field_selector: "spec.node=", after_revision: revision };
    const watch = world.client.watch(request);
    await watch.next();
    const next = await world.write(["b", inside], ["c", "no JSON"]);
    expect(await nextSummary(watch)).toBe(`DELETED b@${next}, ADDED c@${next}, =${next}`);
  });
});

describeStoreContract("Events", (open) => {
  test("without a selector an object that did not exist just before is ADDED", async () => {
    const world = await openWorld(open);
    const watch = world.client.watch({ resource });
    await watch.next();
    const types: string[] = [];
    for (const value of ["1", "2", null, "3"]) {
      await world.write(["a", value]);
      types.push((await watch.next()).events[0]?.type.slice(11) ?? "");
    }
    expect(types).toEqual(["ADDED", "MODIFIED", "DELETED", "ADDED"]);
  });

  test("DELETED: the last object, with the mod_revision that removed it", async () => {
    const world = await openWorld(open);
    await world.write(["a", "1"]);
    await world.write(["a", "2"]);
    const { object } = await world.client.get({ resource, key: "a" });
    const watch = world.client.watch({ resource });
    await watch.next();
    const revision = await world.write(["a", null]);
    const { events } = await watch.next();
    expect(events[0]?.object).toEqual({ ...object, mod_revision: `${revision}` });
    expect(object).toMatchObject({ version: "2", value: Buffer.from("2") });
  });

  test("previous: with include_previous the object just before, absent on initial events", async () => {
    const world = await openWorld(open);
    const first = await world.write(["a", "1"]);
    const request = { resource, send_initial_events: true, include_previous: true };
    const watch = world.client.watch(request);
    await watch.next();
    expect((await watch.next()).events[0]?.previous).toBeNull();
    const second = await world.write(["a", "2"]);
    const changed = await watch.next();
    expect(changed.events[0]).toMatchObject({
      object: { value: Buffer.from("2"), mod_revision: `${second}` },
      previous: { value: Buffer.from("1"), mod_revision: `${first}`, version: "1" },
    });
    await world.write(["a", null]);
    const gone = await watch.next();
    expect(gone.events[0]?.previous).toEqual(changed.events[0]?.object);
  });

  test("of one revision stay together, in the store's order", async () => {
    const world = await openWorld(open);
    const watch = world.client.watch({ resource });
    await watch.next();
    const first = await world.write(["c", ""], ["a", ""], ["b", ""]);
    expect(await nextSummary(watch)).toBe(
      `ADDED c@${first}, ADDED a@${first}, ADDED b@${first}, =${first}`,
    );
    const second = await world.write(["b", null], ["c", "2"], ["d", ""]);
    expect(await nextSummary(watch)).toBe(
      `DELETED b@${second}, MODIFIED c@${second}, ADDED d@${second}, =${second}`,
    );
  });

  test("of several revisions may share a response", async () => {
    const world = await openWorld(open);
    const start = await world.write(["a", "0"]);
    const revisions: number[] = [];
    for (let i = 0; i < 5; i++) revisions.push(await world.write(["a", "1"], ["b", "1"]));
    const last = revisions.at(-1) ?? 0;
    await untilCached(world, last);
    const watch = world.client.watch({ resource, after_revision: start });
    await watch.next();
    const { events, revision } = await watch.next();
    expect(revision).toBe(`${last}`);
    expect(events.map(({ object }) => object?.mod_revision)).toEqual(
      revisions.flatMap((at) => [`${at}`, `${at}`]),
    );
  });
});

describeStoreContract("Responses stay below 4 MiB:", (open) => {
  const keys = Array.from({ length: 9 }, (_, i) => `large-${i}`);

  async function fill(world: World): Promise<number> {
    let revision = 0;
    for (const key of keys) revision = await world.write([key, "x".repeat(mebibyte)]);
    await untilCached(world, revision);
    return revision;
  }

  test("an initial state", async () => {
    const world = await openWorld(open);
    const revision = await fill(world);
    const watch = world.client.watch({ resource, send_initial_events: true });
    const responses = await watch.until((response) => response.initial_events_end);
    expect(responses.flatMap(({ events }) => events.map((e) => e.object?.key))).toEqual(keys);
    expect(responses.length).toBeGreaterThan(2);
    for (const response of responses) {
      expect(watchResponseSize(response)).toBeLessThan(fourMebibytes);
    }
    expect(responses.map((response) => response.revision).filter(Boolean)).toEqual([`${revision}`]);
  });

  test("several revisions, each complete", async () => {
    const world = await openWorld(open);
    const start = await world.write(["a", ""]);
    const last = await fill(world);
    const watch = world.client.watch({ resource, after_revision: start });
    const responses = await watch.until((response) => response.revision === `${last}`);
    expect(responses.length).toBeGreaterThan(2);
    for (const response of responses) {
      expect(watchResponseSize(response)).toBeLessThan(fourMebibytes);
      expect(response.revision).toBeDefined();
    }
  });

  test("a revision that is too large is an atomic batch of several responses, of which the last has the revision", async () => {
    const world = await openWorld(open);
    const start = await fill(world);
    const watch = world.client.watch({ resource, after_revision: start });
    expect(await nextSummary(watch)).toBe(`=${start}`);
    const last = await world.write(...keys.map((key) => [key, null] as const));
    const responses = await watch.until(({ revision }) => revision !== undefined);
    expect(responses.length).toBeGreaterThan(2);
    for (const response of responses) {
      expect(watchResponseSize(response)).toBeLessThan(fourMebibytes);
    }
    expect(responses.slice(0, -1).map(({ revision }) => revision)).toEqual(
      responses.slice(0, -1).map(() => undefined),
    );
    expect(responses.flatMap(({ events }) => events.map((e) => e.object?.key))).toEqual(keys);
    expect(responses.at(-1)?.revision).toBe(`${last}`);
  });

  test("a page", async () => {
    const world = await openWorld(open);
    await fill(world);
    // The client takes no larger ones.
    const { items, next_page_token } = await world.client.list({ resource, page_size: 9 });
    expect(items.length).toBeLessThan(9);
    expect(next_page_token).not.toBe("");
  });
});

describeStoreContract("A stream", (open) => {
  test("is not ended by the event window before initial_events_end: events after R are retained", async () => {
    const eventWindow = { ageMs: 0, minEvents: 3, maxEvents: 3, maxBytes: 1_000_000 };
    const world = await openWorld(open, { cacher: { eventWindow } });
    for (let i = 0; i < 12; i++) await world.write([`large-${i}`, "x".repeat(mebibyte)]);
    const watch = world.client.watch({ resource, send_initial_events: true });
    expect(await nextSummary(watch)).toBe("");
    const state = [await watch.next()];
    const owed: string[] = [];
    let last = 0;
    for (let i = 0; i < 30; i++) {
      last = await world.write(["small", `${i}`]);
      owed.push(`${i === 0 ? "ADDED" : "MODIFIED"} small@${last}`);
    }
    await untilCached(world, last);
    await world.clock.elapse(1_000); // The window is looked after, and no longer has most of them.
    expect(world.cacher.stats().eventWindow.events).toBe(3);
    state.push(...(await watch.until((response) => response.initial_events_end)));
    expect(state.flatMap(({ events }) => events)).toHaveLength(12);
    expect(await eventsUntil(watch, last)).toEqual(owed);
  });

  test.each([
    ["80 %", 0, 40_000],
    ["100 %", 0.999, 49_990],
  ])(
    "ends as DRAINING at a jittered maximum age, after a last bookmark: at %s of it",
    async (_share, random, age) => {
      const limits = { maxStreamAgeMs: 50_000 };
      const world = await openWorld(open, { server: { limits, random: () => random } });
      const watch = world.client.watch({ resource, prefix: "idle/" });
      await watch.next();
      await world.clock.elapse(age - 2_000);
      // Had it ended sooner, this would not be known.
      const revision = await world.write(["elsewhere", ""]);
      await untilCached(world, revision);
      await world.clock.elapse(3_000);
      expect(await nextSummary(watch)).toBe(`=${revision}`);
      expect(await watch.ended).toMatchObject({
        reason: "DRAINING",
        metadata: { resume_revision: `${revision}` },
      });
    },
  );

  test("has history_id in its first response only", async () => {
    const world = await openWorld(open);
    const { history_id } = await world.client.list({ resource });
    expect(history_id).not.toBe("");
    for (const request of [{}, { after_revision: 1 }, { send_initial_events: true }]) {
      const watch = world.client.watch({ resource, ...request });
      const first = await watch.next();
      const revision = await world.write(["a", ""]);
      const rest = await watch.until((response) => response.revision === `${revision}`);
      watch.cancel();
      expect(first.history_id).toBe(history_id);
      expect(rest.map((response) => response.history_id).filter(Boolean)).toEqual([]);
      expect(summaryOf(first)).not.toContain("@");
    }
  });
});
