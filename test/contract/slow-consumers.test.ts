import { expect, test } from "vitest";
import type { Delivery } from "../../src/cacher/request/request.ts";
import { brokenBy } from "../guarantees/guarantees.ts";
import { type SeenEvent, unitsOf, type View } from "../guarantees/recording.ts";
import { type Entry, Model } from "../model-based/model.ts";
import { describeContract } from "./backends.ts";
import { openWorld, resource, untilCached, type World } from "./replica.ts";
import { large, SlowReader } from "./slow-reader.ts";
import { eventsUntil } from "./watch-summaries.ts";

const everything: View = { includes: () => true, matches: () => true, includePrevious: true };

/** Buffers so small that a watcher without a reader stalls soon. */
const tight = { minBufferBatches: 1, maxBufferBatches: 2 };

/** What is wrong with the events that a reader received; empty if they are as promised. */
function wrongFor({ delivery, responses }: SlowReader, model: Model): string[] {
  return brokenBy({ view: everything, delivery, streams: [responses] }, model.changes);
}

function eventsOf({ responses }: SlowReader): readonly SeenEvent[] {
  return responses.flatMap(({ events }) => events);
}

/** `ADDED a@5 (2)` */
function short({ type, object, previous }: SeenEvent): string {
  const was = previous === undefined ? "" : ` (${previous.modRevision})`;
  return `${type} ${object.key}@${object.modRevision}${was}`;
}

/** Writes, and notes down what that does. */
async function write(world: World, model: Model, ...entries: readonly Entry[]): Promise<number> {
  const revision = await world.write(...entries);
  model.write(entries, revision);
  return revision;
}

/** A reader that has been sent three large values of which it has read none: what comes now it misses. */
async function stalled(world: World, model: Model, delivery: Delivery): Promise<SlowReader> {
  const reader = await SlowReader.open(world, delivery);
  for (let i = 0; i < 4; i++) await untilCached(world, await write(world, model, ["z", large]));
  expect(world.cacher.stats().watchers.stalled).toBe(1);
  return reader;
}

describeContract("With half of the clients not reading at all", (open) => {
  const writes = 24;
  const each = 8;

  test.each([
    ["history still has what they missed", 1_000],
    ["history has long lost what they missed", 4],
  ])(
    "the other streams get every event before the next is written; %s",
    async (_what, maxEvents) => {
      const eventWindow = { ageMs: 0, minEvents: maxEvents, maxEvents };
      const world = await openWorld(open, { cacher: { eventWindow, watchers: tight } });
      const model = new Model();
      const quick = Array.from({ length: 2 * each }, () => world.client.watch({ resource }));
      for (const stream of quick) await stream.next();
      const slow: SlowReader[] = [];
      for (let i = 0; i < each; i++) {
        slow.push(await SlowReader.open(world, "EVERY_EVENT"));
        slow.push(await SlowReader.open(world, "LATEST_STATE"));
      }
      let last = 0;
      for (let i = 0; i < writes; i++) {
        last = await write(world, model, [`k${i % 3}`, `${i}${large}`]);
        const delivered = await Promise.all(quick.map((stream) => eventsUntil(stream, last)));
        expect(new Set(delivered.map((events) => events.join())).size).toBe(1);
        expect(delivered[0]).toHaveLength(1);
      }
      // Maintenance runs: the event window drops its oldest events.
      await world.clock.elapse(1_000);

      // Their pending batches are bounded by count, and shared.
      const stats = world.cacher.stats();
      expect(stats.eventWindow.events).toBe(Math.min(maxEvents, writes));
      expect(stats.buffers.batches).toBeLessThanOrEqual(slow.length * tight.maxBufferBatches);
      expect(stats.coalescing.held).toBeLessThanOrEqual(maxEvents < writes ? 2 : 0);
      expect(stats.coalescing.objects).toBeLessThanOrEqual(3 * stats.coalescing.held);

      for (const reader of slow) await reader.readUntil(last);
      for (const reader of slow) {
        expect(wrongFor(reader, model)).toEqual([]);
        if (reader.delivery === "LATEST_STATE") {
          expect(reader.resumePoint).toBe(last);
          expect(eventsOf(reader).length).toBeLessThan(writes / 2);
          // The last unit has each object once, however often it was written.
          const unit = unitsOf(reader.responses).at(-1)?.events ?? [];
          expect(unit.map(({ object }) => object.key).sort()).toEqual(["k0", "k1", "k2"]);
        } else if (maxEvents >= writes) {
          expect(eventsOf(reader)).toHaveLength(writes);
        } else {
          expect(reader.ended).toMatchObject({
            reason: "SLOW_CONSUMER",
            metadata: { resume_revision: String(reader.resumePoint) },
          });
        }
      }
    },
  );
});

