import { describe, expect, it } from "vitest";
import { EventNode } from "../../../src/cacher/state/event-node.ts";
import { Filter } from "../../../src/cacher/state/filter.ts";
import { type EventType, WatchEvent } from "../../../src/model/event.ts";
import { StoredObject } from "../../../src/model/object.ts";
import { object, short, text } from "../objects.ts";

/** Matches objects whose value contains "yes". */
const saysYes = (each: StoredObject): boolean => text(each.value).includes("yes");

/** An event of `k` at revision 9, with the object at 5 as the previous one. */
function node(type: EventType, after: string, before: string | undefined): EventNode {
  const previous = before === undefined ? undefined : object("k", 5, before);
  // As in the cache: a deleted object has its last content.
  const now = type === "DELETED" ? previous?.deletedAt(9) : object("k", 9, after);
  const event = new WatchEvent(type, now ?? object("k", 9, after), undefined);
  return new EventNode(event, previous, 9, 1, event.estimatedBytes, 0);
}

function seen(
  of: EventNode,
  withPrevious: boolean,
  predicate?: (each: StoredObject) => boolean,
): string | undefined {
  const event = new Filter({ scope: { prefix: "" }, withPrevious, predicate }).select(of);
  return event && short(event);
}

const created = node("ADDED", "yes", undefined);
const createdOther = node("ADDED", "no", undefined);
const stayed = node("MODIFIED", "yes, still", "yes");
const entered = node("MODIFIED", "yes", "no");
const left = node("MODIFIED", "no", "yes");
const neverThere = node("MODIFIED", "no, still", "no");
const deleted = node("DELETED", "", "yes");
const deletedOther = node("DELETED", "", "no");

describe("A filter with a predicate", () => {
  it.each([
    ["a creation that matches", created, "ADDED k=yes@9", ""],
    ["a creation that does not match", createdOther, undefined, ""],
    ["a change between matching contents", stayed, "MODIFIED k=yes, still@9", " (yes@5)"],
    ["a change from no match to a match", entered, "ADDED k=yes@9", " (no@5)"],
    ["a change from a match to no match", left, "DELETED k=yes@9", " (yes@5)"],
    ["a change between contents that don't match", neverThere, undefined, ""],
    ["a deletion of a matching object", deleted, "DELETED k=yes@9", " (yes@5)"],
    ["a deletion of another object", deletedOther, undefined, ""],
  ])("%s", (_what, of, expected, before) => {
    expect(seen(of, false, saysYes)).toBe(expected);
    expect(seen(of, true, saysYes)).toBe(expected && expected + before);
  });

  it("delivers an object that ceases to match with its last matching content, at the revision of the change", () => {
    const last = new StoredObject("k", Buffer.from("yes"), 2, 5, 3, 42n);
    const event = new WatchEvent("MODIFIED", object("k", 9, "no"), undefined);
    const of = new EventNode(event, last, 9, 1, 0, 0);
    const filter = new Filter({ scope: { key: "k" }, withPrevious: false, predicate: saysYes });
    expect(filter.select(of)?.object).toEqual(
      new StoredObject("k", Buffer.from("yes"), 2, 9, 3, 42n),
    );
  });
});

describe("A filter without a predicate", () => {
  it.each([
    ["a creation", created, "ADDED k=yes@9", ""],
    ["a change", left, "MODIFIED k=no@9", " (yes@5)"],
    ["a deletion", deletedOther, "DELETED k=no@9", " (no@5)"],
  ])("delivers %s unchanged", (_what, of, expected, before) => {
    expect(seen(of, false)).toBe(expected);
    expect(seen(of, true)).toBe(expected + before);
  });

  it("delivers the same event to all watchers, not copies", () => {
    const [one, other] = [true, true].map(
      (withPrevious) => new Filter({ scope: { prefix: "" }, withPrevious }),
    );
    expect(one?.select(stayed)).toBe(other?.select(stayed));
    expect(new Filter({ scope: { key: "k" }, withPrevious: false }).select(stayed)).toBe(
      stayed.event,
    );
  });
});

describe("The first node of an event window, which has no event,", () => {
  it.each([
    ["with a predicate", saysYes, false],
    ["without", undefined, false],
    ["with previous", undefined, true],
  ])("is not delivered by a filter %s", (_what, predicate, withPrevious) => {
    const beginning = new EventNode(undefined, undefined, 1, 0, 0, 0);
    expect(seen(beginning, withPrevious, predicate)).toBeUndefined();
  });
});

describe("The scope of a filter", () => {
  it.each([
    [{ key: "a" }, ["a"], ["", "ab", "b"]],
    [{ prefix: "a" }, ["a", "ab", "a/1"], ["", "b", "A"]],
    [{ prefix: "a/" }, ["a/", "a/1"], ["a", "ab"]],
    [{ prefix: "" }, ["a", "\u{10ffff}"], []],
    [{ prefix: "\u{1f600}" }, ["\u{1f600}", "\u{1f600}1"], ["\u{1f601}", "\u{1f5ff}"]],
  ])("%j", (scope, inside, outside) => {
    const filter = new Filter({ scope, withPrevious: false });
    expect(inside.filter((key) => !filter.includes(key))).toEqual([]);
    expect(outside.filter((key) => filter.includes(key))).toEqual([]);
  });
});

describe("A filter", () => {
  const raw = "k\udcff";
  const filter = (options: object) =>
    new Filter({ scope: { prefix: "k" }, withPrevious: false, ...options });

  it("leaves raw keys out unless it asks for them", () => {
    const created = new EventNode(
      new WatchEvent("ADDED", object(raw, 2), undefined),
      ...([undefined, 2, 1, 0, 0] as const),
    );
    const filters = [{}, { rawKeys: false }, { rawKeys: true }].map(filter);
    expect(filters.map((each) => each.select(created) !== undefined)).toEqual([false, false, true]);
    expect(filters.map((each) => each.leavesOut(raw))).toEqual([true, true, false]);
    expect(filters.map((each) => each.leavesOut("k"))).toEqual([false, false, false]);
  });

  it("includes the keys of its scope", () => {
    const scopes = [{ key: "kb" }, { prefix: "kb" }, { from: "kb", to: "kc" }];
    const included = scopes.map((scope) =>
      ["ka", "kb", "kbx", "kc"].filter((key) => filter({ scope }).includes(key)),
    );
    expect(included).toEqual([["kb"], ["kb", "kbx"], ["kb", "kbx"]]);
  });

  it("matches all objects, or those of its predicate", () => {
    expect(filter({}).matches(object("k", 2, "no"))).toBe(true);
    const picky = filter({ predicate: saysYes });
    expect(["yes", "no"].map((value) => picky.matches(object("k", 2, value)))).toEqual([
      true,
      false,
    ]);
  });

  it("has another identity for anything that it delivers differently", () => {
    const all = [
      ...[{}, { withPrevious: true }, { rawKeys: true }, { predicate: saysYes }],
      ...[{ scope: { key: "k" } }, { scope: { prefix: "" } }, { scope: { key: "" } }],
      ...[{ scope: { from: "k", to: undefined } }, { scope: { from: "k", to: "l" } }],
      ...[{ scope: { from: "", to: "l" } }, { scope: { key: "l" } }],
    ].map((options) => filter(options).identity);
    expect(new Set(all).size).toBe(all.length);
    expect(filter({}).identity).toBe(filter({}).identity);
  });

  it("delivers an event that is the same as in the cache without a copy", () => {
    const event = filter({ predicate: saysYes }).select(stayed);
    expect(event).toBe(stayed.event);
  });
});
