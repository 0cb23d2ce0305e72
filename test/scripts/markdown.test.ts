import { describe, expect, test } from "vitest";
import { bullet, paragraph, table } from "../../scripts/reference/markdown.ts";

describe("Generated Markdown", () => {
  test("has lines of at most 120 characters, and loses no word", () => {
    const text = Array.from({ length: 60 }, (_, i) => `word${i}`).join(" ");
    const lines = paragraph(text).split("\n");
    expect(lines.length).toBeGreaterThan(1);
    for (const line of lines) expect(line.length).toBeLessThanOrEqual(120);
    expect(lines.join(" ")).toBe(text);
  });

  test("indents the lines of a bullet", () => {
    const lines = bullet("word ".repeat(60).trim()).split("\n");
    expect(lines[0]).toMatch(/^- word/);
    for (const line of lines.slice(1)) expect(line).toMatch(/^ {2}word/);
  });

  test("does not break code", () => {
    const code = "`npm run a-script with some arguments`";
    expect(paragraph(`${"x".repeat(100)} ${code}`).split("\n")).toEqual(["x".repeat(100), code]);
  });

  test("escapes what would end a cell", () => {
    expect(table(["a", "b"], [["1|2", "3"]])).toBe("| a | b |\n|---|---|\n| 1\\|2 | 3 |");
  });
});
