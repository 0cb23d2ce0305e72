import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Fold } from "../../src/cacher/fold.ts";
import { type EventType, WatchEvent } from "../../src/storage/event.ts";
import type { StoredObject } from "../../src/storage/object.ts";
import { object, short } from "./objects.ts";

/** What is told of the events, in order. */
function told(fold: Fold): WatchEvent[] {
  const events: WatchEvent[] = [];
  for (const _ of fold.tell(events)) {
    // It yields only so that others get their turn.
  }
  return events;
}

function folded(events: readonly WatchEvent[]): Fold {
  const fold = new Fold();
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
    const fold = new Fold();
    for (let i = 1; i <= 1_000; i++) {
      fold.add(changed("ADDED", 2 * i, undefined, `short-lived/${i}`));
      fold.add(changed("DELETED", 2 * i + 1, 2 * i, `short-lived/${i}`));
      fold.gone(`short-lived/${i}`);
    }
    expect([fold.size, fold.bytes]).toEqual([0, 0]);
  });

  it("remembers of one that has left the view what was before it came, for as long as it stands", () => {
    const fold = folded([changed("ADDED", 2), changed("DELETED", 3, 2)]);
    expect(fold.size).toBe(1);
    fold.add(changed("ADDED", 4, 3));
    expect(told(fold).map(short)).toEqual(["ADDED a=4@4"]);
    fold.add(changed("DELETED", 5, 4));
    fold.gone("a");
    fold.add(changed("ADDED", 6));
    expect(told(fold).map(short)).toEqual(["ADDED a=6@6"]);
  });

  it("remembers of one that stood before the fold what it was, though it is gone", () => {
    const fold = folded([changed("ADDED", 3, 2), changed("DELETED", 4, 3)]);
    fold.gone("a");
    fold.add(changed("ADDED", 5));
    expect(told(fold).map(short)).toEqual(["ADDED a=5@5 (2@2)"]);
    fold.gone("unheard of");
  });

  it("counts the bytes of one event for each object", () => {
    const fold = new Fold();
    fold.add(changed("MODIFIED", 2, 1));
    const { bytes } = fold;
    for (let revision = 3; revision < 9; revision++) {
      fold.add(changed("MODIFIED", revision, revision - 1));
    }
    expect([fold.size, fold.bytes]).toEqual([1, bytes]);
    expect(bytes).toBe(changed("MODIFIED", 2, 1).weight);
  });
});

/** What a naive reader would do: apply everything to the state before, and compare with the state after. */
function naive(before: ReadonlyMap<string, StoredObject>, events: readonly WatchEvent[]): string[] {
  const keys = new Set(events.map((event) => event.object.key));
  const changes = [...keys].flatMap((key) => {
    const own = events.filter((event) => event.object.key === key);
    const last = own.at(-1);
    const was = before.get(key);
    if (last === undefined || (was === undefined && last.type === "DELETED")) return [];
    const type =
      was === undefined ? "ADDED" : last.type === "DELETED" ? "DELETED" : ("MODIFIED" as const);
    return [{ at: events.indexOf(last), event: new WatchEvent(type, last.object, was) }];
  });
  return changes.sort((a, b) => a.at - b.at).map(({ event }) => short(event));
}

describe("A fold of any history", () => {
  it("leads from the state before to the state after, by one event for each object", () => {
    const keys = ["a", "b", "c", "d"];
    const write = fc.tuple(fc.constantFrom(...keys), fc.boolean());
    fc.assert(
      fc.property(fc.subarray(keys), fc.array(write, { maxLength: 30 }), (standing, writes) => {
        const state = new Map(standing.map((key) => [key, object(key, 1, "1")]));
        const before = new Map(state);
        const events: WatchEvent[] = [];
        for (const [i, [key, isDelete]] of writes.entries()) {
          const previous = state.get(key);
          if (isDelete && previous === undefined) continue;
          const revision = i + 2;
          if (isDelete) {
            const gone = previous?.deletedAt(revision) ?? object(key, revision);
            events.push(new WatchEvent("DELETED", gone, previous));
            state.delete(key);
            continue;
          }
          const type = previous === undefined ? "ADDED" : "MODIFIED";
          state.set(key, object(key, revision, `${revision}`));
          events.push(new WatchEvent(type, object(key, revision, `${revision}`), previous));
        }
        const fold = new Fold();
        for (const event of events) {
          fold.add(event);
          if (event.type === "DELETED") fold.gone(event.object.key);
        }
        expect(told(fold).map(short)).toEqual(naive(before, events));
        expect(fold.size).toBeLessThanOrEqual(before.size + state.size);
      }),
      { numRuns: 500 },
    );
  });
});
