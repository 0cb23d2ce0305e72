import { describe, expect, it } from "vitest";
import type { EventNode } from "../../../src/cacher/state/event-node.ts";
import { EventWindow, type EventWindowBounds } from "../../../src/cacher/state/event-window.ts";
import { estimatedBytes } from "../../../src/model/object.ts";
import { FakeClock } from "../../fake-clock.ts";
import fc, { runs } from "../../property.ts";
import { event, object, short } from "../objects.ts";

/** Unlimited bounds, except for those that a test sets. */
const unbounded: EventWindowBounds = {
  ageMs: Number.MAX_SAFE_INTEGER,
  minEvents: 0,
  maxEvents: Number.MAX_SAFE_INTEGER,
  maxBytes: Number.MAX_SAFE_INTEGER,
};

function open(bounds: Partial<EventWindowBounds> = {}, revision = 0) {
  const clock = new FakeClock();
  return { clock, eventWindow: new EventWindow({ ...unbounded, ...bounds }, clock, revision) };
}

/** Appends one event per revision, of equal size, a millisecond apart. */
function fill(eventWindow: EventWindow, clock: FakeClock, from: number, to: number): void {
  for (let revision = from; revision <= to; revision++) {
    clock.advance(1);
    eventWindow.append(event("ADDED", "k", revision), undefined, clock.now());
  }
}

const eventWeight = event("ADDED", "k", 1).estimatedBytes;

/** All revisions after `node`, by its links. */
function revisionsAfter(node: EventNode | undefined): number[] {
  const revisions: number[] = [];
  for (let next = node?.next; next !== undefined; next = next.next) revisions.push(next.revision);
  return revisions;
}

/** The revisions in the window, by its links. */
function window(eventWindow: EventWindow): number[] {
  return revisionsAfter(eventWindow.floor);
}

describe("A new event window", () => {
  it("is empty, at the revision that it begins with", () => {
    const { eventWindow } = open({}, 7);
    expect(eventWindow.floor).toBe(eventWindow.newest);
    expect(eventWindow.floor).toMatchObject({ revision: 7, event: undefined, next: undefined });
    expect([eventWindow.length, eventWindow.bytes, eventWindow.oldestAgeMs]).toEqual([0, 0, 0]);
  });

  it.each([
    [6, false],
    [7, true],
    [8, true],
  ])("can be resumed after %i: %s", (revision, found) => {
    const { eventWindow } = open({}, 7);
    expect(eventWindow.find(revision)).toBe(found ? eventWindow.floor : undefined);
  });
});

describe("The bounds of an event window", () => {
  it("drop the oldest events beyond the maximum number", () => {
    const { clock, eventWindow } = open({ maxEvents: 3 });
    fill(eventWindow, clock, 1, 5);
    expect(window(eventWindow)).toEqual([3, 4, 5]);
    expect(eventWindow.length).toBe(3);
    expect(eventWindow.floor.revision).toBe(2);
  });

  it("drop the oldest events beyond the maximum bytes, which include previous objects", () => {
    const { clock, eventWindow } = open({ maxBytes: 3 * eventWeight });
    fill(eventWindow, clock, 1, 3);
    expect(window(eventWindow)).toEqual([1, 2, 3]);
    const previous = object("k", 3);
    eventWindow.append(event("MODIFIED", "k", 4), previous, clock.now());
    expect(window(eventWindow)).toEqual([3, 4]);
    expect(eventWindow.bytes).toBe(2 * eventWeight + estimatedBytes(previous));
  });

  it("drop even a single event that exceeds the maximum bytes", () => {
    const { clock, eventWindow } = open({ maxBytes: 100, minEvents: 10 });
    eventWindow.append(event("ADDED", "k", 1, "x".repeat(200)), undefined, clock.now());
    expect(window(eventWindow)).toEqual([]);
    expect(eventWindow.floor).toBe(eventWindow.newest);
    expect(eventWindow.bytes).toBe(0);
    fill(eventWindow, clock, 2, 2);
    expect(window(eventWindow)).toEqual([2]);
  });

  it("drop events older than the age, but not those exactly as old", () => {
    const { clock, eventWindow } = open({ ageMs: 100 });
    fill(eventWindow, clock, 1, 3);
    clock.advance(98);
    eventWindow.trim(clock.now());
    expect(window(eventWindow)).toEqual([1, 2, 3]);
    expect(eventWindow.oldestAgeMs).toBe(100);
    clock.advance(1);
    eventWindow.trim(clock.now());
    expect(window(eventWindow)).toEqual([2, 3]);
    expect(eventWindow.oldestAgeMs).toBe(100);
  });

  it("keep the minimum number of events regardless of their age", () => {
    const { clock, eventWindow } = open({ ageMs: 100, minEvents: 2 });
    fill(eventWindow, clock, 1, 4);
    clock.advance(1_000_000);
    eventWindow.trim(clock.now());
    expect(window(eventWindow)).toEqual([3, 4]);
  });

  it("drop even the minimum number of events beyond the maximum number or bytes", () => {
    for (const bounds of [{ maxEvents: 2 }, { maxBytes: 2 * eventWeight }]) {
      const { clock, eventWindow } = open({ minEvents: 5, ...bounds });
      fill(eventWindow, clock, 1, 5);
      expect(window(eventWindow)).toEqual([4, 5]);
    }
  });

  it("may split a revision, after which a watch can be resumed, but not before", () => {
    const { clock, eventWindow } = open({ maxEvents: 2 });
    for (const [revision, key] of [
      [1, "a"],
      [2, "a"],
      [2, "b"],
      [2, "c"],
    ] as const) {
      eventWindow.append(event("ADDED", key, revision), undefined, clock.now());
    }
    expect(window(eventWindow)).toEqual([2, 2]);
    expect(eventWindow.find(1)).toBeUndefined();
    expect(eventWindow.find(2)).toBe(eventWindow.newest);
  });
});

