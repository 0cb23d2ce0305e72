import { expect, test } from "vitest";
import { Account, type KeptChange } from "./account.ts";
import type { Operation } from "./operation.ts";

const unknown: Operation = {
  ...{ id: "a-1", puts: [], deletes: [], after: 1, begunAt: 0, endedAt: 10, outcome: "unknown" },
};

function put(revision: number, key: string, id: string, lease = 0n): KeptChange {
  const value = JSON.stringify({ write: id });
  const numbers = { createRevision: revision, modRevision: revision, version: 1 };
  return { revision, key, before: undefined, after: { key, value, ...numbers }, lease };
}

function deletion(revision: number, key: string): KeptChange {
  return { revision, key, before: undefined, after: undefined, lease: 0n };
}

/** What is wrong after these changes, each of the next revision. */
function wrongIn(
  changes: readonly KeptChange[],
  operations: readonly Operation[],
  checked: { readonly shown?: number; readonly readAt?: number } = {},
): string[] {
  const revision = changes.at(-1)?.revision ?? 1;
  return new Account().check(changes, operations, { shown: 1, readAt: 1e6, ...checked, revision });
}

const acknowledged: Operation = { ...unknown, puts: ["a/1"], outcome: "acknowledged", revision: 2 };
const both: Operation = { ...unknown, puts: ["a/1", "a/2"] };
const short: Operation = { ...unknown, puts: ["a/1"], ttlSeconds: 2 };

test("What is right is found to be so", () => {
  expect(wrongIn([put(2, "a/1", "a-1")], [acknowledged])).toEqual([]);
  expect(wrongIn([put(2, "a/1", "a-1"), put(2, "a/2", "a-1")], [both])).toEqual([]);
  expect(wrongIn([], [both])).toEqual([]);
  expect(wrongIn([put(2, "a/1", "a-1", 7n), deletion(3, "a/1")], [short])).toEqual([]);
});

test.each<readonly [string, RegExp, string[]]>([
  [
    "an acknowledged write that is lost",
    /^Kept: a-1 was acknowledged at 2, and is at nowhere/,
    wrongIn([], [acknowledged]),
  ],
  [
    "an acknowledged write at another revision",
    /^Kept: a-1 was acknowledged at 2, and is at 3/,
    wrongIn(
      [put(2, "a/2", "a-2"), put(3, "a/1", "a-1")],
      [acknowledged, { ...unknown, id: "a-2", puts: ["a/2"] }],
    ),
  ],
  [
    "half a transaction",
    /^Atomic: a-1 has changed a\/1 at 2, and not a\/1, a\/2/,
    wrongIn([put(2, "a/1", "a-1")], [both]),
  ],
  [
    "a transaction in two revisions",
    /^Faithful: a-1 was done twice, at 2 and 3/,
    wrongIn([put(2, "a/1", "a-1"), put(3, "a/2", "a-1")], [both]),
  ],
  [
    "a refused write",
    /^Faithful: a-1 was refused, and done at 2/,
    wrongIn([put(2, "a/1", "a-1")], [{ ...acknowledged, outcome: "refused" }]),
  ],
  ["an invented write", /^Invented: 2 has the write a-9/, wrongIn([put(2, "a/1", "a-9")], [])],
  [
    "an invented deletion",
    /^Invented: no client deleted a\/1 at 3/,
    wrongIn([put(2, "a/1", "a-1"), deletion(3, "a/1")], [acknowledged]),
  ],
  [
    "a revision that is missing",
    /^Whole: after revision 1 comes 3/,
    wrongIn([put(3, "a/1", "a-1")], [{ ...acknowledged, revision: 3 }]),
  ],
  [
    "a revision that was shown and is lost",
    /^Kept: 3 was shown, and the store is at 2/,
    wrongIn([put(2, "a/1", "a-1")], [acknowledged], { shown: 3 }),
  ],
  [
    "a lease that is forgotten",
    /^Lease: a\/1 of a-1 has the lease 0, not 5/,
    wrongIn([put(2, "a/1", "a-1")], [{ ...acknowledged, lease: 5n }]),
  ],
  [
    "a lease that ends too soon",
    /^Lease: one of 2 s has ended within 1000 ms/,
    wrongIn([put(2, "a/1", "a-1", 7n), deletion(3, "a/1")], [short], { readAt: 1_000 }),
  ],
  [
    "a refusal that shows what is not kept",
    /^Kept: a-1 was refused for a\/1 at 5, which is not kept/,
    wrongIn(
      [],
      [{ ...unknown, puts: ["a/1"], outcome: "refused", conflict: { key: "a/1", modRevision: 5 } }],
    ),
  ],
  [
    "half of a prefix",
    /^Atomic: a-3 has changed a\/1 at 3, and not a\/1, a\/2/,
    wrongIn(
      [put(2, "a/1", "a-1"), put(2, "a/2", "a-1"), deletion(3, "a/1")],
      [both, { ...unknown, id: "a-3", deletePrefix: "a/" }],
    ),
  ],
])("%s is found", (_, what, wrong) => {
  expect(wrong.filter((one) => what.test(one))).toHaveLength(1);
});
