import { expect, test } from "vitest";
import { Namespace } from "../../../src/etcd/wire/namespace.ts";
import { encode } from "../../foreign/protobuf.ts";

const namespace = new Namespace(Buffer.from("ns/"));

/** A response to a transaction within another, with objects of these sizes, as etcd or a client of the namespace has it. */
function response(prefix: string, sizes: readonly number[]): Buffer {
  const objects = sizes.map((size, i) =>
    encode({ 1: `${prefix}${i}`, 2: 300 + i, 5: Buffer.alloc(size, i) }),
  );
  const range = encode({ 1: encode({ 3: 9 }), 2: objects, 4: sizes.length });
  const previous = encode({ 1: encode({ 3: 9 }), 3: objects });
  const inner = encode({ 2: 1, 3: [encode({ 1: range }), encode({ 3: previous })] });
  return encode({ 1: encode({ 3: 9 }), 2: 1, 3: [encode({ 4: inner })] });
}

function removed(path: string, message: Buffer): Buffer | undefined {
  return namespace.translationOf(path)?.response(message);
}

test("Lengths that become shorter by a byte with the prefix are right on each level", () => {
  for (const length of [128, 16_384]) {
    for (let size = length - 60; size < length + 4; size++) {
      for (const sizes of [[size], [size, 0], [1, size - 10]]) {
        const found = removed("/etcdserverpb.KV/Txn", response("ns/", sizes));
        // To compare bytes with toEqual takes a hundred times as long.
        expect(found?.toString("latin1")).toBe(response("", sizes).toString("latin1"));
      }
    }
  }
});

test("A key of another namespace is left out of a lease, and fails any other response", () => {
  const lease = (keys: readonly string[]) => encode({ 2: 7, 3: 60, 5: [...keys] });
  expect(removed("/etcdserverpb.Lease/LeaseTimeToLive", lease(["a", "ns/a", "ns", "ns/"]))).toEqual(
    lease(["a", ""]),
  );
  expect(() => removed("/etcdserverpb.KV/Txn", response("no/", [1]))).toThrow(
    "has a key of another namespace",
  );
  expect(() => removed("/etcdserverpb.KV/Txn", response("ns/", [1]).subarray(0, -1))).toThrow(
    "is truncated",
  );
});