describeContract("A LATEST_STATE stream that reads on", (open) => {
  test.each<readonly [what: string, writes: readonly Entry[][], delivered: readonly string[]]>([
    ["created", [[["a", "1"]]], ["ADDED a@1"]],
    ["created and changed", [[["a", "1"]], [["a", "2"]]], ["ADDED a@2"]],
    ["created and deleted", [[["a", "1"]], [["a", null]]], []],
    ["changed", [[["old", "1"]], [["old", "2"]]], ["MODIFIED old@2 (0)"]],
    ["deleted", [[["old", "1"]], [["old", null]]], ["DELETED old@2 (0)"]],
    ["deleted and created again", [[["old", null]], [["old", "1"]]], ["MODIFIED old@2 (0)"]],
    [
      "changed in many ways, by mod_revision",
      [
        [
          ["b", "1"],
          ["a", "1"],
        ],
        [["old", "1"]],
        [
          ["b", "2"],
          ["c", "1"],
        ],
        [["c", null]],
      ],
      ["ADDED a@1", "MODIFIED old@2 (0)", "ADDED b@3"],
    ],
  ])(
    "delivers events that were %s as the difference that they make",
    async (_what, writes, expected) => {
      const world = await openWorld(open, { cacher: { watchers: tight } });
      const model = new Model();
      await write(world, model, ["old", ""]);
      const reader = await stalled(world, model, "LATEST_STATE");
      // Revisions are written as the number of the write; 0 is the state before.
      const numbers = new Map<number, number>();
      let last = 0;
      for (const [i, entries] of writes.entries()) {
        last = await write(world, model, ...entries);
        numbers.set(last, i + 1);
      }
      await untilCached(world, last);
      await reader.readUntil(last);
      const number = (revision: string): string => String(numbers.get(Number(revision)) ?? 0);
      const unit = unitsOf(reader.responses).at(-1);
      const delivered = unit?.events.filter(({ object }) => object.key !== "z").map(short);
      expect(delivered?.map((line) => line.replace(/\d+/g, number))).toEqual(expected);
      expect(unit?.revision).toBe(last);
      expect(
        brokenBy({ view: everything, delivery: "LATEST_STATE", streams: [reader.responses] }, [
          ...model.changes,
        ]),
      ).toEqual([]);
    },
  );

  test("gets a coalesced batch that is too large for a response as one atomic batch of several", async () => {
    const world = await openWorld(open, { cacher: { watchers: tight } });
    const model = new Model();
    const reader = await stalled(world, model, "LATEST_STATE");
    let last = 0;
    for (let i = 0; i < 90; i++) last = await write(world, model, [`k${i}`, large]);
    await untilCached(world, last);
    await reader.readUntil(last);
    expect(wrongFor(reader, model)).toEqual([]);
    const pieces = reader.responses.slice(
      reader.responses.findIndex(({ events }) => events.length > 1),
    );
    expect(pieces.length).toBeGreaterThan(1);
    expect(pieces.map(({ revision }) => revision)).toEqual([
      ...Array<undefined>(pieces.length - 1).fill(undefined),
      last,
    ]);
  });
});

describeContract("A stream that takes nothing for the stall timeout", (open) => {
  test.each<Delivery>(["EVERY_EVENT", "LATEST_STATE"])(
    "is ended as SLOW_CONSUMER, also if it is of %s",
    async (delivery) => {
      const world = await openWorld(open, { cacher: { watchers: tight } });
      const model = new Model();
      const reader = await stalled(world, model, delivery);
      await world.clock.elapse(60_000);
      expect(world.cacher.stats().watchers.stalled).toBe(1);
      await world.clock.elapse(500);
      expect(world.cacher.stats()).toMatchObject({ slowConsumers: 1, watchers: { stalled: 0 } });
      // It receives the status until it is reset, which is a second later.
      await reader.readUntil(Infinity);
      expect(wrongFor(reader, model)).toEqual([]);
      expect(reader.ended).toMatchObject({
        reason: "SLOW_CONSUMER",
        metadata: { resume_revision: String(reader.resumePoint) },
      });
    },
  );
});
