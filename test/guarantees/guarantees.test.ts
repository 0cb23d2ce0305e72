import { describe, expect, it } from "vitest";
import { brokenBy, honest, linearizable, type SeenRead } from "./guarantees.ts";
import type { Change, SeenEvent, SeenObject, SeenResponse, Sequence } from "./recording.ts";

function object(
  key: string,
  value: string,
  revisions: readonly [number, number, number],
): SeenObject {
  const [createRevision, modRevision, version] = revisions;
  return { key, value, createRevision, modRevision, version };
}

/** The history: a and b are created, both change at once, a is deleted; b is in view only with the value "on". */
const a2 = object("a", "on", [2, 2, 1]);
const b3 = object("b", "off", [3, 3, 1]);
const a4 = object("a", "on!", [2, 4, 2]);
const b4 = object("b", "on", [3, 4, 2]);
const b6 = object("b", "off", [3, 6, 3]);
const changes: readonly Change[] = [
  { revision: 2, key: "a", before: undefined, after: a2 },
  { revision: 3, key: "b", before: undefined, after: b3 },
  { revision: 4, key: "a", before: a2, after: a4 },
  { revision: 4, key: "b", before: b3, after: b4 },
  { revision: 5, key: "a", before: a4, after: undefined },
  { revision: 6, key: "b", before: b4, after: b6 },
];

const view = {
  includes: () => true,
  matches: ({ value }: SeenObject) => value.startsWith("on"),
  includePrevious: true,
};

function delivered(
  type: SeenEvent["type"],
  object: SeenObject,
  previous: SeenObject | undefined,
): SeenEvent {
  return { type, object, previous };
}

const addedA = delivered("ADDED", a2, undefined);
const modifiedA = delivered("MODIFIED", a4, a2);
const addedB = delivered("ADDED", b4, b3);
const deletedA = delivered("DELETED", { ...a4, modRevision: 5 }, a4);
const deletedB = delivered("DELETED", { ...b4, modRevision: 6 }, b4);

function response(revision: number | undefined, ...events: SeenEvent[]): SeenResponse {
  return { revision, events, initialEventsEnd: false };
}

function initial(revision: number, ...events: SeenEvent[]): SeenResponse {
  return { revision, events, initialEventsEnd: true };
}

function sequence(...streams: (readonly SeenResponse[])[]): Sequence {
  return { view, streams };
}

/** The promises that a sequence breaks, each once. */
function broken(kept: Sequence): string[] {
  return [...new Set(brokenBy(kept, changes).map((wrong) => wrong.split(":")[0] ?? ""))];
}

describe("Every guarantee is kept by", () => {
  const right: readonly (readonly [what: string, Sequence])[] = [
    ["nothing at all", sequence()],
    ["a stream that has said nothing", sequence([])],
    [
      "all in one stream",
      sequence([
        response(1),
        response(2, addedA),
        response(3),
        response(4, modifiedA, addedB),
        response(5, deletedA),
        response(6, deletedB),
      ]),
    ],
    [
      "several revisions in a response",
      sequence([response(1), response(6, addedA, modifiedA, addedB, deletedA, deletedB)]),
    ],
    [
      "the initial state, and the events after it",
      sequence([
        response(undefined),
        initial(4, delivered("ADDED", a4, undefined), delivered("ADDED", b4, undefined)),
        response(6, deletedA, deletedB),
      ]),
    ],
    [
      "a revision in two responses of one atomic batch",
      sequence([response(3), response(undefined, modifiedA), response(4, addedB)]),
    ],
    [
      "a resumed stream that repeats the rest of an open atomic batch",
      sequence(
        [response(3), response(undefined, modifiedA)],
        [response(3), response(4, modifiedA, addedB)],
      ),
    ],
    ["a stream resumed twice", sequence([response(3)], [response(3)], [response(3), response(3)])],
    ["a stream that was refused when it was resumed", sequence([response(3)], [])],
  ];

  it.each(right)("%s", (_what, kept) => {
    expect(brokenBy(kept, changes)).toEqual([]);
  });
});

