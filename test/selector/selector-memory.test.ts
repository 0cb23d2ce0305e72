import { describe, expect, test } from "vitest";
import { parseFieldSelector } from "../../src/selector/parse-field-selector.ts";
import { parseLabelSelector } from "../../src/selector/parse-label-selector.ts";
import { heapOfEach } from "../heap.ts";

function listed(count: number, one: (j: number) => string): string {
  return Array.from({ length: count }, (_, j) => one(j)).join(",");
}

/** Selectors of up to 64 KiB, each different for each `i`. */
const selectors: readonly (readonly [what: string, text: (i: number) => string])[] = [
  ["a thousand long requirements", (i) => listed(1_000, (j) => `k${i}x${j}=`.padEnd(64, "v"))],
  ["a thousand short ones", (i) => listed(1_000, (j) => `k${i}x${j}`)],
  ["thousands of short values", (i) => `a in (${listed(6_000, (j) => `v${i}x${j}`)})`],
  ["long values", (i) => `a notin (${listed(1_000, (j) => `${i}x${j}`.padEnd(60, "v"))})`],
];

describe("The estimated memory of a parsed selector is about right, for", () => {
  test.each(selectors)("labels: %s", (_, text) => {
    const each = heapOfEach(15, (i) => parseLabelSelector(text(i)));
    const estimated = parseLabelSelector(text(25)).bytes;
    expect(estimated / each).toBeGreaterThan(0.66);
    expect(estimated / each).toBeLessThan(1.5);
  });

  test("fields: a thousand requirements", () => {
    const text = (i: number): string => listed(1_000, (j) => `f!=${i}x${j}`.padEnd(64, "v"));
    const each = heapOfEach(15, (i) => parseFieldSelector(text(i)));
    const estimated = parseFieldSelector(text(25)).bytes;
    expect(estimated / each).toBeGreaterThan(0.66);
    expect(estimated / each).toBeLessThan(1.5);
  });
});

test("A selector of 64 KiB takes less than half a MiB when it is parsed.", () => {
  const bytes = selectors.map(([, text]) => parseLabelSelector(text(1)).bytes);
  expect(Math.max(...bytes)).toBeLessThan(512 * 1024);
});
