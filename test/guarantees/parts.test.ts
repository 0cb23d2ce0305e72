import { describe, expect, it, test } from "vitest";
import { viewOf, type Wish } from "../faults/wire.ts";
import { brokenBy, linearizable } from "./guarantees.ts";
import { explainRead, explainSequence } from "./histories.ts";
import { keyHash } from "./key-hash.ts";
import type { Order } from "./orders.ts";
import {
  type Change,
  type SeenEvent,
  type SeenObject,
  type Sequence,
  type View,
  withoutValue,
} from "./recording.ts";
import { heldAt, partition, wholeAt } from "./shards.ts";

function object(key: string, value: string, modRevision: number): SeenObject {
  return { key, value, createRevision: modRevision, modRevision, version: 1 };
}

/** a comes, changes and goes; b comes. */
const a2 = object("a", "on", 2);
const a3 = object("a", "on!", 3);
const b4 = object("b", "off", 4);
const changes: readonly Change[] = [
  { revision: 2, key: "a", before: undefined, after: a2 },
  { revision: 3, key: "a", before: a2, after: a3 },
  { revision: 4, key: "b", before: undefined, after: b4 },
  { revision: 5, key: "a", before: a3, after: undefined },
];

const all: View = { includes: () => true, matches: () => true, includePrevious: true };

function event(type: SeenEvent["type"], object: SeenObject, previous?: SeenObject): SeenEvent {
  return { type, object, previous };
}

function hidden<T extends SeenObject | undefined>(object: T): T {
  return object === undefined ? object : { ...object, value: "" };
}

const events: readonly SeenEvent[] = [
  event("ADDED", a2),
  event("MODIFIED", a3, a2),
  event("ADDED", b4),
  event("DELETED", { ...a3, modRevision: 5 }, a3),
];

/** From revision 1 on, all at once. */
function streamOf(view: View, delivered: readonly SeenEvent[], isLatest = false): Sequence {
  const point = { revision: 1, events: [], initialEventsEnd: false };
  const rest = delivered.map((one) => {
    const { modRevision: revision } = one.object;
    return { revision, events: [one], initialEventsEnd: false };
  });
  const last = { revision: 5, events: [], initialEventsEnd: false };
  const delivery = isLatest ? "LATEST_STATE" : "EVERY_EVENT";
  return { view, delivery, streams: [[point, ...rest, last]] };
}

function broken(sequence: Sequence): string[] {
  return [...new Set(brokenBy(sequence, changes).map((wrong) => wrong.split(":")[0] ?? ""))];
}

describe.each([false, true])("The view of keys (LATEST_STATE: %s)", (isLatest) => {
  const keys: View = { ...all, shows: withoutValue };
  const shown = events.map(({ type, object, previous }) =>
    event(type, hidden(object), hidden(previous)),
  );

  it("is the stream without values", () => {
    expect(broken(streamOf(keys, shown, isLatest))).toEqual([]);
  });

  it("is broken by a value, and by one of an object before", () => {
    const value = shown.with(3, event("DELETED", { ...a3, modRevision: 5 }, hidden(a3)));
    expect(broken(streamOf(keys, value, isLatest))).toEqual(["Filter"]);
    const before = shown.with(1, event("MODIFIED", hidden(a3), a2));
    expect(broken(streamOf(keys, before, isLatest))).toEqual(["Previous"]);
    expect(broken(streamOf(all, shown, isLatest))).toEqual(["Filter", "Previous"]);
  });

  it("is broken by an event left out", () => {
    expect(broken(streamOf(keys, shown.toSpliced(2, 1), isLatest))).toEqual(["Reliable"]);
  });
});

describe("Events of some types", () => {
  const some: View = { ...all, types: new Set(["ADDED", "DELETED"] as const) };
  const shown = events.filter(({ type }) => type !== "MODIFIED");

  it("are all of these", () => {
    expect(broken(streamOf(some, shown))).toEqual([]);
  });

  it("are broken by one of another type, and by one left out", () => {
    expect(broken(streamOf(some, events))).toEqual(["Filter"]);
    expect(broken(streamOf(some, shown.slice(1)))).toEqual(["Reliable"]);
    expect(broken(streamOf(all, shown))).toEqual(["Reliable"]);
  });
});

test("A count is that of the objects at its revision.", () => {
  const read = { view: all, notBefore: 4, revision: 4 };
  expect(linearizable({ ...read, objects: 2 }, changes)).toEqual([]);
  expect(linearizable({ ...read, objects: 1 }, changes)).toHaveLength(1);
  expect(linearizable({ ...read, revision: 3, objects: 1 }, changes)).toHaveLength(1);
});