describe("Each guarantee, and it alone, is broken by", () => {
  const wrong: readonly (readonly [promise: string, what: string, Sequence])[] = [
    [
      "Filter",
      "an object that is in view neither before nor after",
      sequence([response(2), response(3, delivered("DELETED", b3, undefined))]),
    ],
    [
      "Filter",
      "an event that did not happen",
      sequence([
        response(6),
        response(7, delivered("ADDED", object("c", "on", [7, 7, 1]), undefined)),
      ]),
    ],
    [
      "Filter",
      "content that the object never had",
      sequence([response(1), response(2, delivered("ADDED", { ...a2, value: "on?" }, undefined))]),
    ],
    [
      "Filter",
      "a DELETED with the content that did not match",
      sequence([response(5), response(6, delivered("DELETED", b6, b4))]),
    ],
    [
      "Typed",
      "ADDED of an object that was in view",
      sequence([response(4), response(5, { ...deletedA, type: "ADDED" }), response(6, deletedB)]),
    ],
    [
      "Typed",
      "MODIFIED of an object that enters the view",
      sequence([response(3), response(4, modifiedA, { ...addedB, type: "MODIFIED" })]),
    ],
    [
      "Ordered",
      "a revision before the first one, in one atomic batch",
      sequence([response(3), response(5, deletedA, modifiedA, addedB)]),
    ],
    ["Ordered", "a resume point that goes back", sequence([response(3), response(2)])],
    [
      "Unique",
      "the same change twice in one atomic batch",
      sequence([response(1), response(2, addedA, addedA)]),
    ],
    [
      "Reliable",
      "a change left out between two others",
      sequence([response(1), response(2, addedA), response(5, deletedA)]),
    ],
    ["Reliable", "a bookmark beyond what was delivered", sequence([response(1), response(2)])],
    [
      "Atomic",
      "a revision in two atomic batches, of which the first ends at the previous revision",
      sequence([response(3), response(3, modifiedA), response(4, addedB)]),
    ],
    [
      "Resumable",
      "a stream that begins beyond the previous one, although nothing is lost",
      sequence([response(2)], [response(3)]),
    ],
    [
      "Resumable",
      "a stream that begins with an event",
      sequence([response(1)], [response(2, addedA)]),
    ],
    [
      "Bookmarkable",
      "an event that was delivered, in an atomic batch that never closes",
      sequence([response(1), response(2, addedA), response(undefined, addedA)]),
    ],
    [
      "Previous",
      "a wrong previous object",
      sequence([response(3), response(4, delivered("MODIFIED", a4, a4), addedB)]),
    ],
    [
      "Previous",
      "no previous object",
      sequence([response(3), response(4, delivered("MODIFIED", a4, undefined), addedB)]),
    ],
    [
      "Previous",
      "a previous object in the initial state",
      sequence([initial(4, delivered("ADDED", a4, a2), delivered("ADDED", b4, undefined))]),
    ],
  ];

  it.each(wrong)("%s: %s", (promise, _what, kept) => {
    expect(broken(kept)).toEqual([promise]);
  });

  it("Previous: a previous object that was not requested", () => {
    const streams = [[response(3), response(4, modifiedA, addedB)]];
    const incurious = { ...view, includePrevious: false };
    expect(broken({ view: incurious, streams })).toEqual(["Previous"]);
  });
});

describe("Linearizable", () => {
  const read: SeenRead = { view, notBefore: 4, revision: 4, objects: [a4, b4] };

  it.each<readonly [string, SeenRead]>([
    ["the state when the call began", read],
    ["a newer one", { ...read, revision: 5, objects: [b4] }],
    ["an empty one", { ...read, revision: 6, objects: [] }],
  ])("is kept by %s", (_what, seen) => {
    expect(linearizable(seen, changes)).toEqual([]);
  });

  it.each<readonly [string, SeenRead]>([
    ["a state from before the call", { ...read, revision: 3, objects: [a2] }],
    ["an object left out", { ...read, objects: [a4] }],
    ["an object that is not in view", { ...read, revision: 6, objects: [b6] }],
    ["an object as it was", { ...read, objects: [a2, b4] }],
    ["another order than that of the keys", { ...read, objects: [b4, a4] }],
  ])("is broken by %s", (_what, seen) => {
    expect(linearizable(seen, changes)).toHaveLength(1);
  });
});

describe("Honest", () => {
  it("is kept by a stream whose resume point is behind only by events that it does not select", () => {
    const behind = sequence([response(2), response(2)]);
    expect(honest(behind, changes, 3)).toEqual([]);
  });

  it("is broken by a stream that became silent", () => {
    const quiet = sequence([response(3), response(4, modifiedA, addedB)]);
    expect(brokenBy(quiet, changes)).toEqual([]);
    expect(honest(quiet, changes, 5)).toEqual(['"a"@5 is missing between 3 and 5']);
  });

  it("is broken by a stream that was never completed", () => {
    expect(honest(sequence([]), changes, 1)).toHaveLength(1);
  });
});
