import { origins } from "./entries.ts";
import type { CorpusEntry } from "./entry.ts";

/** Around the table in the page. */
const begin = "<!-- begin corpus -->";
const end = "<!-- end corpus -->";

/** Returns the page with the current table. Throws if it has no place for it. */
export function withTable(page: string): string {
  const [before, rest] = page.split(begin);
  const after = rest?.split(end)[1];
  if (before === undefined || after === undefined) throw new Error(`The page has no ${begin}.`);
  return `${before}${begin}\n\n${table()}\n\n${end}${after}`;
}

/** The ids of all entries, by origin. What happened there, and what fails here, is in the entries. */
function table(): string {
  const rows = Object.entries(origins).map(
    ([origin, entries]) => `| ${origin} | ${entries.map(named).join(", ")} |`,
  );
  return ["| origin | bugs |", "|---|---|", ...rows].join("\n");
}

function named({ id, source }: CorpusEntry): string {
  return source.startsWith("https://") ? `[${id}](${source})` : id;
}