describe("The ring of an event window", () => {
  it("grows to thousands of events and shrinks again, and finds every revision", () => {
    const { clock, eventWindow } = open({ ageMs: 1_000, minEvents: 3 });
    let revision = 0;
    for (const burst of [5_000, 10, 1, 700, 2, 2, 2, 2, 2]) {
      for (const last = revision + burst; revision < last; ) {
        revision++;
        eventWindow.append(event("ADDED", "k", revision), undefined, clock.now());
      }
      const first = eventWindow.floor.revision;
      for (const asked of [first, first + 1, revision - 1, revision]) {
        expect(eventWindow.find(asked)?.revision).toBe(asked);
      }
      expect(eventWindow.length).toBe(revision - first);
      expect(eventWindow.length).toBe(Math.max(3, burst));
      clock.advance(1_001);
    }
  });
});

describe("A reader of an event window", () => {
  it("follows the links from its node even if that has been dropped", () => {
    const { clock, eventWindow } = open({ maxEvents: 2 });
    const beginning = eventWindow.newest;
    fill(eventWindow, clock, 1, 100);
    expect(eventWindow.covers(beginning)).toBe(false);
    expect(revisionsAfter(beginning)).toEqual(Array.from({ length: 100 }, (_, i) => i + 1));
  });

  it("is covered by the window from the floor on, and not before it", () => {
    const { clock, eventWindow } = open({ maxEvents: 3 });
    const nodes = [eventWindow.newest];
    for (let revision = 1; revision <= 6; revision++) {
      fill(eventWindow, clock, revision, revision);
      nodes.push(eventWindow.newest);
    }
    expect(nodes.map((node) => eventWindow.covers(node))).toEqual([
      ...[false, false, false],
      ...[true, true, true, true],
    ]);
    expect(nodes[3]).toBe(eventWindow.floor);
  });

  it("gets the event with its previous object, the same for all readers", () => {
    const { clock, eventWindow } = open();
    eventWindow.append(event("MODIFIED", "k", 2, "b"), object("k", 1, "a"), clock.now());
    const { event: plain, eventWithPrevious: whole } = eventWindow.newest;
    expect(plain && short(plain)).toBe("MODIFIED k=b@2");
    expect(whole && short(whole)).toBe("MODIFIED k=b@2 (a@1)");
    expect(eventWindow.newest.eventWithPrevious).toBe(whole);
    eventWindow.append(event("ADDED", "l", 3), undefined, clock.now());
    expect(eventWindow.newest.eventWithPrevious).toBe(eventWindow.newest.event);
  });
});

