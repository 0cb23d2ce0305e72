import { describe, expect, test } from "vitest";
import { Attributes, noAttributes } from "../../src/selector/attributes.ts";
import { parseLabelSelector } from "../../src/selector/parse-label-selector.ts";
import fc, { runs } from "../property.ts";
import {
  labels,
  largeModelSelector,
  modelMatches,
  modelSelector,
  spelling,
} from "./label-model.ts";

function matches(selector: string, labels: Record<string, string>): boolean {
  const attributes = new Attributes(new Map(Object.entries(labels)), new Map());
  return parseLabelSelector(selector).matches(attributes);
}

describe("A label selector", () => {
  test.each<[selector: string, matching: object[], other: object[]]>([
    ["", [{}, { a: "b" }], []],
    ["a=b", [{ a: "b" }, { a: "b", c: "d" }], [{}, { a: "" }, { a: "B" }, { b: "b" }]],
    ["a!=b", [{}, { a: "" }, { a: "c" }], [{ a: "b" }]],
    ["a in (b,c)", [{ a: "b" }, { a: "c" }], [{}, { a: "" }, { a: "b,c" }]],
    ["a notin (b,c)", [{}, { a: "" }, { a: "d" }], [{ a: "b" }, { a: "c" }]],
    ["a", [{ a: "b" }, { a: "" }], [{}, { A: "b" }]],
    ["!a", [{}, { b: "a" }], [{ a: "b" }, { a: "" }]],
    ["a=", [{ a: "" }], [{}, { a: "b" }]],
    ["a!=", [{}, { a: "b" }], [{ a: "" }]],
    ["a in (,b)", [{ a: "" }, { a: "b" }], [{}, { a: "c" }]],
    ["a notin (,b)", [{}, { a: "c" }], [{ a: "" }, { a: "b" }]],
    ["a>1", [{ a: "2" }, { a: "10" }, { a: "+2" }], [{}, { a: "1" }, { a: "0" }, { a: "-2" }]],
    ["a<1", [{ a: "0" }, { a: "-2" }, { a: "-0" }], [{}, { a: "1" }, { a: "2" }, { a: "01" }]],
    ["a>1,a<4", [{ a: "2" }, { a: "003" }], [{ a: "1" }, { a: "4" }]],
    ["a<7", [], [{ a: "" }, { a: "x" }, { a: "1.5" }, { a: "1e0" }, { a: " 1" }, { a: "-" }]],
    ["a=b,c!=d", [{ a: "b" }, { a: "b", c: "e" }], [{}, { a: "b", c: "d" }, { c: "e" }]],
    ["a=b,a=c", [], [{}, { a: "b" }, { a: "c" }]],
  ])("%j picks by labels", (selector, matching, other) => {
    for (const labels of matching) {
      expect(matches(selector, { ...labels }), JSON.stringify(labels)).toBe(true);
    }
    for (const labels of other) {
      expect(matches(selector, { ...labels }), JSON.stringify(labels)).toBe(false);
    }
  });

  test.each([
    ["few", modelSelector],
    ["many", largeModelSelector],
  ])(
    "of %s requirements matches what a plain model of it does, however it is spelled",
    (_, model) => {
      const cases = model.chain((model) =>
        fc.tuple(fc.constant(model), spelling(model), fc.array(labels, { maxLength: 8 })),
      );
      fc.assert(
        fc.property(cases, ([model, text, objects]) => {
          const selector = parseLabelSelector(text);
          for (const labels of objects) {
            const expected = modelMatches(model, labels);
            expect(selector.matches(new Attributes(labels, new Map()))).toBe(expected);
          }
        }),
        { numRuns: runs(1_000) },
      );
    },
  );

  /** Labels that count their lookups. */
  class CountedLabels extends Map<string, string> {
    lookups = 0;

    override get(key: string): string | undefined {
      this.lookups++;
      return super.get(key);
    }
  }

  test.each<[what: string, requirement: (i: number) => string, matches: boolean]>([
    ["exclude labels", (i) => `l${i}!=x`, true],
    ["need labels", (i) => `l${i}`, false],
    ["exclude values of one label", (i) => `app!=v${i}`, true],
    ["allow values of one label", (i) => `app in (web,v${i})`, true],
    ["bound one label", (i) => `size>${i}`, true],
  ])("whose thousand requirements %s looks up no more than the object has", (_, one, expected) => {
    const selector = parseLabelSelector(Array.from({ length: 1_000 }, (_, i) => one(i)).join(","));
    const labels = new CountedLabels(Object.entries({ app: "web", tier: "front", size: "5000" }));
    expect(selector.matches(new Attributes(labels, new Map()))).toBe(expected);
    expect(labels.lookups).toBeLessThanOrEqual(labels.size);
    expect(selector.cost).toBeLessThan(50);
  });

  test("does not look at fields", () => {
    const attributes = new Attributes(new Map(), new Map([["a", "b"]]));
    expect(parseLabelSelector("a").matches(attributes)).toBe(false);
  });

  test("is empty where it picks everything", () => {
    expect(parseLabelSelector(" ").empty).toBe(true);
    expect(parseLabelSelector("a").empty).toBe(false);
    expect(parseLabelSelector("").matches(noAttributes)).toBe(true);
  });
});
