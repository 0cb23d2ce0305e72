import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Coalescer } from "../../../src/cacher/catch-up/coalescer.ts";
import { EventNode } from "../../../src/cacher/state/event-node.ts";
import { Filter } from "../../../src/cacher/state/filter.ts";
import { type EventType, WatchEvent } from "../../../src/model/event.ts";
import { StoredObject } from "../../../src/model/object.ts";
import { object, short, text } from "../objects.ts";

/** What is told of the events, in order. */
function told(fold: Coalescer): WatchEvent[] {
  const events: WatchEvent[] = [];
  for (const _ of fold.emit(events)) {
    // It yields only so that others get their turn.
  }
  return events;
}

function folded(events: readonly WatchEvent[]): Coalescer {
  const fold = new Coalescer(2);
  for (const event of events) fold.add(event);
  return fold;
}

/** An event of `a` at `revision`, whose content is the revision, after the object at `before`. */
function changed(type: EventType, revision: number, before?: number, key = "a"): WatchEvent {
  const previous = before === undefined ? undefined : object(key, before, `${before}`);
  return new WatchEvent(type, object(key, revision, `${revision}`), previous);
}

describe("A fold of one object's events", () => {
  it.each<readonly [what: string, events: readonly WatchEvent[], told: string | undefined]>([
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
      "a re-creation that did not last",
      [changed("DELETED", 2, 1), changed("ADDED", 3), changed("DELETED", 4, 3)],
      "DELETED a=4@4 (1@1)",
    ],
    [
      "entering the view, which has something before it",
      [changed("ADDED", 3, 2), changed("MODIFIED", 4, 3)],
      "ADDED a=4@4 (2@2)",
    ],
    [
      "entering, leaving and entering again",
      [changed("ADDED", 3, 2), changed("DELETED", 4, 3), changed("ADDED", 5, 4)],
      "ADDED a=5@5 (2@2)",
    ],
    ["being made out of view and entering it", [changed("ADDED", 4, 3)], "ADDED a=4@4"],
    ["entering and leaving", [changed("ADDED", 3, 2), changed("DELETED", 4, 3)], undefined],
  ])("%s", (_what, events, expected) => {
    expect(told(folded(events)).map(short)).toEqual(expected === undefined ? [] : [expected]);
  });

  it("is the very event where there was only one, so that its encoding is shared", () => {
    const event = changed("MODIFIED", 2, 1);
    expect(told(folded([event]))[0]).toBe(event);
  });
});

describe("A fold of several objects' events", () => {
  it("is in the order of their newest revisions, and within one in that of the store", () => {
    const fold = folded([
      changed("ADDED", 2, undefined, "c"),
      changed("ADDED", 3, undefined, "a"),
      changed("ADDED", 3, undefined, "b"),
      changed("MODIFIED", 4, 3, "b"),
      changed("MODIFIED", 4, 3, "a"),
    ]);
    expect(told(fold).map(({ object: { key }, revision }) => `${key}@${revision}`)).toEqual([
      "c@2",
      "b@4",
      "a@4",
    ]);
  });

  it("holds nothing of objects that come and go, however many they are", () => {
    const fold = new Coalescer(2);
    for (let i = 1; i <= 1_000; i++) {
      fold.add(changed("ADDED", 2 * i, undefined, `short-lived/${i}`));
      fold.add(changed("DELETED", 2 * i + 1, 2 * i, `short-lived/${i}`));
      fold.objectDeleted(`short-lived/${i}`);
    }
    expect([fold.size, fold.bytes]).toEqual([0, 0]);
  });

  it("remembers of one that has left the view what was before it came, for as long as it stands", () => {
    const fold = folded([changed("ADDED", 2), changed("DELETED", 3, 2)]);
    expect(fold.size).toBe(1);
    fold.add(changed("ADDED", 4, 3));
    expect(told(fold).map(short)).toEqual(["ADDED a=4@4"]);
    fold.add(changed("DELETED", 5, 4));
    fold.objectDeleted("a");
    fold.add(changed("ADDED", 6));
    expect(told(fold).map(short)).toEqual(["ADDED a=6@6"]);
  });

  it("remembers of one that stood before the fold what it was, though it is gone", () => {
    const fold = folded([changed("ADDED", 3, 2), changed("DELETED", 4, 3)]);
    fold.objectDeleted("a");
    fold.add(changed("ADDED", 5));
    expect(told(fold).map(short)).toEqual(["ADDED a=5@5 (2@2)"]);
    fold.objectDeleted("unheard of");
  });

  it("counts the bytes of one event for each object", () => {
    const fold = new Coalescer(2);
    fold.add(changed("MODIFIED", 2, 1));
    const { bytes } = fold;
    for (let revision = 3; revision < 9; revision++) {
      fold.add(changed("MODIFIED", revision, revision - 1));
    }
    expect([fold.size, fold.bytes]).toEqual([1, bytes]);
    expect(bytes).toBe(changed("MODIFIED", 2, 1).estimatedBytes);
  });
});

