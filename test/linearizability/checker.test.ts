import { beforeAll, describe, expect, test } from "vitest";
import type { SeenObject } from "../guarantees/recording.ts";
import type { History, Input, Operation, Output } from "./history.ts";
import { lostWrite, readFromNowhere, refusedAndDone, staleRead } from "./planted.ts";
import { buildChecker, buildTimeoutMs, hasGo, verdictOf } from "./porcupine.ts";

type Revisions = readonly [create: number, mod: number, version: number];

function object(key: string, value: string, revisions: Revisions): SeenObject {
  const [createRevision, modRevision, version] = revisions;
  return { key, value, createRevision, modRevision, version };
}

const a2 = object("a", "a2", [2, 2, 1]);
const a3 = object("a", "a3", [2, 3, 2]);
const b4 = object("b", "b4", [4, 4, 1]);
const a5 = object("a", "a5", [2, 5, 3]);
const b5 = object("b", "b5", [4, 5, 2]);
const b7 = object("b", "b7", [7, 7, 1]);

const inA = { key: "a", isPrefix: false };
const inB = { key: "b", isPrefix: false };
const everything = { key: "", isPrefix: true };

/** `places`: of the call and the return. */
function done(places: readonly [number, number], input: Input, output?: Output): Operation {
  const [call, end] = places;
  return { client: 0, call, return: end, input, output };
}

function put(key: string, value: string): Input {
  return { puts: [{ key, value }], range: { key, isPrefix: false } };
}

function read(places: readonly [number, number], revision: number, ...after: SeenObject[]) {
  return done(places, { range: everything }, { succeeded: true, revision, after });
}

const ifA2: Input = { ...put("a", "x"), condition: { key: "a", modRevision: 2 } };
const ifNoB: Input = { ...put("b", "b4"), condition: { key: "b", modRevision: 0 } };

/** Every kind of operation; the writes of b7 and of "never" have an unknown outcome. */
const operations: readonly Operation[] = [
  done([0, 3], put("a", "a2"), { succeeded: true, revision: 2, before: [] }),
  // At the same time as the write, and of either side of it.
  read([1, 4], 1),
  read([2, 5], 2, a2),
  done([6, 7], put("a", "a3"), { succeeded: true, revision: 3, before: [a2], after: [a3] }),
  done([8, 9], ifA2, { succeeded: false, modRevision: 3 }),
  done([10, 11], ifNoB, { succeeded: true, revision: 4, after: [b4] }),
  done([12, 13], put("a", "never")),
  done(
    [14, 15],
    { puts: [put("a", "a5"), put("b", "b5")].flatMap(({ puts = [] }) => puts), range: everything },
    { succeeded: true, revision: 5, after: [a5, b5] },
  ),
  done([16, 17], { deletes: ["b"], range: inB }, { succeeded: true, revision: 6, before: [b5] }),
  done([18, 19], { deletes: ["b"], range: inB }, { succeeded: true, revision: 6, before: [] }),
  done([20, 21], { range: inA }, { succeeded: true, revision: 6, after: [a5] }),
  done([22, 23], put("b", "b7")),
  read([24, 25], 6, a5),
  // It is done long after its client has given up.
  read([26, 27], 7, a5, b7),
];
const right: History = { revision: 1, operations };

function replaced(place: number, by: Partial<Operation>): History {
  return {
    ...right,
    operations: operations.map((each, i) => (i === place ? { ...each, ...by } : each)),
  };
}

function output(place: number, by: Partial<Output>): History {
  const before = operations[place]?.output;
  if (before === undefined) throw new RangeError(`${place} has no output.`);
  return replaced(place, { output: { ...before, ...by } });
}

