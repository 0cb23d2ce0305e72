import { describe, expect, it } from "vitest";
import { Coalescer } from "../../../src/cacher/catch-up/coalescer.ts";
import { EventNode } from "../../../src/cacher/state/event-node.ts";
import { Filter } from "../../../src/cacher/state/filter.ts";
import { type EventType, WatchEvent } from "../../../src/model/event.ts";
import { StoredObject } from "../../../src/model/object.ts";
import fc, { runs } from "../../property.ts";
import { object, short, text } from "../objects.ts";

/** The coalesced events, in order. */
function emitted(coalescer: Coalescer): WatchEvent[] {
  const events: WatchEvent[] = [];
  for (const _ of coalescer.emit(events)) {
    // It yields only for other work.
  }
  return events;
}

const all = new Filter({ scope: { prefix: "" }, withPrevious: false });

function coalescerOf(events: readonly WatchEvent[]): Coalescer {
  const coalescer = new Coalescer(all, 2);
  for (const event of events) coalescer.add(event);
  return coalescer;
}

/** An event of `a` at `revision` with the revision as its value, and the previous object at `before`. */
function changed(type: EventType, revision: number, before?: number, key = "a"): WatchEvent {
  const previous = before === undefined ? undefined : object(key, before, `${before}`);
  return new WatchEvent(type, object(key, revision, `${revision}`), previous);
}

describe("The coalesced events of one object", () => {
  it.each<readonly [what: string, events: readonly WatchEvent[], coalesced: string | undefined]>([
    ["ADDED", [changed("ADDED", 2)], "ADDED a=2@2"],
    ["MODIFIED", [changed("MODIFIED", 2, 1)], "MODIFIED a=2@2 (1@1)"],
    ["DELETED", [changed("DELETED", 2, 1)], "DELETED a=2@2 (1@1)"],
    ["ADDED, MODIFIED", [changed("ADDED", 2), changed("MODIFIED", 3, 2)], "ADDED a=3@3"],
    ["ADDED, DELETED", [changed("ADDED", 2), changed("DELETED", 3, 2)], undefined],
    [
      "ADDED, DELETED, ADDED",
      [changed("ADDED", 2), changed("DELETED", 3, 2), changed("ADDED", 4)],
      "ADDED a=4@4",
    ],
    [
      "MODIFIED twice",
      [changed("MODIFIED", 2, 1), changed("MODIFIED", 3, 2)],
      "MODIFIED a=3@3 (1@1)",
    ],
    [
      "MODIFIED, DELETED",
      [changed("MODIFIED", 2, 1), changed("DELETED", 3, 2)],
      "DELETED a=3@3 (1@1)",
    ],
    ["a re-creation", [changed("DELETED", 2, 1), changed("ADDED", 3)], "MODIFIED a=3@3 (1@1)"],
    [
      "a re-creation and another deletion",
      [changed("DELETED", 2, 1), changed("ADDED", 3), changed("DELETED", 4, 3)],
      "DELETED a=4@4 (1@1)",
    ],
    [
      "an existing object that begins to match",
      [changed("ADDED", 3, 2), changed("MODIFIED", 4, 3)],
      "ADDED a=4@4 (2@2)",
    ],
    [
      "a match that begins, ends and begins again",
      [changed("ADDED", 3, 2), changed("DELETED", 4, 3), changed("ADDED", 5, 4)],
      "ADDED a=5@5 (2@2)",
    ],
    ["being created without a match and matching later", [changed("ADDED", 4, 3)], "ADDED a=4@4"],
    ["a match that begins and ends", [changed("ADDED", 3, 2), changed("DELETED", 4, 3)], undefined],
  ])("%s", (_what, events, expected) => {
    expect(emitted(coalescerOf(events)).map(short)).toEqual(
      expected === undefined ? [] : [expected],
    );
  });

  it("are the event itself if there was only one, so that its encoding is shared", () => {
    const event = changed("MODIFIED", 2, 1);
    expect(emitted(coalescerOf([event]))[0]).toBe(event);
  });
});