const view = new Filter({
  scope: { prefix: "" },
  withPrevious: true,
  predicate: ({ value }) => text(value).startsWith("in"),
});

function isInView(object: StoredObject | undefined): object is StoredObject {
  return object !== undefined && view.matches(object);
}

/** What a naive reader would say, who compares the state before with that after. */
function naive(
  before: ReadonlyMap<string, StoredObject>,
  after: ReadonlyMap<string, StoredObject>,
  events: readonly WatchEvent[],
): string[] {
  const keys = new Set(events.map((event) => event.object.key));
  const changes = [...keys].flatMap((key) => {
    const own = events.filter((event) => event.object.key === key);
    const [first, last] = [own.at(0), own.at(-1)];
    if (first === undefined || last === undefined) return [];
    const [was, is] = [isInView(before.get(key)), isInView(after.get(key))];
    if (!was && !is) return [];
    const type = !is ? "DELETED" : was ? "MODIFIED" : "ADDED";
    // Only what stood before can be what was before; where it has been changed out of view, then as of then.
    const stood = first.previous?.createRevision === before.get(key)?.createRevision;
    const previous = stood ? first.previous : undefined;
    return [{ at: events.indexOf(last), event: new WatchEvent(type, last.object, previous) }];
  });
  return changes.sort((a, b) => a.at - b.at).map(({ event }) => short(event));
}

describe("A fold of any history", () => {
  it("leads from what was in view before to what is after, by one event for each object", () => {
    const keys = ["a", "b", "c", "d"];
    const content = fc.constantFrom("in", "out");
    const write = fc.tuple(fc.constantFrom(...keys), fc.oneof(content, fc.constant(undefined)));
    const standing = fc.dictionary(fc.constantFrom(...keys), content);
    fc.assert(
      fc.property(standing, fc.array(write, { maxLength: 30 }), (stood, writes) => {
        const state = new Map(
          Object.entries(stood).map(([key, value]) => [key, object(key, 2, `${value}2`)]),
        );
        const before = new Map(state);
        const fold = new Coalescer(2);
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
          const event = view.select(new EventNode(happened, previous, revision, i, 0, 0));
          if (event !== undefined) {
            events.push(event);
            fold.add(event);
          }
          if (value === undefined) fold.objectDeleted(key);
        }
        expect(told(fold).map(short)).toEqual(naive(before, state, events));
        expect(fold.size).toBeLessThanOrEqual(before.size + state.size);
      }),
      { numRuns: 1_000 },
    );
  });
});

/** The object as it is written over `previous`. */
function written(
  key: string,
  value: string,
  revision: number,
  previous: StoredObject | undefined,
): StoredObject {
  const { createRevision, version } = previous ?? { createRevision: revision, version: 0 };
  return new StoredObject(key, Buffer.from(value), createRevision, revision, version + 1, 0n);
}
