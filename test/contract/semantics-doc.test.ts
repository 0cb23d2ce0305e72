import { readFile } from "node:fs/promises";
import { describe, expect, test } from "vitest";

const page = new URL("../../docs/semantics.md", import.meta.url);

/** A test that the page names: `[its name](its file)`. */
interface Named {
  readonly name: string;
  readonly path: string;
}

function namedIn(text: string): Named[] {
  const links = text.matchAll(/\[([^\]]+)\]\((\.\.\/test\/[^)]+)\)/g);
  return [...links].map(([, name = "", path = ""]) => ({ name, path }));
}

const text = await readFile(page, "utf8");
const named = namedIn(text);

describe("docs/semantics.md", () => {
  test("names a test in each row of each table", () => {
    const lines = text.split("\n");
    const isRule = (line: string | undefined): boolean => /^\|[-|]+\|$/.test(line ?? "");
    const rows = lines.filter(
      (line, i) => line.startsWith("|") && !isRule(line) && !isRule(lines[i + 1]),
    );
    expect(rows.length).toBeGreaterThan(100);
    expect(rows.filter((row) => namedIn(row).length === 0)).toEqual([]);
  });

  test.each(named)("names $name, which is in $path", async ({ name, path }) => {
    const source = await readFile(new URL(path, page), "utf8");
    // As the title of a test, or as one of the rows that a table of tests takes its titles from.
    expect(source.includes(`"${name}"`)).toBe(true);
  });
});