describe("The coalesced events of several objects", () => {
  it("are in the order of their newest revisions, and within one in the store's order", () => {
    const coalescer = coalescerOf([
      changed("ADDED", 2, undefined, "c"),
      changed("ADDED", 3, undefined, "a"),
      changed("ADDED", 3, undefined, "b"),
      changed("MODIFIED", 4, 3, "b"),
      changed("MODIFIED", 4, 3, "a"),
    ]);
    expect(emitted(coalescer).map(({ object: { key }, revision }) => `${key}@${revision}`)).toEqual(
      ["c@2", "b@4", "a@4"],
    );
  });

  it("take no memory for objects that are created and deleted", () => {
    const coalescer = new Coalescer(all, 2);
    for (let i = 1; i <= 1_000; i++) {
      coalescer.add(changed("ADDED", 2 * i, undefined, `short-lived/${i}`));
      coalescer.add(changed("DELETED", 2 * i + 1, 2 * i, `short-lived/${i}`));
      coalescer.objectDeleted(`short-lived/${i}`);
    }
    expect([coalescer.size, coalescer.bytes]).toEqual([0, 0]);
  });

  it("keep the object from before the first match until the object is deleted", () => {
    const coalescer = coalescerOf([changed("ADDED", 2), changed("DELETED", 3, 2)]);
    expect(coalescer.size).toBe(1);
    coalescer.add(changed("ADDED", 4, 3));
    expect(emitted(coalescer).map(short)).toEqual(["ADDED a=4@4"]);
    coalescer.add(changed("DELETED", 5, 4));
    coalescer.objectDeleted("a");
    coalescer.add(changed("ADDED", 6));
    expect(emitted(coalescer).map(short)).toEqual(["ADDED a=6@6"]);
  });

  it("keep an object that existed before, also after its deletion", () => {
    const coalescer = coalescerOf([changed("ADDED", 3, 2), changed("DELETED", 4, 3)]);
    coalescer.objectDeleted("a");
    coalescer.add(changed("ADDED", 5));
    expect(emitted(coalescer).map(short)).toEqual(["ADDED a=5@5 (2@2)"]);
    coalescer.objectDeleted("unheard of");
  });

  it("are of the types that the filter delivers, once they are coalesced", () => {
    const eventTypes: readonly EventType[] = ["MODIFIED", "DELETED"];
    const some = new Filter({ scope: { prefix: "" }, withPrevious: false, eventTypes });
    const events = [
      changed("ADDED", 3, undefined, "came"),
      changed("MODIFIED", 4, 3, "came"),
      changed("DELETED", 5, 1, "again"),
      changed("ADDED", 6, undefined, "again"),
      changed("MODIFIED", 7, 2, "left"),
      changed("DELETED", 8, 7, "left"),
    ];
    const coalescer = new Coalescer(some, 2);
    for (const event of events) coalescer.add(event);
    expect(emitted(coalescerOf(events)).map(({ type }) => type)).toContain("ADDED");
    expect(emitted(coalescer).map(short)).toEqual(
      emitted(coalescerOf(events))
        .filter(({ type }) => type !== "ADDED")
        .map(short),
    );
    expect(emitted(coalescer).map(({ type, object }) => `${type} ${object.key}`)).toEqual([
      "MODIFIED again",
      "DELETED left",
    ]);
  });

  it("are emitted in steps of 512", () => {
    const coalescer = new Coalescer(all, 2);
    for (let i = 0; i < 1_100; i++) coalescer.add(changed("ADDED", i + 3, undefined, `k${i}`));
    const perStep: number[] = [];
    const events: WatchEvent[] = [];
    for (const _ of coalescer.emit(events)) perStep.push(events.length);
    expect([...perStep, events.length]).toEqual([512, 1_024, 1_100]);
  });

  it("count the bytes of one event per object", () => {
    const coalescer = new Coalescer(all, 2);
    coalescer.add(changed("MODIFIED", 2, 1));
    const { bytes } = coalescer;
    for (let revision = 3; revision < 9; revision++) {
      coalescer.add(changed("MODIFIED", revision, revision - 1));
    }
    expect([coalescer.size, coalescer.bytes]).toEqual([1, bytes]);
    expect(bytes).toBe(changed("MODIFIED", 2, 1).estimatedBytes);
  });
});

