import { readFile } from "node:fs/promises";
import { describe, expect, test } from "vitest";
import { guarantees } from "./guarantees.ts";

const page = new URL("../../docs/guarantees.md", import.meta.url);
const text = await readFile(page, "utf8");
const rows = text.split("\n").filter((line) => /^\| (?!guarantee |fault )/.test(line));
const named = [...text.matchAll(/\[([^\]]+)\]\((\.\.\/test\/[^)]+)\)/g)].map(
  ([, name = "", path = ""]) => ({ name, path }),
);

describe("docs/guarantees.md", () => {
  test("has a row for every guarantee of a stream", () => {
    for (const name of Object.keys(guarantees)) expect(text).toContain(`| ${name} |`);
  });

  test("names a test in each row", () => {
    expect(rows.length).toBeGreaterThan(30);
    expect(rows.filter((row) => !row.includes("](../test/"))).toEqual([]);
  });

  test.each(named)("names $name, which is in $path", async ({ name, path }) => {
    const source = await readFile(new URL(path, page), "utf8");
    expect(source.includes(`"${name}"`)).toBe(true);
  });
});
