/**
 * Plants each bug of the corpus (test/corpus) and runs what must fail with it: `npm run corpus -- [ID...]`. With --table it
 * only writes the table of docs/guarantees.md.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { entries } from "../test/corpus/entries.ts";
import { runEntry } from "../test/corpus/run.ts";
import { withTable } from "../test/corpus/table.ts";

const page = "docs/guarantees.md";

async function main(): Promise<void> {
  const options = { table: { type: "boolean", default: false } } as const;
  const { values, positionals } = parseArgs({ options, allowPositionals: true });
  if (values.table) {
    writeFileSync(page, withTable(readFileSync(page, "utf8")));
    return;
  }
  const unknown = positionals.filter((id) => entries.every((entry) => entry.id !== id));
  if (unknown.length > 0) throw new Error(`The corpus has no ${unknown.join(", ")}.`);
  const chosen = entries.filter(({ id }) => positionals.length === 0 || positionals.includes(id));
  let uncaught = 0;
  for (const entry of chosen) {
    const attempts = await runEntry(entry);
    for (const { by, tookMs, problem } of attempts) {
      const seconds = (tookMs / 1_000).toFixed(1).padStart(6);
      const what = problem === undefined ? "" : `  NOT CAUGHT: ${problem}`;
      process.stdout.write(`${entry.id.padEnd(26)} ${seconds} s  ${by}${what}\n`);
    }
    if (attempts.length === 0 || attempts.some(({ problem }) => problem !== undefined)) uncaught++;
  }
  process.stdout.write(`${chosen.length - uncaught} of ${chosen.length} bugs were caught\n`);
  if (uncaught > 0) process.exitCode = 1;
}

await main();
