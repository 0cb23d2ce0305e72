import { describe, expect, test } from "vitest";
import { ChangedKeys } from "../../src/etcd-server/kv/changed-keys.ts";
import type { Keys } from "../../src/etcd-server/kv/key-interval.ts";
import { checkTxn } from "../../src/etcd-server/kv/request-checks.ts";
import { decode } from "../../src/etcd-server/protocol/requests.ts";
import { compareKeys } from "../../src/model/key-order.ts";
import { encode } from "../foreign/protobuf.ts";
import fc from "../property.ts";

const key = fc.string({ unit: fc.constantFrom("a", "b", "\u{ffff}", "\u{10000}"), maxLength: 3 });
const keys: fc.Arbitrary<Keys> = fc.oneof(
  key.map((one) => ({ key: one })),
  fc.record({ from: key, to: fc.option(key, { nil: undefined }) }),
);

function isIn(all: readonly Keys[], one: string): boolean {
  return all.some((each) => {
    if ("key" in each) return each.key === one;
    const isBefore = each.to === undefined || compareKeys(one, each.to) < 0;
    return isBefore && compareKeys(each.from, one) <= 0;
  });
}

/** A transaction with these operations, in nested transactions of 30. */
function nested(operations: readonly Buffer[]): Buffer {
  if (operations.length <= 30) return encode({ 2: operations });
  const groups: Buffer[] = [];
  for (let i = 0; i < operations.length; i += 30) {
    groups.push(encode({ 4: encode({ 2: operations.slice(i, i + 30) }) }));
  }
  return nested(groups);
}

describe("A set of keys and intervals", () => {
  test("has the keys of each, however they overlap and whenever they were added", () => {
    fc.assert(
      fc.property(fc.array(keys), fc.array(keys), key, (first, second, looked) => {
        const set = new ChangedKeys();
        for (const each of first) set.add(each);
        expect(set.has(looked)).toBe(isIn(first, looked));
        const other = new ChangedKeys();
        for (const each of second) other.add(each);
        set.addAll(other);
        expect(set.has(looked)).toBe(isIn([...first, ...second], looked));
      }),
    );
  });

  test("lets a transaction with 60,000 deletes and puts be checked within the time of a test", () => {
    const numbers = Array.from({ length: 20_000 }, (_, i) => String(i).padStart(5, "0"));
    const deletes = numbers.map((i) => encode({ 3: encode({ 1: `b${i}` }) }));
    const intervals = numbers.map((i) => encode({ 3: encode({ 1: `c${i}`, 2: `c${i}a` }) }));
    const puts = numbers.map((i) => encode({ 2: encode({ 1: `c${i}b` }) }));
    const request = (last: readonly Buffer[]): Buffer =>
      encode({
        2: [...[deletes, intervals, puts].map((all) => encode({ 4: nested(all) })), ...last],
      });
    checkTxn(decode.txn(request([])));
    const put = encode({ 2: encode({ 1: "c19999" }) });
    expect(() => checkTxn(decode.txn(request([put])))).toThrow("duplicate key");
  });
});
