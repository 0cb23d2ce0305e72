/** The ids of tests in a part of a page: `<!--reads-1-->`. */
export function idsIn(part: string): string[] {
  return [...part.matchAll(/<!--([a-z]+-\d+[a-z]?)-->/g)].map(([, id = ""]) => id);
}

const isRule = (line: string | undefined): boolean => /^\|[-|]+\|$/.test(line ?? "");

/** The rows of a page's tables, without their heads, and the items of its lists. */
export function rulesOf(text: string): string[] {
  return text
    .replaceAll(/\n {2,}(?=\S)/g, " ")
    .split("\n")
    .filter((line, i, lines) =>
      line.startsWith("|") ? !isRule(line) && !isRule(lines[i + 1]) : line.startsWith("- "),
    );
}
