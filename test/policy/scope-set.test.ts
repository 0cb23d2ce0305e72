import { describe, expect, test } from "vitest";
import type { AccessScope } from "../../src/policy/access.ts";
import { type GrantedText, type Rule, ScopeSet } from "../../src/policy/policy.ts";
import fc, { runs } from "../property.ts";

function granted(...texts: readonly string[]): GrantedText[] {
  return texts.map((text, index) => [text, { name: text, line: index + 1 } satisfies Rule]);
}

describe("A set of scopes", () => {
  const scopes = new ScopeSet(granted("a/", "b/c/", "z"), granted("a", "k/1", "a/within"));

  test.each<readonly [AccessScope, string | undefined]>([
    [{ prefix: "a/" }, "a/"],
    [{ prefix: "a/b" }, "a/"],
    [{ prefix: "a" }, undefined],
    [{ prefix: "" }, undefined],
    [{ prefix: "b/" }, undefined],
    [{ prefix: "b/c/d" }, "b/c/"],
    [{ prefix: "k/1" }, undefined],
    [{ key: "k/1" }, "k/1"],
    [{ key: "k/10" }, undefined],
    [{ key: "a" }, "a"],
    [{ key: "a/x" }, "a/"],
    [{ key: "a/within" }, "a/"],
    [{ key: "b" }, undefined],
    [{ key: "z" }, "z"],
    [{ key: "zebra" }, "z"],
    [{ key: "" }, undefined],
    [{ key: "\u{10ffff}" }, undefined],
  ])("has %j by the rule %s", (scope, rule) => {
    expect(scopes.covering(scope)?.name).toBe(rule);
  });

  test("with the empty prefix has every scope", () => {
    const all = new ScopeSet(granted("", "a/"), []);
    expect(all.covering({ prefix: "" })).toBeDefined();
    expect(all.covering({ key: "" })).toBeDefined();
    expect(all.covering({ key: "a/x" })?.name).toBe("");
  });

  test("takes the first rule of several that grant the same", () => {
    const first = { name: "first", line: 1 };
    const second = { name: "second", line: 2 };
    const set = new ScopeSet(
      [
        ["p", first],
        ["p", second],
      ],
      [
        ["k", first],
        ["k", second],
      ],
    );
    expect(set.covering({ prefix: "p" })).toBe(first);
    expect(set.covering({ key: "k" })).toBe(first);
    expect(set.scopes).toEqual([{ prefix: "p" }, { key: "k" }]);
  });

  test("lists its scopes without those inside of others, the keys in their order", () => {
    expect(scopes.scopes).toEqual([
      { prefix: "a/" },
      { prefix: "b/c/" },
      { prefix: "z" },
      { key: "a" },
      { key: "k/1" },
      { key: "a/within" },
    ]);
    const nested = new ScopeSet(granted("a/b", "a/", "undefined/"), []);
    expect(nested.scopes).toEqual([{ prefix: "a/" }, { prefix: "undefined/" }]);
    expect(new ScopeSet(granted("undefined/"), []).scopes).toEqual([{ prefix: "undefined/" }]);
  });

  test("has exactly the scopes that one of its prefixes or keys covers as a whole", () => {
    const text = fc.string({ unit: fc.constantFrom("a", "b", "/", "\u{ffff}", "\u{10000}") });
    const scope = fc.oneof(
      text.map((key): AccessScope => ({ key })),
      text.map((prefix): AccessScope => ({ prefix })),
    );
    fc.assert(
      fc.property(fc.array(text), fc.array(text), scope, (prefixes, keys, asked) => {
        const isCovered =
          "key" in asked
            ? keys.includes(asked.key) || prefixes.some((prefix) => asked.key.startsWith(prefix))
            : prefixes.some((prefix) => asked.prefix.startsWith(prefix));
        const found = new ScopeSet(granted(...prefixes), granted(...keys)).covering(asked);
        expect(found !== undefined).toBe(isCovered);
      }),
      { numRuns: runs(2_000) },
    );
  });
});
