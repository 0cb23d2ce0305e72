import { describe, expect, it } from "vitest";
import { brokenBy, honest } from "./guarantees.ts";
import { type Gap, knownChanges } from "./latest-state.ts";
import type { Change, SeenEvent, SeenObject, SeenResponse, Sequence } from "./recording.ts";

function object(
  key: string,
  value: string,
  createRevision: number,
  modRevision: number,
): SeenObject {
  return { key, value, createRevision, modRevision, version: 1 };
}

/**
 * What happened: a comes and changes; b comes into view at 4; a goes and comes again; c comes and goes. Only
 * what says "on" is in view.
 */
const a2 = object("a", "on", 2, 2);
const b3 = object("b", "off", 3, 3);
const b4 = object("b", "on", 3, 4);
const a5 = object("a", "on!", 2, 5);
const a7 = object("a", "on?", 7, 7);
const c8 = object("c", "on", 8, 8);
const b10 = object("b", "off", 3, 10);
const changes: readonly Change[] = [
  { revision: 2, key: "a", before: undefined, after: a2 },
  { revision: 3, key: "b", before: undefined, after: b3 },
  { revision: 4, key: "b", before: b3, after: b4 },
  { revision: 5, key: "a", before: a2, after: a5 },
  { revision: 6, key: "a", before: a5, after: undefined },
  { revision: 7, key: "a", before: undefined, after: a7 },
  { revision: 8, key: "c", before: undefined, after: c8 },
  { revision: 9, key: "c", before: c8, after: undefined },
  { revision: 10, key: "b", before: b4, after: b10 },
];

const view = {
  includes: () => true,
  matches: ({ value }: SeenObject) => value.startsWith("on"),
  includePrevious: true,
};

function delivered(type: SeenEvent["type"], object: SeenObject, previous?: SeenObject): SeenEvent {
  return { type, object, previous };
}

const addedA = delivered("ADDED", a2);
const addedB = delivered("ADDED", b4, b3);
const deletedB = delivered("DELETED", { ...b4, modRevision: 10 }, b4);
const modifiedA = delivered("MODIFIED", a7, a2);

function response(revision: number | undefined, ...events: SeenEvent[]): SeenResponse {
  return { revision, events, initialEventsEnd: false };
}

function initial(revision: number, ...events: SeenEvent[]): SeenResponse {
  return { revision, events, initialEventsEnd: true };
}

function sequence(...streams: (readonly SeenResponse[])[]): Sequence {
  return { view, delivery: "LATEST_STATE", streams };
}

/** The promises that a sequence breaks, each once. */
function broken(kept: Sequence, gaps: readonly Gap[] = []): string[] {
  const known = knownChanges(changes, gaps);
  return [...new Set(brokenBy(kept, known).map((wrong) => wrong.split(":")[0] ?? ""))];
}

describe("Every guarantee for LATEST_STATE is kept by", () => {
  it.each<readonly [what: string, Sequence]>([
    ["nothing at all", sequence()],
    [
      "every event",
      sequence([
        response(1),
        response(2, addedA),
        response(4, addedB),
        response(5, delivered("MODIFIED", a5, a2)),
        response(6, delivered("DELETED", { ...a5, modRevision: 6 }, a5)),
        response(7, delivered("ADDED", a7)),
        response(8, delivered("ADDED", c8)),
        response(9, delivered("DELETED", { ...c8, modRevision: 9 }, c8)),
        response(10, deletedB),
      ]),
    ],
    [
      "every event, in one response",
      sequence([response(1), response(5, addedA, addedB, delivered("MODIFIED", a5, a2))]),
    ],
    [
      "a coalesced batch of everything",
      sequence([response(1), response(10, delivered("ADDED", a7))]),
    ],
    [
      "a coalesced batch from the middle, with a re-creation",
      sequence([response(4), response(10, modifiedA, deletedB)]),
    ],
    [
      "a coalesced batch in chunks",
      sequence([response(4), response(undefined, modifiedA), response(10, deletedB)]),
    ],
    [
      "a coalesced batch of an object that was created and deleted, which is a bookmark",
      sequence([response(7), response(9)]),
    ],
    [
      "a coalesced batch after the initial state",
      sequence([
        response(undefined),
        initial(4, delivered("ADDED", a2), delivered("ADDED", b4)),
        response(10, modifiedA, deletedB),
      ]),
    ],
    [
      "a resumed stream that repeats the rest of an open atomic batch",
      sequence(
        [response(4), response(undefined, modifiedA)],
        [response(4), response(8, modifiedA, delivered("ADDED", c8))],
      ),
    ],
  ])("%s", (_what, kept) => {
    expect(broken(kept)).toEqual([]);
  });
});

