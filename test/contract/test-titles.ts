import { globSync, readFileSync } from "node:fs";

/** Files that name tests. */
const naming = ["test/bounds/**", "test/corpus/*.ts", "test/**/*-tests.ts"];

/** The files that have a text in quotation marks. */
const filesByText = new Map<string, Set<string>>();
for (const file of globSync("test/**/*.ts", { exclude: naming })) {
  for (const [, text = ""] of readFileSync(file, "utf8").matchAll(/"([^"\n]*)"/g)) {
    const files = filesByText.get(text) ?? new Set();
    filesByText.set(text, files.add(file));
  }
}

/**
 * The files with a title, as the title of a test or as one of the rows that a table of tests takes its titles from. A
 * title that several files have is preceded by the name of one: "unfinished-requests.test.ts: is refused after a minute".
 */
export function filesWith(title: string): string[] {
  const [, name, text = title] = /^([\w/-]+\.test\.ts): (.*)$/.exec(title) ?? [];
  const files = [...(filesByText.get(text) ?? [])];
  return name === undefined ? files : files.filter((file) => file.endsWith(`/${name}`));
}

export const notOneFile =
  "The test was renamed or removed, or several files have one of this title: then precede it by the name of its file, as in `unfinished-requests.test.ts: is refused after a minute`.";
