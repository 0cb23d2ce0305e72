import { describe, expect, test } from "vitest";
import { compareKeys } from "../../src/model/key-order.ts";
import fc, { runs } from "../property.ts";

/** Text of characters from all ranges in which UTF-16 and UTF-8 order could differ. */
const text = fc.string({
  unit: fc.oneof(
    fc.constantFrom("\0", "a", "\x7f", "\u0080", "\u07ff", "\u0800", "\ud7ff", "\ue000"),
    fc.constantFrom("\ufffd", "\uffff", "\u{10000}", "\u{1f600}", "\u{1f601}", "\u{10ffff}"),
    fc.string({ unit: "binary", minLength: 1, maxLength: 1 }),
  ),
  maxLength: 6,
});

describe("compareKeys", () => {
  test("orders as the UTF-8 bytes do", () => {
    fc.assert(
      fc.property(text, text, text, (start, a, b) => {
        const bytes = Buffer.compare(Buffer.from(start + a), Buffer.from(start + b));
        expect(Math.sign(compareKeys(start + a, start + b))).toBe(bytes);
      }),
      { numRuns: runs(5000) },
    );
  });

  test.each([
    ["", "\0", "the empty key before all"],
    ["a", "a\0", "a key before those that begin with it"],
    ["a/b", "a0", "by byte"],
    ["Z", "a", "upper case before lower"],
    ["\uffff", "\u{10000}", "astral characters after all others"],
    ["\ud7ff", "\ue000", "around the surrogates"],
    ["\u{1f600}", "\u{1f601}", "within one high surrogate"],
    ["\u{fffff}", "\u{100000}", "from one high surrogate to the next"],
  ])("puts %j before %j: %s", (a, b) => {
    expect(compareKeys(a, b)).toBeLessThan(0);
    expect(compareKeys(b, a)).toBeGreaterThan(0);
    expect(compareKeys(a, a)).toBe(0);
  });
});
