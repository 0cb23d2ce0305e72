import { describe, expect, it } from "vitest";
import type { Change } from "./recording.ts";
import { faithful, type Write, WritesDone } from "./writes.ts";

function change(revision: number, key: string, write: string): Change {
  const value = JSON.stringify({ write });
  const object = { key, value, createRevision: 2, modRevision: revision, version: revision - 1 };
  return { revision, key, before: undefined, after: object };
}

/** x wrote a and b at once, y wrote a; z wrote it twice. */
const done = new WritesDone([
  change(2, "a", "x"),
  change(2, "b", "x"),
  change(3, "a", "y"),
  change(4, "a", "z"),
  { revision: 5, key: "a", before: undefined, after: undefined },
  change(6, "a", "z"),
]);

const write: Write = {
  ...{ id: "x", keys: ["a", "b"], way: "service", fromEra: 0, toEra: 0 },
  ...{ outcome: "acknowledged", revision: 2 },
};

describe("A write", () => {
  it.each<readonly [string, Write]>([
    ["acknowledged, and done at that revision", write],
    ["unknown, and done", { ...write, id: "y", outcome: "unknown" }],
    ["unknown, and not done", { ...write, id: "other", outcome: "unknown" }],
    ["refused, and not done", { ...write, id: "other", outcome: "refused" }],
    ["acknowledged, that puts nothing", { ...write, id: "other", keys: [], revision: 5 }],
  ])("has the outcome that its writer received: %s", (_what, delivered) => {
    expect(faithful(delivered, done)).toEqual([]);
  });

  it.each<readonly [string, Write]>([
    ["acknowledged, and not done", { ...write, id: "other" }],
    ["acknowledged, and done at another revision", { ...write, revision: 3 }],
    ["refused, and done", { ...write, outcome: "refused" }],
    ["unknown, and applied twice", { ...write, id: "z", outcome: "unknown" }],
    ["acknowledged, and done twice", { ...write, id: "z", revision: 4 }],
  ])("is not: %s", (_what, delivered) => {
    expect(faithful(delivered, done)).toHaveLength(1);
  });
});
