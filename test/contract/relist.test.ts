import { setImmediate as nextTurn } from "node:timers/promises";
import { expect, test } from "vitest";
import { describeContract } from "./backends.ts";
import { openWorld, resource, thing, untilCached, type World } from "./replica.ts";
import { firstOf, nextSummary, summaryOf } from "./watch-summaries.ts";

/*
 * Upstream history lost: what came while the cache was cut off from the store has been compacted when it is
 * back.
 */

const delivery = "DELIVERY_LATEST_STATE";
type Entry = readonly [key: string, value: string | null];

/**
 * Makes the writes, compacts them, and has the cache find out that it missed them. Resolves, once it has
 * listed again, to their revisions.
 */
async function loseHistory(world: World, ...writes: readonly Entry[][]): Promise<number[]> {
  const { upstream, cacher, backend, clock } = world;
  const { relists } = cacher.stats();
  upstream.hold();
  const revisions: number[] = [];
  for (const entries of writes) revisions.push(await world.write(...entries));
  await backend.compact(revisions.at(-1) ?? 0);
  upstream.cut();
  // It pauses before it connects again, and asks the store in the store's own time: so the clock's passes
  // slowly, before bookmarks fall due.
  for (let turn = 0; cacher.stats().revision < (revisions.at(-1) ?? 0); turn++) {
    if (turn % 50 === 0) clock.advance(1);
    await nextTurn();
  }
  expect(cacher.stats().relists).toBe(relists + 1);
  return revisions;
}

describeContract("After a relist at R", (open) => {
  test("a LATEST_STATE stream gets the difference as one atomic batch: changes by mod_revision, then deletions, with R", async () => {
    const world = await openWorld(open);
    const before = await world.write(["a", "1"], ["b", "1"], ["c", "1"], ["d", "1"]);
    await untilCached(world, before);
    const watch = world.client.watch({ resource, delivery, include_previous: true });
    await watch.next();
    const [first = 0, second = 0, , , last = 0] = await loseHistory(
      world,
      [["d", "2"]],
      [["b", "2"]],
      [
        ["e", "1"],
        ["c", null],
      ],
      [["e", null]],
      [
        ["d", "3"],
        ["f", "1"],
        ["a", null],
      ],
    );
    const difference = await watch.next();
    expect(first).toBeLessThan(second);
    expect(summaryOf(difference)).toBe(
      `MODIFIED b@${second}, MODIFIED d@${last}, ADDED f@${last}, DELETED a@${last}, ` +
        `DELETED c@${last}, =${last}`,
    );
    const previous = difference.events.map((event) => event.previous?.mod_revision);
    expect(previous).toEqual(
      [before, before, undefined, before, before].map((at) => at?.toString()),
    );
    const next = await world.write(["g", "1"]);
    expect(await nextSummary(watch)).toBe(`ADDED g@${next}, =${next}`);
  });

  test("it gets the difference as its selector sees it", async () => {
    const world = await openWorld(open);
    await untilCached(world, await world.write(["a", thing("web")], ["b", thing("db")]));
    const watch = world.client.watch({ resource, delivery, label_selector: "app=web" });
    await watch.next();
    const [, last] = await loseHistory(world, [["a", thing("db")]], [["b", thing("web")]]);
    expect(await nextSummary(watch)).toMatch(
      new RegExp(`^DELETED a@\\d+, ADDED b@${last}, =${last}$`),
    );
  });

  test("it gets R also if nothing that it selects has changed", async () => {
    const world = await openWorld(open);
    const watch = world.client.watch({ resource, delivery, prefix: "elsewhere/" });
    await watch.next();
    const [, last] = await loseHistory(world, [["a", "1"]], [["b", "1"]]);
    expect(await nextSummary(watch)).toBe(`=${last}`);
  });

  test("an EVERY_EVENT stream ends with HISTORY_LOST and the current revision", async () => {
    const world = await openWorld(open);
    const watch = world.client.watch({ resource });
    await watch.next();
    const [, last] = await loseHistory(world, [["a", "1"]], [["b", "1"]]);
    expect(await watch.ended).toMatchObject({
      reason: "HISTORY_LOST",
      metadata: { current_revision: String(last) },
    });
  });

  test.each(["DELIVERY_EVERY_EVENT", "DELIVERY_LATEST_STATE"] as const)(
    "resume points below R are then REVISION_TOO_OLD: %s",
    async (asked) => {
      const world = await openWorld(open);
      const before = await world.write(["a", "1"]);
      await untilCached(world, before);
      const [, last = 0] = await loseHistory(world, [["a", "2"]], [["b", "1"]]);
      for (const after_revision of [before, last - 1]) {
        const refused = world.client.watch({ resource, delivery: asked, after_revision });
        await expect(firstOf(refused)).rejects.toMatchObject({
          reason: "REVISION_TOO_OLD",
          metadata: { oldest_revision: String(last) },
        });
      }
      const watch = world.client.watch({ resource, delivery: asked, after_revision: last });
      expect(await nextSummary(watch)).toBe(`=${last}`);
    },
  );
});