describe("A List in an order", () => {
  const [x, y] = [object("x", "", 3), { ...object("y", "", 3), createRevision: 2 }];
  const some: readonly Change[] = [
    { revision: 2, key: "z", before: undefined, after: object("z", "", 2) },
    { revision: 3, key: "x", before: undefined, after: x },
    { revision: 3, key: "y", before: undefined, after: y },
  ];

  it.each<readonly [Order, string]>([
    ["KEY_ASCENDING", "xyz"],
    ["KEY_DESCENDING", "zyx"],
    ["MOD_REVISION_ASCENDING", "zxy"],
    ["MOD_REVISION_DESCENDING", "xyz"],
    ["CREATE_REVISION_ASCENDING", "yzx"],
    ["CREATE_REVISION_DESCENDING", "xyz"],
  ])("%s is %s, and no other", (order, keys) => {
    for (const other of ["xyz", "xzy", "yxz", "yzx", "zxy", "zyx"]) {
      const objects = [...other].map((key) => ({ x, y, z: object("z", "", 2) })[key] ?? x);
      const read = { view: all, notBefore: 3, revision: 3, objects, order };
      expect(linearizable(read, some)).toHaveLength(other === keys ? 0 : 1);
    }
  });
});

describe("What is shown of an object", () => {
  const thing = {
    metadata: { labels: { app: "web" } },
    spec: { node: "n1" },
    ...{ write: "w-1", filling: "x" },
  };
  const shownOf = (wish: Wish): SeenObject =>
    viewOf(wish).shows?.(object("a", JSON.stringify(thing), 2)) ?? object("none", "", 0);

  it("is what a mask names of its value", () => {
    const value = (mask: readonly string[]): unknown => JSON.parse(shownOf({ mask }).value);
    expect(value(["write"])).toEqual({ write: "w-1" });
    expect(value(["spec"])).toEqual({ spec: { node: "n1" } });
    expect(value(["metadata.labels.app", "absent"])).toEqual({
      metadata: { labels: { app: "web" } },
    });
    expect(value(["spec.other"])).toEqual({ spec: {} });
  });

  it("is its attributes, or its key", () => {
    const attributes = { labels: { app: "web" }, fields: { "spec.node": "n1" } };
    expect(shownOf({ isOfAttributes: true })).toEqual({ ...object("a", "", 2), attributes });
    expect(shownOf({ isKeysOnly: true })).toEqual(object("a", "", 2));
    expect(viewOf({}).shows).toBeUndefined();
  });

  it("is of a range of keys by their bytes", () => {
    const { includes } = viewOf({ range: { start: "b/\u{ff00}", end: "c" } });
    expect(["b/1", "b/\u{ff00}", "b/🎈", "c", "b/\u{e000}"].filter(includes)).toEqual([
      "b/\u{ff00}",
      "b/🎈",
    ]);
  });
});

describe("Shards", () => {
  const begin = { revision: 2, events: [event("ADDED", a2)], initialEventsEnd: true };
  const more = { revision: 5, events: events.slice(1), initialEventsEnd: false };
  const sequence = { view: all, streams: [[begin, more]] };

  it("have what was delivered of them up to a revision", () => {
    expect(heldAt(sequence, 4)).toEqual(wholeAt(changes, 4));
    expect(heldAt(sequence, 5)).toEqual(new Map([["b", 4]]));
    expect(heldAt(sequence, 1)).toBeUndefined();
    expect(heldAt(streamOf(all, events), 5)).toBeUndefined();
  });

  const whole = wholeAt(changes, 4);

  it("are a partition if each object is in one of them", () => {
    expect(partition([new Map([["a", 3]]), new Map(), new Map([["b", 4]])], whole, 4)).toEqual([]);
  });

  it.each<readonly [string, readonly (readonly (readonly [string, number])[])[]]>([
    ["an object in none", [[["a", 3]], []]],
    ["an object in two", [[["a", 3]], [...whole]]],
    ["an object of another revision", [[["a", 2]], [["b", 4]]]],
    ["an object that is gone", [[["a", 3]], [["b", 4]], [["c", 1]]]],
  ])("are no partition with %s", (_what, parts) => {
    const held = parts.map((part) => new Map(part));
    expect(partition(held, whole, 4)).toHaveLength(1);
  });

  it("are found by XXH64 of the key", () => {
    expect(keyHash("a")).toBe(0xd24ec4f1a98c6e5bn);
    expect(keyHash("ns-1/pod-7")).toBe(0x29f1ea39dc4dc821n);
    expect(() => keyHash("x".repeat(32))).toThrow("32 bytes");
  });
});

describe("A history does not explain a revision that it has not reached", () => {
  const time = { fromEra: 0, toEra: 0 };

  it("of a resume point", () => {
    const sequence = streamOf(all, events);
    expect(explainSequence({ ...time, sequence }, [changes], [5]).eras).toEqual([0]);
    const { eras, wrong } = explainSequence({ ...time, sequence }, [changes], [4]);
    expect(eras).toEqual([]);
    expect(wrong).toEqual(["OneHistory: 5 is above its last revision, 4"]);
  });

  it("of a read", () => {
    const read = { view: all, notBefore: 0, revision: 6, objects: [b4] };
    expect(explainRead({ ...time, read }, [changes], [6]).eras).toEqual([0]);
    expect(explainRead({ ...time, read }, [changes], [5]).eras).toEqual([]);
  });
});
