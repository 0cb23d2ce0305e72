import { readFile } from "node:fs/promises";
import { describe, expect, test } from "vitest";

const page = new URL("../../docs/semantics.md", import.meta.url);
const text = await readFile(page, "utf8");
const lines = text.split("\n");

/** A footnote of the page: `[^label]: [name of a test](its file)`. */
interface Footnote {
  readonly label: string;
  readonly name: string;
  readonly path: string;
}

const footnotes: Footnote[] = [
  ...text.matchAll(/^\[\^([\w-]+)\]: \[(.+)\]\((\.\.\/test\/[^)]+)\)$/gm),
].map(([, label = "", name = "", path = ""]) => ({ label, name, path }));

function labelsIn(part: string): string[] {
  return [...part.matchAll(/\[\^([\w-]+)\](?!:)/g)].map(([, label = ""]) => label);
}

/** The rows of the tables, without their heads. */
const rows = lines.filter((line, i) => {
  const isRule = (other: string | undefined): boolean => /^\|[-|]+\|$/.test(other ?? "");
  return line.startsWith("|") && !isRule(line) && !isRule(lines[i + 1]);
});

describe("docs/semantics.md", () => {
  test("names a test in each row of each table", () => {
    expect(rows.length).toBeGreaterThan(100);
    expect(rows.filter((row) => labelsIn(row).length === 0)).toEqual([]);
  });

  test("has rows of at most 160 characters", () => {
    expect(rows.filter((row) => row.length > 160)).toEqual([]);
  });

  test("has one footnote for each label, and a label for each footnote", () => {
    const defined = footnotes.map(({ label }) => label);
    expect(lines.filter((line) => line.startsWith("[^")).length).toBe(defined.length);
    expect(new Set(defined).size).toBe(defined.length);
    expect(new Set(labelsIn(text))).toEqual(new Set(defined));
  });

  test.each(footnotes)("names $name, which is in $path", async ({ name, path }) => {
    const source = await readFile(new URL(path, page), "utf8");
    // As the title of a test, or as one of the rows that a table of tests takes its titles from.
    expect(source.includes(`"${name}"`)).toBe(true);
  });
});
