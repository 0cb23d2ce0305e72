import { describe, expect, test } from "vitest";
import { Attributes, noAttributes } from "../../src/selector/attributes.ts";
import { parseFieldSelector } from "../../src/selector/parse-field-selector.ts";
import fc, { runs } from "../property.ts";

function matches(selector: string, fields: Record<string, string>): boolean {
  const attributes = new Attributes(new Map(), new Map(Object.entries(fields)));
  return parseFieldSelector(selector).matches(attributes);
}

describe("A field selector", () => {
  test.each<[selector: string, matching: object[], other: object[]]>([
    ["", [{}, { a: "b" }], []],
    ["a=b", [{ a: "b" }, { a: "b", c: "d" }], [{}, { a: "" }, { a: "B" }, { b: "b" }]],
    ["a!=b", [{}, { a: "" }, { a: "c" }], [{ a: "b" }]],
    ["a=", [{}, { a: "" }, { b: "c" }], [{ a: "b" }]],
    ["a!=", [{ a: "b" }], [{}, { a: "" }, { b: "c" }]],
    ["a=b,c!=d", [{ a: "b" }, { a: "b", c: "e" }], [{}, { a: "b", c: "d" }, { c: "e" }]],
    ["a=b,a=c", [], [{}, { a: "b" }, { a: "c" }]],
    ["a=b\\,c\\=\\\\", [{ a: "b,c=\\" }], [{ a: "b\\,c\\=\\\\" }]],
  ])("%j picks by fields, an absent one being the empty string", (selector, matching, other) => {
    for (const fields of matching) {
      expect(matches(selector, { ...fields }), JSON.stringify(fields)).toBe(true);
    }
    for (const fields of other) {
      expect(matches(selector, { ...fields }), JSON.stringify(fields)).toBe(false);
    }
  });

  interface ModelRequirement {
    readonly field: string;
    readonly operator: "=" | "==" | "!=";
    readonly value: string;
  }

  const value = fc.string({
    unit: fc.constantFrom("a", "b", "\\", ",", "=", "!", " ", "😀"),
    maxLength: 3,
  });
  const requirement: fc.Arbitrary<ModelRequirement> = fc.record({
    field: fc.constantFrom("a", "b.c", "d!e", " f"),
    operator: fc.constantFrom("=", "==", "!="),
    value,
  });
  const fields = fc
    .dictionary(fc.constantFrom("a", "b.c", "d!e", " f"), value)
    .map((record) => new Map(Object.entries(record)));

  function spell({ field, operator, value }: ModelRequirement): string {
    const escaped = value.replaceAll("\\", "\\\\").replaceAll(",", "\\,").replaceAll("=", "\\=");
    return field + operator + escaped;
  }

  const cases = fc
    .array(requirement, { maxLength: 4 })
    .chain((model) =>
      fc.tuple(fc.constant(model), fc.shuffledSubarray(model, { minLength: model.length })),
    );

  test("matches what a plain model of it does, whatever has to be escaped", () => {
    fc.assert(
      fc.property(cases, fc.array(fields, { maxLength: 8 }), ([model, shuffled], objects) => {
        // Also the values of the requirements, so that many objects match.
        const close = new Map(model.map(({ field, value }) => [field, value]));
        const selector = parseFieldSelector(shuffled.map(spell).join(","));
        for (const fields of [...objects, close]) {
          const expected = model.every(({ field, operator, value }) => {
            const equal = (fields.get(field) ?? "") === value;
            return operator === "!=" ? !equal : equal;
          });
          expect(selector.matches(new Attributes(new Map(), fields))).toBe(expected);
        }
      }),
      { numRuns: runs(1_000) },
    );
  });

  test("has one canonical spelling, whichever way it was written, and shares it with no other", () => {
    const meaning = (model: readonly ModelRequirement[]) =>
      JSON.stringify(
        [...new Set(model.map((one) => spell({ ...one, operator: plain(one.operator) })))].sort(),
      );
    const plain = (operator: string) => (operator === "!=" ? "!=" : "=");
    fc.assert(
      fc.property(cases, cases, ([model, shuffled], [other]) => {
        const { canonical } = parseFieldSelector(model.map(spell).join(","));
        expect(parseFieldSelector(shuffled.map(spell).join(",,")).canonical).toBe(canonical);
        const same = parseFieldSelector(other.map(spell).join(",")).canonical === canonical;
        expect(same).toBe(meaning(model) === meaning(other));
      }),
    );
  });

  test("does not look at labels", () => {
    const attributes = new Attributes(new Map([["a", "b"]]), new Map());
    expect(parseFieldSelector("a=b").matches(attributes)).toBe(false);
  });

  test("is empty where it picks everything", () => {
    expect(parseFieldSelector(",").empty).toBe(true);
    expect(parseFieldSelector("a=").empty).toBe(false);
    expect(parseFieldSelector("").matches(noAttributes)).toBe(true);
  });

  test("lists the fields that it uses, without duplicates", () => {
    expect(parseFieldSelector("").fields).toEqual([]);
    expect(parseFieldSelector("b!=c,a=b,b!=d").fields).toEqual(["a", "b"]);
  });

  test.each([
    ["a=b", "b"],
    ["a==b,c=d", "b"],
    ["a=b\\,c", "b,c"],
    ["a=", ""],
    ["a!=x,a=b", "b"],
    ["a!=b", undefined],
    ["c=d", undefined],
    ["", undefined],
  ])("%j names the value that field a must have: %j", (selector, value) => {
    expect(parseFieldSelector(selector).exactField("a")).toBe(value);
  });
});
