import { origins } from "./entries.ts";
import type { CorpusEntry } from "./entry.ts";

/** Around the tables in the page. */
const begin = "<!-- begin corpus -->";
const end = "<!-- end corpus -->";

/** Returns the page with the current tables. Throws if it has no place for them. */
export function withTables(page: string): string {
  const [before, rest] = page.split(begin);
  const after = rest?.split(end)[1];
  if (before === undefined || after === undefined) throw new Error(`The page has no ${begin}.`);
  return `${before}${begin}\n\n${tables()}\n${end}${after}`;
}

function tables(): string {
  return Object.entries(origins)
    .map(([origin, entries]) => {
      const head = `| ${origin} | what happened there | how it would show here | what fails with it |`;
      return `${[head, "|---|---|---|---|", ...entries.map(row)].join("\n")}\n`;
    })
    .join("\n");
}

function row({
  id,
  source,
  bug,
  shows,
  tests,
  seed,
  isWithstood,
  isPassedOn,
}: CorpusEntry): string {
  const name = source.startsWith("https://") ? `[${id}](${source})` : id;
  const caught = [
    ...(tests ?? []).map((test) => `\`${test.file.replace(/^test\//, "")}\`: ${test.name}`),
    ...(seed === undefined ? [] : [`seed ${seed.seed}: ${seed.message}`]),
    ...(isWithstood === true
      ? ["etcd's bug alone is withstood; the defence is removed as well"]
      : []),
    ...(isPassedOn === undefined ? [] : [`not detected at once: ${isPassedOn}`]),
  ];
  return `| ${[name, bug, shows, caught.join("; ")].map(cell).join(" | ")} |`;
}

function cell(text: string): string {
  return text.replaceAll("|", "\\|");
}
