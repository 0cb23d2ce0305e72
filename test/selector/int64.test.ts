import { describe, expect, test } from "vitest";
import { compareInt64, naturalInt64 } from "../../src/selector/int64.ts";
import fc, { runs } from "../property.ts";

const largest = 2n ** 63n - 1n;

/** Integers of every size, often close to one another or to the limits of 64 bits. */
const near = (middle: bigint) => fc.bigInt(middle - 2n, middle + 2n);
const integer = fc.oneof(near(0n), near(1000n), near(largest), near(-largest), fc.bigInt());
const natural = fc.oneof(
  fc.bigInt(0n, 3n),
  fc.bigInt(largest - 3n, largest),
  fc.bigInt(0n, largest),
);

function isInt64(value: bigint): boolean {
  return BigInt.asIntN(64, value) === value;
}

/** Spellings of an integer: with leading zeros, and with a plus. */
function written(value: bigint, zeros: number, plus: boolean): string {
  const digits = String(value < 0n ? -value : value);
  const sign = value < 0n ? "-" : plus ? "+" : "";
  return sign + "0".repeat(zeros) + digits;
}

describe("compareInt64", () => {
  test("compares as integers do, and says NaN beyond 64 bits", () => {
    fc.assert(
      fc.property(integer, fc.nat(3), fc.boolean(), natural, (value, zeros, plus, bound) => {
        const compared = compareInt64(written(value, zeros, plus), String(bound));
        if (!isInt64(value)) expect(compared).toBeNaN();
        else expect(Math.sign(compared)).toBe(value < bound ? -1 : value > bound ? 1 : 0);
      }),
      { numRuns: runs(1_000) },
    );
  });

  test.each(["", "+", "-", "+-1", "1-", " 1", "1 ", "1.0", "1e3", "0x1", "1_0", "١", "/", ":"])(
    "does not take %j for an integer",
    (text) => {
      expect(compareInt64(text, "0")).toBeNaN();
      expect(naturalInt64(text)).toBeUndefined();
    },
  );
});

describe("naturalInt64", () => {
  test.each([
    ["0", "0"],
    ["-0", "0"],
    ["000", "0"],
    ["+7", "7"],
    ["0070", "70"],
    ["9223372036854775807", "9223372036854775807"],
    ["9223372036854775808", undefined],
    ["-1", undefined],
  ])("of %j is %j", (text, natural) => {
    expect(naturalInt64(text)).toBe(natural);
  });
});
