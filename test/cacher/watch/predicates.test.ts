import { describe, expect, it, test } from "vitest";
import type { Predicate } from "../../../src/cacher/request/selection.ts";
import type { WatchStream } from "../../../src/storage/storage.ts";
import { CachedStore } from "../cached-store.ts";

const saysYes: Predicate = ({ value }) => Buffer.from(value).includes("yes");

type Write = readonly [key: string, value: string | null];

function eventsOf(stream: WatchStream): string[] {
  const delivered: string[] = [];
  for (let batch = stream.read(); batch !== undefined; batch = stream.read()) {
    for (const { type, object, previous } of batch.events) {
      const was = previous === undefined ? "" : `, was ${Buffer.from(previous.value)}`;
      delivered.push(`${type} ${Buffer.from(object.value)}${was} @${object.modRevision}`);
    }
  }
  return delivered;
}

describe("A watch of a Cacher by a predicate", () => {
  const transitions: [string, readonly Write[], string | undefined][] = [
    ["created outside", [["k", "no"]], undefined],
    ["created inside", [["k", "yes"]], "ADDED yes"],
    [
      "entering",
      [
        ["k", "no"],
        ["k", "yes"],
      ],
      "ADDED yes, was no",
    ],
    [
      "staying in",
      [
        ["k", "yes 1"],
        ["k", "yes 2"],
      ],
      "MODIFIED yes 2, was yes 1",
    ],
    [
      "staying out",
      [
        ["k", "no"],
        ["k", "no"],
      ],
      undefined,
    ],
    [
      "leaving",
      [
        ["k", "yes"],
        ["k", "no"],
      ],
      "DELETED yes, was yes",
    ],
    [
      "deleted inside",
      [
        ["k", "yes"],
        ["k", null],
      ],
      "DELETED yes, was yes",
    ],
    [
      "deleted outside",
      [
        ["k", "no"],
        ["k", null],
      ],
      undefined,
    ],
    [
      "created again",
      [
        ["k", "yes"],
        ["k", null],
        ["k", "yes"],
      ],
      "ADDED yes",
    ],
  ];

  test.each(transitions)(
    "delivers a change of an object %s as a change of the selected objects",
    async (_, writes, expected) => {
      const cached = await CachedStore.ready();
      for (const write of writes.slice(0, -1)) await cached.write(write);
      const request = {
        ...{ scope: { prefix: "" }, withPrevious: true, predicate: saysYes },
        afterRevision: cached.cacher.revision,
      };
      const live = cached.cacher.watch(request);
      await cached.clock.settle();
      expect([eventsOf(live), live.state]).toEqual([[], "live"]);
      const last = await cached.write(...writes.slice(-1));
      const resumed = cached.cacher.watch(request);
      await cached.clock.settle();
      cached.clock.runImmediates();
      const events = expected === undefined ? [] : [`${expected} @${last}`];
      expect([eventsOf(live), eventsOf(resumed)]).toEqual([events, events]);
      expect([live.ended, resumed.ended]).toEqual([undefined, undefined]);
    },
  );

  it("without previous ends with INVALID_REQUEST, without a throw", async () => {
    const { cacher, clock } = await CachedStore.ready();
    const stream = cacher.watch({
      ...{ scope: { prefix: "" }, afterRevision: undefined, withPrevious: false },
      predicate: saysYes,
    });
    await clock.settle();
    expect(stream.ended).toMatchObject({ reason: "INVALID_REQUEST" });
  });
});

describe("A list of a Cacher by a predicate", () => {
  it("has the objects that match it, in pages within the limit", async () => {
    const cached = await CachedStore.ready();
    const keys = Array.from({ length: 20 }, (_, i) => `${i}`.padStart(2, "0"));
    await cached.write(...keys.map((key, i) => [key, i % 7 === 0 ? "yes" : "no"] as const));
    for (const limit of [0, 1, 2]) {
      const found: string[] = [];
      let startAfter: string | undefined;
      do {
        const { items, next } = await cached.cacher.list({
          ...{ prefix: "", startAfter, limit, at: { match: "ANY" }, predicate: saysYes },
        });
        if (limit > 0) expect(items.length).toBeLessThanOrEqual(limit);
        found.push(...items.map(({ key }) => key));
        startAfter = next;
      } while (startAfter !== undefined);
      expect(found).toEqual(["00", "07", "14"]);
    }
  });

  it("of keys only is INVALID_REQUEST", async () => {
    const { cacher } = await CachedStore.ready();
    const request = { prefix: "", limit: 0, at: { match: "ANY" }, keysOnly: true } as const;
    await expect(cacher.list({ ...request, predicate: saysYes })).rejects.toMatchObject({
      reason: "INVALID_REQUEST",
    });
  });
});