const matching = new Filter({
  scope: { prefix: "" },
  withPrevious: true,
  predicate: ({ value }) => text(value).startsWith("in"),
});

function isMatching(object: StoredObject | undefined): object is StoredObject {
  return object !== undefined && matching.matches(object);
}

/** The result of comparing the state before with that after. */
function compared(
  before: ReadonlyMap<string, StoredObject>,
  after: ReadonlyMap<string, StoredObject>,
  events: readonly WatchEvent[],
): string[] {
  const keys = new Set(events.map((event) => event.object.key));
  const changes = [...keys].flatMap((key) => {
    const own = events.filter((event) => event.object.key === key);
    const [first, last] = [own.at(0), own.at(-1)];
    if (first === undefined || last === undefined) return [];
    const [was, is] = [isMatching(before.get(key)), isMatching(after.get(key))];
    if (!was && !is) return [];
    const type = !is ? "DELETED" : was ? "MODIFIED" : "ADDED";
    // `previous` is an object that existed before. If it changed while it did not match, it is its last such version.
    const existed = first.previous?.createRevision === before.get(key)?.createRevision;
    const previous = existed ? first.previous : undefined;
    return [{ at: events.indexOf(last), event: new WatchEvent(type, last.object, previous) }];
  });
  return changes.sort((a, b) => a.at - b.at).map(({ event }) => short(event));
}

describe("The coalesced events of any history", () => {
  it("lead from the matching objects before to those after, by one event per object", () => {
    const keys = ["a", "b", "c", "d"];
    const content = fc.constantFrom("in", "out");
    const write = fc.tuple(fc.constantFrom(...keys), fc.oneof(content, fc.constant(undefined)));
    const existing = fc.dictionary(fc.constantFrom(...keys), content);
    fc.assert(
      fc.property(existing, fc.array(write, { maxLength: 30 }), (existed, writes) => {
        const state = new Map(
          Object.entries(existed).map(([key, value]) => [key, object(key, 2, `${value}2`)]),
        );
        const before = new Map(state);
        const coalescer = new Coalescer(all, 2);
        const events: WatchEvent[] = [];
        for (const [i, [key, value]] of writes.entries()) {
          const previous = state.get(key);
          const revision = i + 3;
          if (value === undefined) state.delete(key);
          else state.set(key, written(key, value + revision, revision, previous));
          const now = state.get(key) ?? previous?.deletedAt(revision);
          if (now === undefined) continue;
          const type =
            value === undefined ? "DELETED" : previous === undefined ? "ADDED" : "MODIFIED";
          const happened = new WatchEvent(type, now, undefined);
          const event = matching.select(new EventNode(happened, previous, revision, i, 0, 0));
          if (event !== undefined) {
            events.push(event);
            coalescer.add(event);
          }
          if (value === undefined) coalescer.objectDeleted(key);
        }
        expect(emitted(coalescer).map(short)).toEqual(compared(before, state, events));
        expect(coalescer.size).toBeLessThanOrEqual(before.size + state.size);
      }),
      { numRuns: runs(1_000) },
    );
  });
});

/** The object that a write over `previous` creates. */
function written(
  key: string,
  value: string,
  revision: number,
  previous: StoredObject | undefined,
): StoredObject {
  const { createRevision, version } = previous ?? { createRevision: revision, version: 0 };
  return new StoredObject(key, Buffer.from(value), createRevision, revision, version + 1, 0n);
}