describe("Each guarantee for LATEST_STATE, and it alone, is broken by", () => {
  it.each<readonly [promise: string, what: string, Sequence]>([
    [
      "Filter",
      "content that the object never had",
      sequence([response(4), response(7, delivered("MODIFIED", { ...a7, value: "on" }, a2))]),
    ],
    [
      "Filter",
      "a DELETED with the content that did not match",
      sequence([response(9), response(10, delivered("DELETED", b10, b4))]),
    ],
    [
      "Typed",
      "ADDED of an object that was in view before",
      sequence([response(4), response(7, { ...modifiedA, type: "ADDED" })]),
    ],
    [
      "Typed",
      "MODIFIED of an object that did not exist",
      sequence([response(1), response(7, { ...addedB, type: "MODIFIED" }, delivered("ADDED", a7))]),
    ],
    [
      "Typed",
      "an object that was created and deleted",
      sequence([response(7), response(9, delivered("DELETED", { ...c8, modRevision: 9 }))]),
    ],
    [
      "Ordered",
      "a revision before the first one",
      sequence([response(1), response(7, delivered("ADDED", a7), addedB)]),
    ],
    [
      "Unique",
      "the same change twice in one atomic batch",
      sequence([response(1), response(2, addedA, addedA)]),
    ],
    [
      "Reliable",
      "a state that is not the newest",
      sequence([response(4), response(7, delivered("MODIFIED", a5, a2))]),
    ],
    ["Reliable", "an object left out", sequence([response(4), response(10, modifiedA)])],
    ["Reliable", "a bookmark beyond what was delivered", sequence([response(4), response(10)])],
    [
      "Resumable",
      "a stream that begins beyond the previous one",
      sequence([response(2)], [response(3)]),
    ],
    [
      "Bookmarkable",
      "an event that was delivered, in an open atomic batch",
      sequence([response(1), response(2, addedA), response(undefined, addedA)]),
    ],
    [
      "Previous",
      "the object just before the event instead of before the atomic batch",
      sequence([response(4), response(7, delivered("MODIFIED", a7, a5))]),
    ],
    [
      "Previous",
      "no previous object",
      sequence([response(9), response(10, { ...deletedB, previous: undefined })]),
    ],
    [
      "Previous",
      "a previous object in the initial state",
      sequence([initial(2, delivered("ADDED", a2, a2))]),
    ],
  ])("%s: %s", (promise, _what, kept) => {
    expect(broken(kept)).toEqual([promise]);
  });
});

describe("A replica that missed events", () => {
  const gap = [{ after: 4, upTo: 10 }];
  const goneB = delivered("DELETED", { ...b4, modRevision: 10 }, b4);

  it.each<readonly [what: string, Sequence, readonly Gap[], readonly string[]]>([
    [
      "delivers how the states before and after differ",
      sequence([response(4), response(10, modifiedA, goneB)]),
      gap,
      [],
    ],
    ["leaves nothing out", sequence([response(4), response(10, modifiedA)]), gap, ["Reliable"]],
    [
      "deletes missing objects when it detects that",
      sequence([response(8), response(9, delivered("DELETED", { ...c8, modRevision: 9 }, c8))]),
      [{ after: 8, upTo: 9 }],
      [],
    ],
    [
      "can't know an object in between",
      sequence([response(2), response(4, delivered("ADDED", b4, b3))]),
      [{ after: 2, upTo: 4 }],
      ["Previous"],
    ],
  ])("%s", (_what, kept, gaps, expected) => {
    expect(broken(kept, gaps)).toEqual(expected);
  });
});

describe("Honest, for LATEST_STATE", () => {
  it.each<readonly [what: string, Sequence, number, number]>([
    ["is kept by a stream that is behind by what has come and gone", sequence([response(7)]), 9, 0],
    ["is broken by one that has gone quiet", sequence([response(4)]), 7, 1],
    ["is broken by one that has never said anything", sequence([]), 1, 1],
  ])("%s", (_what, kept, level, wrong) => {
    expect(honest(kept, changes, level)).toHaveLength(wrong);
  });
});
