import { describe, expect, test } from "vitest";
import { OwnKeys } from "../../../src/etcd/client/own-keys.ts";
import { keyText } from "../../../src/model/key-bytes.ts";
import { cachedScope } from "../../../src/storage/etcd/covering-scope.ts";
import { includesKey } from "../../../src/storage/storage.ts";
import fc, { runs } from "../../property.ts";

const bytes = (text: string): Buffer => Buffer.from(text, "latin1");
const pods = { prefix: bytes("/p/") };
const all = { prefix: bytes("") };

describe("cachedScope", () => {
  test.each([
    ["one key", pods, "/p/a", "", { key: "a" }],
    ["one key, as a range", pods, "/p/a", "/p/a\0", { key: "a" }],
    ["one key that is not UTF-8", pods, "/p/\xff", "", { key: "\udcff" }],
    ["the prefix itself", pods, "/p/", "", { key: "" }],
    ["the whole resource", pods, "/p/", "/p0", { prefix: "" }],
    ["a prefix", pods, "/p/ns/", "/p/ns0", { prefix: "ns/" }],
    [
      "a prefix that ends within a character",
      pods,
      "/p/\xc3",
      "/p/\xc4",
      { from: "\udcc3", to: "\udcc4" },
    ],
    ["a range", pods, "/p/b", "/p/d", { from: "b", to: "d" }],
    ["a range up to the end", pods, "/p/b", "/p0", { from: "b", to: undefined }],
    ["all keys", all, "\0", "\0", { prefix: "" }],
    ["all keys from one on", all, "b", "\0", { from: "b", to: undefined }],
    ["all keys up to one", all, "\0", "b", { from: "\0", to: "b" }],
    [
      "a range without the marker",
      { ...all, own: new OwnKeys(bytes("m")) },
      "a",
      "m",
      { from: "a", to: "m" },
    ],
  ])("finds %s", (_, keys, key, rangeEnd, scope) => {
    expect(cachedScope(keys, bytes(key), bytes(rangeEnd))).toEqual(scope);
  });

  test.each([
    ["a key of another resource", pods, "/q/a", ""],
    ["a range that begins before the resource", pods, "/o", "/p/a"],
    ["a range that ends behind it", pods, "/p/a", "/q"],
    ["all keys from one on", pods, "/p/a", "\0"],
    ["an empty range", pods, "/p/b", "/p/a"],
    ["the marker", { ...all, own: new OwnKeys(bytes("m")) }, "m", ""],
    ["a range with the marker", { ...all, own: new OwnKeys(bytes("m")) }, "a", "m\0"],
  ])("returns undefined for %s", (_, keys, key, rangeEnd) => {
    expect(cachedScope(keys, bytes(key), bytes(rangeEnd))).toBeUndefined();
  });

  test("has a range with the marker for a client that leaves that out, but not the marker itself", () => {
    const keys = { ...all, own: new OwnKeys(bytes("m")) };
    const scope = { from: "a", to: "m\0" };
    expect(cachedScope(keys, bytes("a"), bytes("m\0"), bytes("m"))).toEqual(scope);
    expect(cachedScope(keys, bytes("a"), bytes("m\0"), bytes("n"))).toBeUndefined();
    expect(cachedScope(keys, bytes("m"), bytes(""), bytes("m"))).toBeUndefined();
  });

  const key = fc
    .array(fc.constantFrom(0, 0x2f, 0x61, 0xa9, 0xc3, 0xe2, 0xff), { maxLength: 4 })
    .map((parts) => Buffer.from(parts));

  test("has exactly the keys of the range", () => {
    fc.assert(
      fc.property(key, key, key, fc.constantFrom("", "/", "a/"), (first, end, other, prefix) => {
        const keys = { prefix: bytes(prefix) };
        const from = Buffer.concat([keys.prefix, first]);
        const to = Buffer.concat([keys.prefix, end]);
        const relative = keyText(other);
        // No key of etcd is empty.
        fc.pre(from.length > 0 && (prefix !== "" || other.length > 0));
        const scope = cachedScope(keys, from, to);
        if (scope === undefined) return;
        const asked = Buffer.concat([keys.prefix, other]);
        const isEndless = to.equals(Buffer.of(0));
        const isIn =
          to.length === 0
            ? asked.equals(from)
            : Buffer.compare(asked, from) >= 0 && (isEndless || Buffer.compare(asked, to) < 0);
        expect(includesKey(scope, relative)).toBe(isIn);
      }),
      { numRuns: runs(4000) },
    );
  });
});
