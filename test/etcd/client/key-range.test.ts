import { describe, expect, test } from "vitest";
import { describeRange, prefixRange, rangeAfter } from "../../../src/etcd/client/key-range.ts";
import fc, { runs } from "../../property.ts";

const zero = Buffer.from([0]);

/** Whether etcd counts the key to the range. */
function has(range: { key: Buffer; range_end: Buffer } | undefined, key: Buffer): boolean {
  if (range === undefined || Buffer.compare(key, range.key) < 0) return false;
  return range.range_end.equals(zero) || Buffer.compare(key, range.range_end) < 0;
}

describe("the range of a prefix", () => {
  const ends: [string, number[], number[]][] = [
    ["raises the last byte", [0x61, 0x62], [0x61, 0x63]],
    ["drops bytes that can't be raised", [0x61, 0xff, 0xff], [0x62]],
    ["has no end if none can be raised", [0xff, 0xff], [0]],
    ["has no end if there is no prefix", [], [0]],
  ];
  for (const [name, prefix, end] of ends) {
    test(name, () => {
      expect([...prefixRange(Buffer.from(prefix)).range_end]).toEqual(end);
    });
  }

  // Few different bytes, so that keys and prefixes often have common parts.
  const key = fc
    .array(fc.constantFrom(0, 1, 0x61, 0xfe, 0xff), { minLength: 1, maxLength: 5 })
    .map((bytes) => Buffer.from(bytes));
  const prefix = fc.oneof(key, fc.constant(Buffer.alloc(0)));

  test("has the keys that begin with it, and no other", () => {
    fc.assert(
      fc.property(prefix, key, (prefix, key) => {
        const begins = key.subarray(0, prefix.byteLength).equals(prefix);
        expect(has(prefixRange(prefix), key)).toBe(begins);
      }),
      { numRuns: runs(2_000) },
    );
  });

  test("after a key has those that sort after it, and no other", () => {
    fc.assert(
      fc.property(prefix, key, key, (prefix, after, key) => {
        const isAfter = Buffer.compare(key, after) > 0;
        const whole = prefixRange(prefix);
        expect(has(rangeAfter(whole, after), key)).toBe(has(whole, key) && isAfter);
      }),
      { numRuns: runs(2_000) },
    );
  });

  test.each([
    [{ key: Buffer.from("a\n") }, 'the key "a\\n"'],
    [prefixRange(Buffer.from("a/")), 'the keys with the prefix "a/"'],
    [prefixRange(Buffer.from("")), "all keys"],
    [
      rangeAfter(prefixRange(Buffer.from("a/")), Buffer.from("a/1")),
      'the keys from "a/1\\u0000" to "a0"',
    ],
    [{ key: Buffer.from("b"), range_end: zero }, 'the keys from "b" on'],
  ])("%j has a text for messages", (range, text) => {
    expect(range && describeRange(range)).toBe(text);
  });
});
