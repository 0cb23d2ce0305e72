import { describe, expect, it } from "vitest";
import { isWide } from "../../../src/base/text-memory.ts";
import { shortName } from "../../../src/cacher/request/selection.ts";
import fc from "../../property.ts";

type Part = string | number | boolean | null;

/** The longest name: 128 UTF-16 units of text, each of which JSON may escape to 6, with brackets and quotes. */
const longestName = 128 * 6 + 100;

/** Texts of one byte per unit, of two, and of surrogates without their partner; from empty to above 128 units. */
const text = fc.oneof(
  fc.string({ maxLength: 4 }),
  fc.string({ unit: "binary", maxLength: 4 }),
  fc.string({ unit: fc.constantFrom("a", "\u00ff", "\u0100", "\ud800"), maxLength: 200 }),
  fc
    .tuple(fc.constantFrom("a", "\u00ff", "\u0100", "\ud800"), fc.integer({ min: 120, max: 300 }))
    .map(([unit, length]) => unit.repeat(length)),
);
const part = fc.oneof(
  { weight: 4, arbitrary: text },
  fc.integer(),
  fc.boolean(),
  fc.constant(null),
);
const parts = fc.array(part, { maxLength: 5 });
const longText = text.map((each) => each.padEnd(150, "x"));

function isEqual(a: readonly Part[], b: readonly Part[]): boolean {
  return a.length === b.length && a.every((each, i) => Object.is(each, b[i]));
}

describe("The short name of some parts", () => {
  it("is equal for equal parts, also if their texts were cut out of a longer and wider one", () => {
    fc.assert(
      fc.property(parts, (some) => {
        const copies = some.map((each) =>
          typeof each === "string" ? `\u0100${each}`.slice(1) : each,
        );
        expect(shortName(...copies)).toBe(shortName(...some));
      }),
    );
  });

  it("differs for any other parts", () => {
    fc.assert(
      fc.property(parts, parts, (some, others) => {
        expect(shortName(...some) === shortName(...others)).toBe(isEqual(some, others));
      }),
    );
  });

  it("differs if one unit of a text differs in any of its bytes, or a part is missing", () => {
    const bits = fc.constantFrom(0x1, 0x80, 0x100, 0x8000);
    fc.assert(
      fc.property(parts, longText, fc.nat(), bits, parts, (before, long, at, flipped, after) => {
        const i = at % long.length;
        const unit = String.fromCharCode(long.charCodeAt(i) ^ flipped);
        const changed = `${long.slice(0, i)}${unit}${long.slice(i + 1)}`;
        const name = shortName(...before, long, ...after);
        expect(shortName(...before, changed, ...after)).not.toBe(name);
        expect(shortName(...before, long, ...after, null)).not.toBe(name);
        expect(shortName(...before, ...after)).not.toBe(name);
      }),
    );
  });

  it("differs if the border between two texts is elsewhere", () => {
    fc.assert(
      fc.property(text, longText, fc.nat(), fc.nat(), (short, long, at, otherAt) => {
        const both = short + long;
        const [i, j] = [at % (both.length + 1), otherAt % (both.length + 1)];
        fc.pre(i !== j);
        expect(shortName(both.slice(0, i), both.slice(i))).not.toBe(
          shortName(both.slice(0, j), both.slice(j)),
        );
        expect(shortName(both.slice(0, i), both.slice(i))).not.toBe(shortName(both));
      }),
    );
  });

  it("differs if the same bytes are texts of other widths, with the same lengths or not", () => {
    const half = fc.string({ minLength: 100, maxLength: 100 });
    fc.assert(
      fc.property(half, half, (one, other) => {
        const wide = `\u0101${one.slice(1)}`;
        const bytes = Buffer.concat([Buffer.from(wide, "utf16le"), Buffer.from(other, "latin1")]);
        const narrowFirst = bytes.toString("latin1", 0, 100);
        const wideLast = bytes.toString("utf16le", 100);
        expect([wide, other, narrowFirst, wideLast].map(isWide)).toEqual([
          true,
          false,
          false,
          true,
        ]);
        expect([narrowFirst.length, wideLast.length]).toEqual([100, 100]);
        expect(shortName(narrowFirst, wideLast)).not.toBe(shortName(wide, other));
        expect(shortName(bytes.toString("latin1"))).not.toBe(shortName(wide, other));
      }),
    );
  });

  it("differs for a number, a boolean or null and a text with the same characters", () => {
    const plain = fc.oneof(fc.integer(), fc.boolean(), fc.constant(null));
    fc.assert(
      fc.property(plain, parts, longText, (value, others, long) => {
        expect(shortName(value, ...others)).not.toBe(shortName(String(value), ...others));
        expect(shortName(value, long)).not.toBe(shortName(String(value), long));
        expect(shortName(value, long)).not.toBe(shortName(JSON.stringify([value]), long));
      }),
    );
  });

  it("is short, regardless of the length of the texts", () => {
    fc.assert(
      fc.property(fc.array(text, { maxLength: 5 }), fc.nat(100_000), (some, length) => {
        expect(shortName(...some).length).toBeLessThan(longestName);
        expect(shortName(...some, "x".repeat(length + 129)).length).toBeLessThan(60);
      }),
    );
  });
});
