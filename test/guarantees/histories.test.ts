import { describe, expect, it } from "vitest";
import {
  type Ending,
  explainRead,
  explainSequence,
  honestEnd,
  type Named,
  oneHistoryEach,
  type SequenceInTime,
} from "./histories.ts";
import type { Change, SeenEvent, SeenObject, SeenResponse } from "./recording.ts";

const view = { includes: () => true, matches: () => true, includePrevious: false };

function object(value: string, modRevision: number): SeenObject {
  return { key: "a", value, createRevision: 2, modRevision, version: modRevision - 1 };
}

function change(value: string, revision: number): Change {
  const before = revision === 2 ? undefined : object(value, revision - 1);
  return { revision, key: "a", before, after: object(value, revision) };
}

/** Of two histories, the second begins at 2, where the store was put back to. */
const old = [change("old", 2), change("old", 3), change("old", 4)];
const anew = [...old.slice(0, 1), change("new", 3), change("new", 4)];
const eras = [old, anew];

function response(revision: number, ...events: SeenEvent[]): SeenResponse {
  return { revision, events, initialEventsEnd: false };
}

function initial(revision: number, ...events: SeenEvent[]): SeenResponse {
  return { ...response(revision, ...events), initialEventsEnd: true };
}

function modified(value: string, revision: number): SeenEvent {
  return { type: "MODIFIED", object: object(value, revision), previous: undefined };
}

function added(value: string, revision: number): SeenEvent {
  return { type: "ADDED", object: object(value, revision), previous: undefined };
}

function delivered(...responses: SeenResponse[]): SequenceInTime {
  return { sequence: { view, streams: [responses] }, fromEra: 0, toEra: 1 };
}

describe("What streams have delivered", () => {
  it.each<readonly [string, SequenceInTime, readonly number[]]>([
    ["of the first history", delivered(response(2), response(3, modified("old", 3))), [0]],
    [
      "of the second",
      delivered(response(2), response(4, modified("new", 3), modified("new", 4))),
      [1],
    ],
    ["of what both have", delivered(response(1), response(2, added("old", 2))), [0, 1]],
    ["nothing", delivered(), [0, 1]],
    ["the state of the second", delivered(initial(3, added("new", 3))), [1]],
  ])("is explained: %s", (_what, sequence, expected) => {
    expect(explainSequence(sequence, eras)).toEqual({ eras: expected, wrong: [] });
  });

  it.each<readonly [string, SequenceInTime]>([
    [
      "two histories as if they were one",
      delivered(response(2), response(3, modified("old", 3)), response(4, modified("new", 4))),
    ],
    ["a jump from one to the other", delivered(response(2), response(4, modified("new", 4)))],
    ["the state of neither", delivered(initial(4, added("old", 3)))],
    ["a state of which something is MODIFIED", delivered(initial(3, modified("new", 3)))],
    [
      "a history that was over when it began",
      { ...delivered(response(2), response(3, modified("old", 3))), fromEra: 1 },
    ],
    [
      "a history that had not begun when it ended",
      { ...delivered(response(2), response(3, modified("new", 3))), toEra: 0 },
    ],
    ["a state from before the call", { ...delivered(initial(3, added("old", 3))), notBefore: 4 }],
    ["a beginning from before the call", { ...delivered(response(3)), toEra: 0, notBefore: 4 }],
  ])("is not: %s", (_what, sequence) => {
    const { eras: found, wrong } = explainSequence(sequence, eras);
    expect(found).toEqual([]);
    expect(wrong.length).toBeGreaterThan(0);
  });
});

describe("What reads have returned", () => {
  const read = { view, notBefore: 0, revision: 3, objects: [object("new", 3)] };

  it("is explained by the history whose state it is", () => {
    expect(explainRead({ read, fromEra: 0, toEra: 1 }, eras).eras).toEqual([1]);
  });

  it("must be as new as the acknowledged writes, in the history that acknowledged them", () => {
    const late = { ...read, notBefore: 4 };
    expect(explainRead({ read: late, fromEra: 0, toEra: 1 }, eras).eras).toEqual([1]);
    expect(explainRead({ read: late, fromEra: 1, toEra: 1 }, eras).wrong).toHaveLength(1);
  });
});

function named(historyId: string, ...eras: number[]): Named {
  return { historyId, eras, what: "someone" };
}

describe("The id of a history", () => {
  it("may belong to several, of which one explains everything", () => {
    const all = [named("x", 0, 1), named("x", 1)];
    expect(oneHistoryEach([...all, named("y", 1)])).toEqual([]);
  });

  it("belongs to one history only, if it has an id", () => {
    const unknown = [named("", 0), named("", 1)];
    expect(oneHistoryEach(unknown)).toEqual([]);
    const known = [named("x", 0), named("x", 1)];
    expect(oneHistoryEach(known)).toHaveLength(1);
  });
});

describe("The end of a stream", () => {
  const reasons = new Set(["DRAINING"]);
  const end: Ending = {
    ...{ code: 14, reason: "DRAINING", resumePoint: 7 },
    metadata: { resume_revision: "7" },
    isCutOff: false,
  };

  it.each<readonly [string, Ending]>([
    ["for a reason that existed, at its last resume point", end],
    ["that names no revision", { ...end, metadata: {} }],
    ["of the connection", { ...end, code: -1, reason: "", metadata: {}, resumePoint: undefined }],
    ["at a revision whose message its client dropped", { ...end, resumePoint: 6, isCutOff: true }],
    ["before its client read anything", { ...end, resumePoint: undefined, isCutOff: true }],
  ])("is honest: %s", (_what, honest) => {
    expect(honestEnd(honest, reasons)).toEqual([]);
  });

  it.each<readonly [string, Ending]>([
    ["without an error", { ...end, code: 0, reason: "" }],
    ["with an error that says nothing", { ...end, reason: "" }],
    ["for a reason that did not exist", { ...end, reason: "HISTORY_LOST" }],
    ["at a revision that it has not delivered", { ...end, metadata: { resume_revision: "8" } }],
    ["at a revision, before it delivered anything", { ...end, resumePoint: undefined }],
    ["before a revision that it has delivered", { ...end, resumePoint: 8, isCutOff: true }],
  ])("is not: %s", (_what, wrong) => {
    expect(honestEnd(wrong, reasons)).toHaveLength(1);
  });
});