describe.skipIf(!(await hasGo()))("The checker", () => {
  beforeAll(buildChecker, buildTimeoutMs);

  test("accepts a linearizable history", async () => {
    const verdict = { result: "Ok", operations: operations.length };
    expect(await verdictOf("right", right)).toEqual(verdict);
  });

  test.for<readonly [string, History]>([
    ["a stale read", staleRead(right)],
    ["a lost write", lostWrite(right)],
    ["an object without a write", readFromNowhere(right)],
    ["a refused write that was done", refusedAndDone(right)],
    ["a read of a write before its call", output(1, { revision: 3, after: [a3] })],
    ["a write acknowledged at another revision", output(3, { revision: 4 })],
    ["half of a transaction", output(7, { after: [a5, b4] })],
    ["a conflict with a revision that the object did not have", output(4, { modRevision: 4 })],
    ["a conflict where the condition held", output(5, { succeeded: false })],
    ["a condition that did not hold, and a write", output(4, { succeeded: true })],
    ["a deleted object that is still read", output(12, { after: [a5, b5] })],
    ["a deletion of another object", output(8, { before: [b4] })],
    ["a wrong version", output(10, { after: [{ ...a5, version: 2 }] })],
    ["a wrong create_revision", output(10, { after: [{ ...a5, createRevision: 5 }] })],
    [
      "a write of unknown outcome that was done twice",
      output(13, { revision: 8, after: [a5, { ...b7, modRevision: 8, version: 2 }] }),
    ],
    ["a write of unknown outcome that was undone", output(13, { revision: 7, after: [a5] })],
  ])("rejects %s", async ([, wrong]) => {
    const verdict = await verdictOf("wrong", wrong);
    expect(verdict).toMatchObject({ result: "Illegal", operations: wrong.operations.length });
  });

  const at = (keys: readonly string[]): Input["range"] => ({ key: "", isPrefix: false, keys });
  const both = at(["a", "b"]);
  const putBoth = { puts: [put("a", "a2"), put("b", "b2")].flatMap(({ puts = [] }) => puts) };
  const request: Input = { ...putBoth, range: both, requestId: "1" };
  const b2 = object("b", "b2", [2, 2, 1]);
  const c4 = object("c", "c4", [4, 4, 1]);
  const putC = { ...put("c", "c4"), compares: [{ key: "a", createRevision: 2 }] };
  /** With ids, compares of several kinds, reads of several keys and a prefix that is deleted. */
  const transactions: History = {
    revision: 1,
    operations: [
      // Its response is lost; the repetition has the answer.
      done([0, 1], request),
      done([2, 3], request, { succeeded: true, revision: 2, before: [], after: [a2, b2] }),
      done([4, 5], { range: both }, { succeeded: true, revision: 2, after: [a2, b2] }),
      done([6, 7], put("a", "a3"), { succeeded: true, revision: 3, before: [a2], after: [a3] }),
      // Answered as before, although the object has changed.
      done([8, 9], request, { succeeded: true, revision: 2, before: [], after: [a2, b2] }),
      done([10, 11], { ...put("a", "a4"), requestId: "1" }, { succeeded: false, isReused: true }),
      done([12, 13], putC, { succeeded: true, revision: 4, after: [c4] }),
      done(
        [14, 15],
        {
          ...put("c", "c5"),
          compares: [
            { key: "b", exists: false },
            { key: "a", value: "a3" },
          ],
        },
        {
          ...{ succeeded: false, revision: 4 },
          compares: [
            { held: false, object: b2 },
            { held: true, object: a3 },
          ],
        },
      ),
      done(
        [16, 17],
        { deletePrefix: "", validateOnly: true, range: at([]) },
        { succeeded: true, revision: 4, deleted: 3 },
      ),
      done([18, 19], { range: at(["a", "c"]) }, { succeeded: true, revision: 4, after: [a3, c4] }),
      done(
        [20, 21],
        { deletePrefix: "", range: at([]) },
        { succeeded: true, revision: 5, deleted: 3 },
      ),
      done([22, 23], { range: everything }, { succeeded: true, revision: 5, after: [] }),
      // With an id a deletion of nothing is a write.
      done(
        [24, 25],
        { deletePrefix: "", requestId: "2", range: at([]) },
        { succeeded: true, revision: 6, deleted: 0 },
      ),
    ],
  };

  test("accepts a linearizable history of transactions", async () => {
    const verdict = { result: "Ok", operations: transactions.operations.length };
    expect(await verdictOf("right-transactions", transactions)).toEqual(verdict);
  });

  /** Nothing is deleted, the response to that is lost, and its repetition is answered with the revision of then. */
  const emptyRequest: Input = { deletePrefix: "", requestId: "1", range: at([]) };
  const unmarked: History = {
    ...{ revision: 1, idsTakeNoRevision: true },
    operations: [
      done([0, 1], emptyRequest),
      done([2, 3], put("a", "a2"), { succeeded: true, revision: 2, before: [], after: [a2] }),
      done([4, 5], emptyRequest, { succeeded: true, revision: 1, deleted: 0 }),
      read([6, 7], 2, a2),
    ],
  };

  test("accepts ids without a revision of their own only of a store that has such", async () => {
    expect(await verdictOf("right-unmarked", unmarked)).toMatchObject({ result: "Ok" });
    const marked = { ...unmarked, idsTakeNoRevision: false };
    expect(await verdictOf("wrong-unmarked", marked)).toMatchObject({ result: "Illegal" });
  });

  function changed(place: number, by: Partial<Output>): History {
    const changedOne = transactions.operations.map((each, i) =>
      i === place && each.output !== undefined
        ? { ...each, output: { ...each.output, ...by } }
        : each,
    );
    return { ...transactions, operations: changedOne };
  }

  test.for<readonly [string, History]>([
    ["a repetition that was applied again", changed(1, { revision: 3 })],
    ["a repetition that is answered with the present", changed(4, { after: [a3, b2] })],
    ["an id that is used again", changed(5, { succeeded: true, isReused: false, revision: 4 })],
    ["a transaction of half of its writes", changed(2, { after: [a2] })],
    ["a read of several keys at two revisions", changed(9, { after: [a2, c4] })],
    ["a compare that was left out", changed(7, { succeeded: true })],
    ["a compare that did not hold where it did", changed(6, { succeeded: false })],
    [
      "a compare that found an object of before",
      changed(7, {
        compares: [
          { held: false, object: b2 },
          { held: true, object: a2 },
        ],
      }),
    ],
    ["a prefix of which an object is left", changed(11, { after: [c4] })],
    ["a prefix that is deleted at two revisions", changed(10, { revision: 6 })],
    ["a deletion with another count", changed(10, { deleted: 2 })],
    ["a validation that has deleted", changed(9, { after: [] })],
  ])("rejects %s", async ([, wrong]) => {
    const verdict = await verdictOf("wrong-transactions", wrong);
    expect(verdict).toMatchObject({ result: "Illegal", operations: wrong.operations.length });
  });

  const locked = (
    places: readonly [number, number],
    what: "acquire" | "release" | "write",
    token: number,
    succeeded: boolean = true,
  ): Operation =>
    done(places, { lock: { what, token }, range: at([]) }, { succeeded, revision: 0 });
  const ofLock = (...own: Operation[]): History => ({ revision: 1, operations: own });

  test("accepts holders of a lock that follow each other", async () => {
    const right = ofLock(
      locked([0, 2], "acquire", 2),
      // The next one has it before the response to its release.
      locked([3, 7], "release", 2),
      locked([1, 5], "acquire", 3),
      locked([6, 9], "release", 3),
      locked([4, 6], "write", 2, false),
      locked([7, 8], "write", 3),
    );
    expect(await verdictOf("right-lock", right)).toMatchObject({ result: "Ok" });
  });

  test.for<readonly [string, History]>([
    [
      "two holders of a lock at the same time",
      ofLock(
        locked([0, 1], "acquire", 2),
        locked([2, 3], "acquire", 3),
        locked([4, 5], "release", 2),
        locked([6, 7], "release", 3),
      ),
    ],
    [
      "a token that is not above the one before",
      ofLock(
        locked([0, 1], "acquire", 3),
        locked([2, 3], "release", 3),
        locked([4, 5], "acquire", 2),
      ),
    ],
    [
      "a guarded write that was applied after the release",
      ofLock(
        locked([0, 1], "acquire", 2),
        locked([2, 3], "release", 2),
        locked([4, 5], "write", 2),
      ),
    ],
    [
      "a guarded write that was applied while another holds the lock",
      ofLock(
        locked([0, 1], "acquire", 2),
        locked([2, 4], "release", 2),
        locked([3, 5], "acquire", 3),
        locked([6, 7], "write", 2),
      ),
    ],
    [
      "a guarded write of the holder that was refused",
      ofLock(locked([0, 1], "acquire", 2), locked([2, 3], "write", 2, false)),
    ],
  ])("rejects %s", async ([, wrong]) => {
    expect(await verdictOf("wrong-lock", wrong)).toMatchObject({ result: "Illegal" });
  });
});
