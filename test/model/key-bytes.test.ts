import { describe, expect, test } from "vitest";
import { isRawKey, keyBytes, keySize, keyText, prefixEnd } from "../../src/model/key-bytes.ts";
import { compareKeys } from "../../src/model/key-order.ts";
import fc, { runs } from "../property.ts";

/** Keys that are UTF-8, that are not, and that have parts of characters. */
const key = fc
  .array(
    fc.oneof(
      fc.uint8Array({ maxLength: 3 }),
      fc
        .constantFrom("a", "é", "☃", "\u{1f600}", "\ud7ff", "\ue000")
        .map((text) => Buffer.from(text)),
      fc.constantFrom([0xc3], [0xe2, 0x98], [0xf0, 0x9f, 0x98], [0xed, 0xa0, 0x80], [0xff]),
    ),
    { maxLength: 4 },
  )
  .map((parts) => Buffer.concat(parts.map((part) => Buffer.from(part))));

describe("The text of a key", () => {
  test("stands for exactly its bytes, and has their order", () => {
    fc.assert(
      fc.property(key, key, key, (start, a, b) => {
        const [one, other] = [Buffer.concat([start, a]), Buffer.concat([start, b])];
        const text = keyText(one);
        expect(keyBytes(text)).toEqual(one);
        expect(keySize(text)).toBe(one.length);
        expect(Math.sign(compareKeys(text, keyText(other)))).toBe(Buffer.compare(one, other));
      }),
      { numRuns: runs(4000) },
    );
  });

  test("is that of its UTF-8, if it is UTF-8", () => {
    expect(keyText(Buffer.from("pods/é☃\u{1f600}"))).toBe("pods/é☃\u{1f600}");
    expect(keyText(Buffer.from("a/b/c"), 2, 3)).toBe("b");
    expect(["a", "é\u{1f600}"].map(isRawKey)).toEqual([false, false]);
  });

  test.each([
    ["no byte", [], ""],
    ["a byte that no character has", [0x61, 0xff], "a\udcff"],
    ["the beginning of a character", [0xc3], "\udcc3"],
    ["the beginning of a character, and another one", [0xe2, 0x98, 0x61], "\udce2\udc98a"],
    ["a surrogate", [0xed, 0xa0, 0x80], "\udced\udca0\udc80"],
    ["a character in more bytes than it needs", [0xc0, 0xaf], "\udcc0\udcaf"],
  ])("is raw for %s", (_, bytes, text) => {
    expect(keyText(Buffer.from(bytes))).toBe(text);
    expect(isRawKey(text)).toBe(true);
  });
});

test("prefixEnd is the first key behind all with the prefix", () => {
  fc.assert(
    fc.property(key, key, (prefix, other) => {
      const end = prefixEnd(prefix);
      const begins = other.subarray(0, prefix.length).equals(prefix);
      const isWithin =
        Buffer.compare(other, prefix) >= 0 && (end === undefined || Buffer.compare(other, end) < 0);
      expect(isWithin).toBe(begins);
      if (begins) return;
      expect(isWithin).toBe(false);
    }),
    { numRuns: runs(1000) },
  );
});
