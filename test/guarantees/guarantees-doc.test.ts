import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { idsIn, rulesOf } from "../contract/page-rules.ts";
import { filesWith, notOneFile } from "../contract/test-titles.ts";
import { guarantees } from "./guarantees.ts";
import { guaranteesTests } from "./guarantees-tests.ts";

/** The page without the tables of the corpus, whose rows name their tests themselves. */
const text = readFileSync("docs/guarantees.md", "utf8").replace(
  /<!-- begin corpus -->.*<!-- end corpus -->/s,
  "",
);
const rows = rulesOf(text).filter((rule) => rule.startsWith("|"));

describe("docs/guarantees.md", () => {
  test("has a row for every guarantee of a stream", () => {
    for (const name of Object.keys(guarantees)) expect(text).toContain(`| ${name} |`);
  });

  test("names a test in each row", () => {
    expect(rows.length).toBeGreaterThan(30);
    expect(rows.filter((row) => idsIn(row).length === 0)).toEqual([]);
  });

  test("names each test of test/guarantees/guarantees-tests.ts, and no other", () => {
    expect(idsIn(text).sort()).toEqual(Object.keys(guaranteesTests).sort());
  });

  test.each(Object.entries(guaranteesTests))("%s is a test of one file: %s", (_id, title) => {
    expect(filesWith(title), notOneFile).toHaveLength(1);
  });
});
