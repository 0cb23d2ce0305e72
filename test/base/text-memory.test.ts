import { describe, expect, test } from "vitest";
import { ownText, textBytes } from "../../src/base/text-memory.ts";
import { heapOfEach } from "../heap.ts";

describe("What a text takes", () => {
  test.each([
    ["an empty text", ""],
    ["one of ASCII", "service-account-name"],
    ["one of Latin letters", "é".repeat(1_000)],
    ["one of Chinese", "中".repeat(1_000)],
    ["one with a single character of two bytes", `${"a".repeat(999)}中`],
    ["one with a lone surrogate", `${"a".repeat(999)}\ud800`],
  ])("%s, as the engine has it", (_, text) => {
    // A different end makes each a string of its own instead of a reference to the same one.
    const each = heapOfEach(1_000, (i) => ownText(`${text}${1_000_000_000_000 + i}`));
    const estimated = textBytes(`${text}${1_000_000_000_000}`);
    expect(estimated / each).toBeGreaterThan(0.8);
    expect(estimated / each).toBeLessThan(1.2);
  });
});

describe("A text of its own", () => {
  test.each([
    "",
    "short",
    "longer than is copied anyway",
    "中".repeat(20),
    `\ud800${"a".repeat(20)}`,
  ])("is the same text: %j", (text) => {
    expect(ownText(text)).toBe(text);
  });

  test("does not keep the one alive that it was cut out of", () => {
    const part = (i: number): string => ownText(`${i}`.repeat(100_000).slice(0, 20));
    expect(heapOfEach(100, part)).toBeLessThan(200);
  });
});
