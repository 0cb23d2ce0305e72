import { origins } from "./entries.ts";

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

/** The number of bugs by their origin. What each is, and what fails with it, is in its entry. */
function table(): string {
  const rows = Object.entries(origins).map(([origin, { length }]) => `| ${origin} | ${length} |`);
  return ["| origin | bugs |", "|---|---|", ...rows].join("\n");
}