describe("Any event window", () => {
  const step = fc.oneof(
    {
      weight: 5,
      arbitrary: fc.record({
        do: fc.constant("append" as const),
        /** 0 is one more event of the same revision. */
        ahead: fc.integer({ min: 0, max: 3 }),
        size: fc.integer({ min: 0, max: 300 }),
        before: fc.boolean(),
        times: fc.constantFrom(1, 1, 1, 5, 40),
      }),
    },
    { weight: 2, arbitrary: fc.record({ do: fc.constant("wait" as const), ms: fc.nat(60) }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant("trim" as const) }) },
  );
  const bounds = fc.record({
    ageMs: fc.constantFrom(0, 10, 100, Number.MAX_SAFE_INTEGER),
    minEvents: fc.constantFrom(0, 1, 10, 100),
    maxEvents: fc.constantFrom(1, 5, 17, 64, 1_000),
    maxBytes: fc.constantFrom(100, 2_000, 20_000, Number.MAX_SAFE_INTEGER),
  });

  it("holds the same as a plain array with the same bounds, and finds the same revisions", () => {
    fc.assert(
      fc.property(bounds, fc.array(step, { maxLength: 60 }), (limits, steps) => {
        const begun = 10;
        const { clock, eventWindow } = open(limits, begun);
        const model = new Model(limits, begun);
        let revision = begun;
        for (const action of steps) {
          if (action.do === "wait") clock.advance(action.ms);
          else if (action.do === "trim") {
            eventWindow.trim(clock.now());
            model.trim(clock.now());
          } else {
            for (let i = 0; i < action.times; i++) {
              revision = Math.max(begun + 1, revision + action.ahead);
              const added = event("MODIFIED", "k", revision, "x".repeat(action.size));
              const previous = action.before ? object("k", 1, "before") : undefined;
              const bytes =
                added.estimatedBytes + (previous === undefined ? 0 : estimatedBytes(previous));
              eventWindow.append(added, previous, clock.now());
              model.append({ revision, bytes, at: clock.now() });
            }
          }
          model.compare(eventWindow, clock.now());
        }
      }),
      { numRuns: runs(300) },
    );
  });
});

interface Entry {
  readonly revision: number;
  readonly bytes: number;
  readonly at: number;
}

/** The model: an array from which events beyond the bounds are shifted. */
class Model {
  readonly #bounds: EventWindowBounds;
  readonly #entries: Entry[] = [];
  #floor: number;

  constructor(bounds: EventWindowBounds, revision: number) {
    this.#bounds = bounds;
    this.#floor = revision;
  }

  get bytes(): number {
    return this.#entries.reduce((sum, { bytes }) => sum + bytes, 0);
  }

  append(entry: Entry): void {
    this.#entries.push(entry);
    this.trim(entry.at);
  }

  trim(now: number): void {
    const { ageMs, minEvents, maxEvents, maxBytes } = this.#bounds;
    for (let [oldest] = this.#entries; oldest !== undefined; [oldest] = this.#entries) {
      const count = this.#entries.length;
      const aged = now - oldest.at > ageMs && count > minEvents;
      if (!aged && count <= maxEvents && this.bytes <= maxBytes) return;
      this.#entries.shift();
      this.#floor = oldest.revision;
    }
  }

  compare(eventWindow: EventWindow, now: number): void {
    const revisions = this.#entries.map((entry) => entry.revision);
    expect(window(eventWindow)).toEqual(revisions);
    expect(eventWindow.length).toBe(revisions.length);
    expect(eventWindow.bytes).toBe(this.bytes);
    expect(eventWindow.floor.revision).toBe(this.#floor);
    expect(eventWindow.newest.revision).toBe(revisions.at(-1) ?? this.#floor);
    const [oldest] = this.#entries;
    expect(eventWindow.oldestAgeMs).toBe(oldest === undefined ? 0 : now - oldest.at);
    const asked = [this.#floor - 1, this.#floor, ...revisions, eventWindow.newest.revision + 5];
    for (const revision of new Set(asked)) {
      const found = eventWindow.find(revision);
      if (revision < this.#floor) expect(found).toBeUndefined();
      else {
        const below = revisions.filter((other) => other <= revision);
        expect(found?.revision).toBe(below.at(-1) ?? this.#floor);
        expect(revisionsAfter(found)).toEqual(revisions.slice(below.length));
      }
    }
  }
}

describe("The room of an event window", () => {
  it("is what is left of its bounds", () => {
    const { clock, eventWindow } = open({ maxEvents: 5, maxBytes: 10 * eventWeight });
    expect(eventWindow.room).toEqual({ events: 5, bytes: 10 * eventWeight });
    fill(eventWindow, clock, 1, 3);
    expect(eventWindow.room).toEqual({ events: 2, bytes: 7 * eventWeight });
    fill(eventWindow, clock, 4, 9);
    expect(eventWindow.room).toEqual({ events: 0, bytes: 5 * eventWeight });
  });
});

describe("An event window that follows on another one", () => {
  it("is reached from it by the events between, and does not cover it", () => {
    const { clock, eventWindow } = open({}, 3);
    fill(eventWindow, clock, 4, 5);
    const { newest } = eventWindow;
    const between = [{ event: event("ADDED", "b", 7), previous: object("b", 6) }];
    const next = eventWindow.succeed(9, between);
    expect(revisionsAfter(newest)).toEqual([7, 9]);
    expect([newest.sequence, next.floor.sequence]).toEqual([2, 4]);
    expect([next.covers(newest), next.covers(next.floor)]).toEqual([false, true]);
    expect([next.length, next.bytes]).toEqual([0, 0]);
    // What a reader of the old window has yet to read.
    expect(next.floor.bytes - newest.bytes).toBeGreaterThan(eventWeight);
  });
});
