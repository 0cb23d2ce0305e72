import { expect, test } from "vitest";
import { keyText } from "../../../src/model/key-bytes.ts";
import { scopeIn } from "../../../src/storage/etcd/covering-scope.ts";
import fc from "../../property.ts";

const byte = fc.constantFrom(0, 0x2f, 0x61, 0x62, 0xc3, 0xa9, 0xff);
const bytes = (maxLength: number) => fc.array(byte, { maxLength }).map((all) => Buffer.from(all));
const prefix = fc.constantFrom("", "/", "a/", "b").map((text) => Buffer.from(text));
const text = fc.constantFrom("", "/", "a", "b", "a/", "ab", "\u00e9", "a\u00e9", "\u00e9a");

/** All keys of up to four of these bytes. */
const all: Buffer[] = [Buffer.of()];
for (let from = 0, length = 1; length <= 4; length++) {
  const until = all.length;
  for (; from < until; from++) {
    for (const one of [0, 0x2f, 0x61, 0x62, 0xc3, 0xa9, 0xff])
      all.push(Buffer.concat([all[from] as Buffer, Buffer.of(one)]));
  }
}
const isIn = (key: Buffer, from: Buffer, end: Buffer): boolean => {
  if (end.length === 0) return key.equals(from);
  const isEndless = end.equals(Buffer.of(0));
  return Buffer.compare(key, from) >= 0 && (isEndless || Buffer.compare(key, end) < 0);
};

test("A grant that has the scope of a range has each of its keys", () => {
  let covered = 0;
  const end = fc.oneof(bytes(4), fc.constant(Buffer.of(0)));
  const given = fc.record({ prefix, key: bytes(4), end, granted: text });
  fc.assert(
    fc.property(given, ({ prefix: of, key: rest, end: rangeEnd, granted }) => {
      const key = Buffer.concat([of, rest]);
      if (key.length === 0) return;
      const scope = scopeIn(of, { key, rangeEnd });
      if (scope === undefined) return;
      const asked = "key" in scope ? scope.key : scope.prefix;
      if (!asked.startsWith(granted)) return;
      covered++;
      const start = Buffer.concat([of, Buffer.from(granted)]);
      for (const each of all) {
        if (!isIn(each, key, rangeEnd)) continue;
        expect(each.subarray(0, start.length)).toEqual(start);
        if ("key" in scope) expect(each).toEqual(key);
      }
    }),
    { numRuns: 8_000 },
  );
  expect(covered).toBeGreaterThan(100);
});

test.each([
  ["one key", "a/k", "", { key: "k" }],
  ["one key, by its end", "a/k", "a/k\0", { key: "k" }],
  ["the resource's prefix as a key", "a/", "", { key: "" }],
  ["all keys with a prefix", "a/k/", "a/k0", { prefix: "k/" }],
  ["all keys of the resource", "a/", "a0", { prefix: "" }],
  ["a part of a prefix", "a/k/b", "a/k/d", { prefix: "k/" }],
  ["from a key to the end of its prefix", "a/k/b", "a/k0", { prefix: "k/" }],
  ["from a key to a longer one", "a/k", "a/kk", { prefix: "k" }],
])("The scope of %s is the narrowest", (_, key, end, expected) => {
  const range = { key: Buffer.from(key), rangeEnd: Buffer.from(end) };
  expect(scopeIn(Buffer.from("a/"), range)).toEqual(expected);
});

test.each([
  ["before the resource", "a.", "a0"],
  ["beyond the resource", "a/k", "a1"],
  ["without an end", "a/k", "\0"],
  ["that is empty", "a/k", "a/k"],
  ["that ends before it begins", "a/k", "a/a"],
  ["of another resource", "b/k", ""],
])("A range %s has no scope", (_, key, end) => {
  const range = { key: Buffer.from(key), rangeEnd: Buffer.from(end) };
  expect(scopeIn(Buffer.from("a/"), range)).toBeUndefined();
});

test("A scope ends before a character that not all keys of the range have", () => {
  const range = { key: Buffer.from("a/k\u00e9"), rangeEnd: Buffer.from("a/k\u00ea") };
  expect(scopeIn(Buffer.from("a/"), range)).toEqual({ prefix: "k\u00e9" });
  // Up to another character with the same first byte.
  const wider = { ...range, rangeEnd: Buffer.from("a/k\u00ec") };
  expect(scopeIn(Buffer.from("a/"), wider)).toEqual({ prefix: "k" });
  expect(keyText(Buffer.of(0xc3)).isWellFormed()).toBe(false);
});
