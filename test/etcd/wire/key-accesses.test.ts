import { describe, expect, test } from "vitest";
import { type KeyMethod, readKeyAccesses } from "../../../src/etcd/wire/checked-requests.ts";
import { encode, type Fields } from "../../foreign/protobuf.ts";

const path = (name: string) => `/etcdserverpb.KV/${name}` as KeyMethod;
const read = (name: string, message: Buffer): string[] | undefined =>
  readKeyAccesses(path(name), message)?.keys.map(
    ({ kind, key, rangeEnd }) => `${kind} ${key.toString()} ${rangeEnd.toString()}`,
  );

describe("The keys of a request", () => {
  const compare = (fields: Fields): Fields => ({ 1: encode(fields) });
  const op = (field: number, fields: Fields): Buffer => encode({ [field]: encode(fields) });

  test.each<[string, Fields, string[]]>([
    ["Range", { 1: "a" }, ["read a "]],
    ["RangeStream", { 1: "a", 2: "b", 3: 5, 7: true }, ["read a b"]],
    ["Range", { 1: "a", 2: "\0", 13: 9 }, ["read a \0"]],
    ["Put", { 1: "a", 2: "v" }, ["put a "]],
    ["Put", { 1: "a", 2: "v", 4: true, 5: false }, ["put a ", "read a "]],
    ["Put", { 1: "a", 4: false, 6: true }, ["put a "]],
    ["DeleteRange", { 1: "a", 2: "b", 3: true }, ["delete a b"]],
    ["Txn", compare({ 1: 1, 2: 2, 3: "a", 6: 4, 64: "b" }), ["read a b"]],
    ["Txn", compare({ 2: 3, 3: "a", 7: "v" }), ["read a "]],
    [
      "Txn",
      { 2: [op(1, { 1: "a" }), op(2, { 1: "b" })], 3: op(3, { 1: "c", 2: "d" }) },
      ["read a ", "put b ", "delete c d"],
    ],
    ["Txn", { 3: op(4, { 2: op(4, { 1: encode({ 3: "a" }) }) }) }, ["read a "]],
  ])("are read of %s %j", (name, fields, expected) => {
    expect(read(name, encode(fields))).toEqual(expected);
  });

  test("have the leases of all puts", () => {
    const put = op(2, { 1: "a", 3: 2n ** 63n - 1n });
    const accesses = readKeyAccesses(path("Txn"), encode({ 3: op(4, { 2: put }) }));
    expect(accesses?.leased).toEqual([{ lease: 2n ** 63n - 1n, key: Buffer.from("a") }]);
    // The end of the lease deletes the key.
    expect(accesses?.keys.map(({ kind }) => kind)).toEqual(["put", "delete"]);
    const negative = readKeyAccesses(path("Put"), encode({ 1: "a", 3: -1 }));
    expect(negative?.leased.map(({ lease }) => lease)).toEqual([2n ** 64n - 1n]);
    const of = (leases: number): Buffer[] =>
      Array.from({ length: leases }, (_, i) => op(2, { 1: "a", 3: i + 1 }));
    expect(readKeyAccesses(path("Txn"), encode({ 2: of(16) }))?.leased).toHaveLength(16);
    expect(readKeyAccesses(path("Txn"), encode({ 2: of(17) }))).toBeUndefined();
  });

  let nested = op(1, { 1: "a" });
  for (let i = 0; i < 8; i++) nested = op(4, { 2: nested });
  const hex = (text: string): Buffer => Buffer.from(text, "hex");
  const key = encode({ 1: "a" });

  test.each<[string, string, Buffer]>([
    ["nothing", "Range", encode({})],
    ["no key", "Range", encode({ 2: "b" })],
    ["an empty key", "Put", encode({ 1: "" })],
    ["a key twice", "Range", encode({ 1: ["a", "b"] })],
    ["an end twice", "DeleteRange", encode({ 1: "a", 2: ["b", "c"] })],
    ["an end that is empty", "Range", encode({ 1: "a", 2: "" })],
    ["an end to delete that is empty", "DeleteRange", encode({ 1: "a", 2: "" })],
    ["an end to compare that is empty", "Txn", encode({ 1: encode({ 3: "a", 64: "" }) })],
    ["a previous value twice", "Put", encode({ 1: "a", 4: [true, false] })],
    ["an unknown field of Range", "Range", encode({ 1: "a", 14: 1 })],
    ["an unknown field of Put", "Put", encode({ 1: "a", 7: 1 })],
    ["an unknown field of DeleteRange", "DeleteRange", encode({ 1: "a", 4: 1 })],
    ["an unknown field of Txn", "Txn", encode({ 2: op(1, { 1: "a" }), 4: 1 })],
    ["an unknown field of a comparison", "Txn", encode({ 1: encode({ 3: "a", 9: 1 }) })],
    ["an unknown operation", "Txn", encode({ 2: op(5, { 1: "a" }) })],
    ["a number as key", "Range", encode({ 1: 7 })],
    ["a text as limit", "Range", encode({ 1: "a", 3: "b" })],
    ["an unknown order", "Range", encode({ 1: "a", 5: 9 })],
    [
      "a union of two members",
      "Txn",
      encode({ 2: Buffer.concat([op(1, { 1: "a" }), op(1, { 1: "b" })]) }),
    ],
    ["a union without members", "Txn", encode({ 2: "" })],
    ["a comparison with two values", "Txn", encode({ 1: encode({ 3: "a", 4: 1, 5: 1 }) })],
    ["a comparison without a key", "Txn", encode({ 1: encode({ 4: 1 }) })],
    ["no operations", "Txn", encode({})],
    ["nested transactions", "Txn", encode({ 2: nested })],
    [
      "too many operations",
      "Txn",
      encode({ 2: Array.from({ length: 1_025 }, () => op(1, { 1: "a" })) }),
    ],
    ["a part of a field", "Range", key.subarray(0, 2)],
    ["a group", "Range", Buffer.concat([key, hex("7b7c")])],
    // Field 2^32 + 1, which is 1 to a decoder that keeps 32 bits of it.
    [
      "a field number of more than 32 bits",
      "Range",
      Buffer.concat([key, hex("8a808080800101"), Buffer.from("b")]),
    ],
  ])("are not read of what has %s", (_, name, message) => {
    expect(read(name, message)).toBeUndefined();
  });
});
