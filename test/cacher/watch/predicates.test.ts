import { describe, expect, it, test } from "vitest";
import type { Predicate } from "../../../src/cacher/request/selection.ts";
import { CachedStore } from "../cached-store.ts";

const saysYes: Predicate = ({ value }) => Buffer.from(value).includes("yes");

type Write = readonly [key: string, value: string | null];

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
    "has of an object %s the event it is for it",
    async (_, writes, expected) => {
      const cached = await CachedStore.ready();
      let last = cached.cacher.revision;
      let before = last;
      for (const write of writes) {
        before = last;
        last = await cached.write(write);
      }
      const stream = cached.cacher.watch({
        ...{ scope: { prefix: "" }, afterRevision: before, withPrevious: true, predicate: saysYes },
      });
      await cached.clock.settle();
      const delivered: string[] = [];
      for (let batch = stream.read(); batch !== undefined; batch = stream.read()) {
        for (const { type, object, previous } of batch.events) {
          expect(object.modRevision).toBe(last);
          const was = previous === undefined ? "" : `, was ${Buffer.from(previous.value)}`;
          delivered.push(`${type} ${Buffer.from(object.value)}${was}`);
        }
      }
      expect(delivered).toEqual(expected === undefined ? [] : [expected]);
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
