import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { idsIn, rulesOf } from "./page-rules.ts";
import { semanticsTests } from "./semantics-tests.ts";
import { filesWith, notOneFile } from "./test-titles.ts";

const text = readFileSync("docs/semantics.md", "utf8");

const rules = rulesOf(text);

describe("docs/semantics.md", () => {
  test("names a test in each row of a table, and in each item of a list", () => {
    expect(rules.length).toBeGreaterThan(100);
    expect(rules.filter((rule) => idsIn(rule).length === 0)).toEqual([]);
  });

  test("ends each item of a list with a test", () => {
    const items = rules.filter((rule) => rule.startsWith("- "));
    expect(items.filter((item) => !/<!--[a-z]+-\d+-->$/.test(item.trimEnd()))).toEqual([]);
  });

  test("has no comments but ids", () => {
    expect(text.match(/<!--/g)).toHaveLength(idsIn(text).length);
  });

  test("names each test of test/contract/semantics-tests.ts, and no other", () => {
    expect(Object.keys(semanticsTests).length).toBeGreaterThan(300);
    expect(new Set(idsIn(text))).toEqual(new Set(Object.keys(semanticsTests)));
  });

  test.each(Object.entries(semanticsTests))("%s is a test of one file: %s", (_id, title) => {
    expect(filesWith(title), notOneFile).toHaveLength(1);
  });
});
