import { describe, expect, test } from "vitest";
import { describeStoreContract } from "./backends.ts";
import { openWorld, resource, untilCached, untilWaiting } from "./replica.ts";
import { eventsUntil, nextSummary, summaryOf } from "./watch-summaries.ts";

const freshnessTimeoutMs = 3_000;

describeStoreContract("How a watch begins", (open) => {
  describe("neither after_revision nor send_initial_events", () => {
    test("at once a bookmark with C, the linearizable current revision; then everything after C", async () => {
      const world = await openWorld(open);
      for (let i = 0; i < 10; i++) {
        const current = await world.write(["a", `${i}`]);
        const watch = world.client.watch({ resource });
        expect(await nextSummary(watch)).toBe(`=${current}`);
        const next = await world.write(["b", `${i}`], ["c", `${i}`]);
        const type = i === 0 ? "ADDED" : "MODIFIED";
        expect(await nextSummary(watch)).toBe(`${type} b@${next}, ${type} c@${next}, =${next}`);
        watch.cancel();
      }
    });

    test("C is the store's revision also if the cache is behind, and no event at or below C is delivered", async () => {
      const world = await openWorld(open);
      world.upstream.hold();
      const current = await world.write(["a", "1"]);
      const watch = world.client.watch({ resource });
      expect(await nextSummary(watch)).toBe(`=${current}`);
      const next = await world.write(["a", "2"]);
      world.upstream.release();
      expect(await nextSummary(watch)).toBe(`MODIFIED a@${next}, =${next}`);
    });
  });

  describe("after_revision = N", () => {
    test("at once a bookmark with exactly N; then everything after N, from the event window", async () => {
      const world = await openWorld(open);
      const revisions: number[] = [];
      for (let i = 0; i < 8; i++) revisions.push(await world.write(["a", `${i}`]));
      const last = revisions.at(-1) ?? 0;
      for (const [i, after_revision] of revisions.entries()) {
        const watch = world.client.watch({ resource, after_revision });
        expect(await nextSummary(watch)).toBe(`=${after_revision}`);
        if (after_revision === last) continue;
        const rest = revisions.slice(i + 1);
        expect(await eventsUntil(watch, last)).toEqual(rest.map((r) => `MODIFIED a@${r}`));
        watch.cancel();
      }
    });

    test("N older than the event window: a bookmark with exactly N; then everything after N, from the store until the window begins", async () => {
      const eventWindow = { ageMs: 0, minEvents: 2, maxEvents: 2, maxBytes: 1_000_000 };
      const world = await openWorld(open, { cacher: { eventWindow } });
      const revisions: number[] = [];
      for (let i = 0; i < 8; i++) revisions.push(await world.write(["a", `${i}`]));
      const last = revisions.at(-1) ?? 0;
      await untilCached(world, last);
      for (const [i, after_revision] of revisions.entries()) {
        const watch = world.client.watch({ resource, after_revision });
        expect(await nextSummary(watch)).toBe(`=${after_revision}`);
        if (after_revision === last) continue;
        const rest = revisions.slice(i + 1);
        expect(await eventsUntil(watch, last)).toEqual(rest.map((r) => `MODIFIED a@${r}`));
        watch.cancel();
      }
    });

    test("N above the cache: a bookmark, then a wait without limit, and no event at or below N", async () => {
      const world = await openWorld(open);
      await untilCached(world, await world.write(["a", "0"]));
      world.upstream.hold();
      await world.write(["a", "1"]);
      const after_revision = await world.write(["a", "2"]);
      const watch = world.client.watch({ resource, after_revision });
      expect(await nextSummary(watch)).toBe(`=${after_revision}`);
      world.clock.advance(10 * freshnessTimeoutMs);
      const next = await world.write(["a", "3"]);
      world.upstream.release();
      expect(await nextSummary(watch)).toBe(`MODIFIED a@${next}, =${next}`);
    });
  });

  describe("send_initial_events", () => {
    test("at once an empty response without a revision, however long the state takes", async () => {
      const world = await openWorld(open);
      world.upstream.hold();
      await world.write(["a", "1"]);
      const watch = world.client.watch({ resource, send_initial_events: true });
      expect(await watch.next()).toMatchObject({ events: [], initial_events_end: false });
      await untilWaiting(world);
      world.upstream.release();
      expect(await nextSummary(watch)).toMatch(/^ADDED a@\d+, complete, =\d+$/);
    });

    test("the state at one revision R (linearizable) as ADDED in key order, initial_events_end with R, then everything after R", async () => {
      const world = await openWorld(open);
      const keys = ["a", "b", "n/\u{ffee}", "n/\u{1f388}", "z"];
      const first = await world.write(...keys.toReversed().map((key) => [key, "1"] as const));
      const changed = await world.write(["b", "2"], ["z", null]);
      const watch = world.client.watch({ resource, send_initial_events: true });
      expect(await nextSummary(watch)).toBe("");
      expect(await nextSummary(watch)).toBe(
        `ADDED a@${first}, ADDED b@${changed}, ADDED n/\u{ffee}@${first}, ` +
          `ADDED n/\u{1f388}@${first}, complete, =${changed}`,
      );
      const next = await world.write(["a", null]);
      expect(await nextSummary(watch)).toBe(`DELETED a@${next}, =${next}`);
    });

    test.each([
      ["a prefix", { prefix: "n/" }, ["n/1", "n/2"]],
      ["a key", { key: "n/1" }, ["n/1"]],
      ["a key that is not there", { key: "n" }, []],
    ])("of %s: only that", async (_what, scope, keys) => {
      const world = await openWorld(open);
      const at = await world.write(["m", ""], ["n/1", ""], ["n/2", ""], ["o", ""]);
      const watch = world.client.watch({ resource, send_initial_events: true, ...scope });
      await watch.next();
      const state = keys.map((key) => `ADDED ${key}@${at}`);
      expect(await nextSummary(watch)).toBe([...state, "complete", `=${at}`].join(", "));
    });

    test("if the cache does not reach the revision in 3 s: the state is read from the store, later events from the cache", async () => {
      const world = await openWorld(open);
      await untilCached(world, await world.write(["a", "1"]));
      world.upstream.hold();
      const deleted = await world.write(["a", null]);
      const added = await world.write(["n/1", ""], ["n/2", ""]);
      const watches = [
        world.client.watch({ resource, send_initial_events: true }),
        world.client.watch({ resource, send_initial_events: true, key: "n/1" }),
      ];
      for (const watch of watches) expect(await nextSummary(watch)).toBe("");
      await untilWaiting(world, 2);
      world.clock.advance(freshnessTimeoutMs);
      const states = await Promise.all(watches.map(nextSummary));
      expect(states).toEqual([
        `ADDED n/1@${added}, ADDED n/2@${added}, complete, =${added}`,
        `ADDED n/1@${added}, complete, =${added}`,
      ]);
      expect(deleted).toBeLessThan(added);
      const next = await world.write(["n/1", "2"]);
      world.upstream.release();
      const rest = await Promise.all(watches.map(nextSummary));
      expect(rest).toEqual(Array(2).fill(`MODIFIED n/1@${next}, =${next}`));
    });
  });

  describe("send_initial_events and after_revision = N", () => {
    test("the same, R at least N, without a linearizable read if the cache has reached N", async () => {
      const world = await openWorld(open);
      const revision = await world.write(["a", "1"]);
      await untilCached(world, revision);
      const asked = world.upstream.revisionsAsked;
      const request = { resource, send_initial_events: true, after_revision: revision };
      const watch = world.client.watch(request);
      expect(await nextSummary(watch)).toBe("");
      expect(await nextSummary(watch)).toBe(`ADDED a@${revision}, complete, =${revision}`);
      expect(world.upstream.revisionsAsked).toBe(asked);
    });

    test("N above the cache: waits for it", async () => {
      const world = await openWorld(open);
      world.upstream.hold();
      const after_revision = await world.write(["a", "1"]);
      const watch = world.client.watch({ resource, send_initial_events: true, after_revision });
      expect(await nextSummary(watch)).toBe("");
      await untilWaiting(world);
      world.upstream.release();
      const state = await watch.next();
      expect(summaryOf(state)).toMatch(/^ADDED a@\d+, complete/);
      expect(Number(state.revision)).toBeGreaterThanOrEqual(after_revision);
    });

    test("N above the cache for 3 s: REVISION_TOO_NEW", async () => {
      const world = await openWorld(open);
      const cached = await world.write(["a", "1"]);
      await untilCached(world, cached);
      world.upstream.hold();
      const after_revision = await world.write(["a", "2"]);
      const watch = world.client.watch({ resource, send_initial_events: true, after_revision });
      await watch.next();
      await untilWaiting(world);
      world.clock.advance(freshnessTimeoutMs);
      expect(await watch.ended).toMatchObject({
        reason: "REVISION_TOO_NEW",
        metadata: { requested_revision: `${after_revision}`, current_revision: `${cached}` },
      });
    });

    test("N = 0: any cached state", async () => {
      const world = await openWorld(open);
      const cached = await world.write(["a", "1"]);
      await untilCached(world, cached);
      world.upstream.hold();
      await world.write(["a", "2"]);
      const request = { resource, send_initial_events: true, after_revision: 0 };
      const watch = world.client.watch(request);
      expect(await nextSummary(watch)).toBe("");
      expect(await nextSummary(watch)).toBe(`ADDED a@${cached}, complete, =${cached}`);
    });
  });

  test.each([
    ["after_revision alone", false],
    ["with send_initial_events", true],
  ])(
    "N above etcd's own revision, %s: HISTORY_CHANGED, before anything is sent",
    async (_how, send_initial_events) => {
      const world = await openWorld(open);
      const after_revision = (await world.write(["a", "1"])) + 1;
      const { history_id } = await world.client.list({ resource });
      const watch = world.client.watch({ resource, send_initial_events, after_revision });
      const before: string[] = [];
      const reading = watch.until((response) => {
        before.push(summaryOf(response));
        return false;
      });
      await expect(reading).rejects.toBeDefined();
      expect(before).toEqual([]);
      expect(await watch.ended).toMatchObject({
        reason: "HISTORY_CHANGED",
        metadata: { history_id },
      });
    },
  );

  test("A resume point, on any replica: no gap and no repetition", async () => {
    const world = await openWorld(open);
    const replicas = [world, await world.another(), await world.another()];
    const written: string[] = [];
    let last = await world.write(["a", "0"]);
    let resume = String(last);
    const seen: string[] = [];
    for (let round = 0; round < 9; round++) {
      for (const value of ["x", "y", "z"]) {
        last = await world.write(["a", `${round}${value}`]);
        written.push(`MODIFIED a@${last}`);
      }
      const replica = replicas[round % replicas.length] ?? world;
      const watch = replica.client.watch({ resource, after_revision: resume });
      expect(await nextSummary(watch)).toBe(`=${resume}`);
      // Leaves after one response, wherever that has come to.
      const { events, revision } = await watch.next();
      seen.push(...events.map(({ object }) => `MODIFIED ${object?.key}@${object?.mod_revision}`));
      resume = revision ?? resume;
      watch.cancel();
    }
    const rest = world.client.watch({ resource, after_revision: resume });
    if (resume !== String(last)) {
      await rest.next();
      seen.push(...(await eventsUntil(rest, last)));
    }
    expect(seen).toEqual(written);
  });
});
