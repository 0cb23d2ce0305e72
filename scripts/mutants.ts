/**
 * Mutates the source of folders, or single files, and prints how many mutants their tests kill: `npm run mutants --
 * src/policy`. A part of a folder, such as `src/reflector/backfill`, is judged by the tests of that part, a file by those
 * of its folder. If tests are named, a folder or a pattern of files, such as `npm run mutants -- src/cacher/watch
 * test/cacher`, these judge what survives. What was found is kept in .cache/mutants, and only what has changed since is
 * run again.
 */
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import process from "node:process";

/** One mutant of the report that Stryker writes (mutation-testing-report-schema). */
interface Mutant {
  readonly mutatorName: string;
  readonly replacement?: string;
  readonly status: "Killed" | "Survived" | "NoCoverage" | "Timeout" | "RuntimeError" | "Ignored";
  readonly location: { readonly start: Position; readonly end: Position };
}

/** Both count from 1. */
interface Position {
  readonly line: number;
  readonly column: number;
}

interface Report {
  readonly files: Readonly<Record<string, { readonly mutants: readonly Mutant[] }>>;
}

/** How the mutants of a folder ended. */
export interface Score {
  killed: number;
  timeout: number;
  survived: number;
  noCoverage: number;
}

const counted: Partial<Record<Mutant["status"], keyof Score>> = {
  Killed: "killed",
  Timeout: "timeout",
  Survived: "survived",
  NoCoverage: "noCoverage",
};

/** Counts the mutants of a report by the folder of their file; static ones and those of excluded kinds are left out. */
export function scoresOf(report: Report): ReadonlyMap<string, Score> {
  const scores = new Map<string, Score>();
  for (const [file, { mutants }] of Object.entries(report.files)) {
    const folder = dirname(file);
    const score = scores.get(folder) ?? { killed: 0, timeout: 0, survived: 0, noCoverage: 0 };
    scores.set(folder, score);
    for (const { status } of mutants) {
      const count = counted[status];
      if (count !== undefined) score[count]++;
    }
  }
  return scores;
}

/** A row of a Markdown table: killed, timeout, survived, no coverage, and the share that is detected. */
export function rowOf(folder: string, { killed, timeout, survived, noCoverage }: Score): string {
  const detected = killed + timeout;
  const share = (100 * detected) / (detected + survived + noCoverage);
  return `| ${folder} | ${killed} | ${timeout} | ${survived} | ${noCoverage} | ${share.toFixed(1)} % |`;
}

/** The folder of the tests of a folder of the source: the nearest that exists. */
export function testsOf(folder: string): string {
  const tests = folder.replace(/^src\b/, "test");
  return existsSync(tests) ? tests : testsOf(dirname(folder));
}

/** What Stryker mutates of a folder, or of a single file. */
export function patternOf(folderOrFile: string): string {
  return folderOrFile.endsWith(".ts") ? folderOrFile : `${folderOrFile}/**/*.ts`;
}

/** The places of the mutants that no test has detected, as Stryker's --mutate takes them: its columns count from 0. */
export function undetectedPlaces(report: Report): string[] {
  const places = Object.entries(report.files).flatMap(([file, { mutants }]) =>
    mutants.filter(isUndetected).map(({ location: { start, end } }) => {
      const [from, to] = [start, end].map(({ line, column }) => `${line}:${column - 1}`);
      return `${file}:${from}-${to}`;
    }),
  );
  return [...new Set(places)];
}

/** The first report, with the mutants that only the tests of the other one have detected as these did. */
export function merged(first: Report, other: Report): Report {
  const files = Object.entries(first.files).map(([file, { mutants }]) => {
    const others = new Map(other.files[file]?.mutants.map((mutant) => [nameOf(mutant), mutant]));
    const all = mutants.map((mutant) =>
      isUndetected(mutant) ? (others.get(nameOf(mutant)) ?? mutant) : mutant,
    );
    return [file, { mutants: all }] as const;
  });
  return { files: Object.fromEntries(files) };
}

function isUndetected({ status }: Mutant): boolean {
  return status === "Survived" || status === "NoCoverage";
}

function nameOf({ location, mutatorName, replacement }: Mutant): string {
  return JSON.stringify([location, mutatorName, replacement]);
}

/** Runs Stryker on these places, judged by these tests. */
function run(name: string, places: readonly string[], tests: string): Report {
  const file = `.cache/mutants/${name.replaceAll(/[^\w.]+/g, "-")}.json`;
  const { status } = spawnSync(
    "stryker",
    ["run", "--mutate", places.join(","), "--incrementalFile", file],
    // Stryker's copy of the source is without the etcd that was fetched.
    {
      stdio: "inherit",
      env: { ETCD_BIN: resolve(".cache/etcd"), ...process.env, MUTANTS_TESTS: tests },
    },
  );
  if (status !== 0) throw new Error(`Stryker failed on ${name}.`);
  return JSON.parse(readFileSync(file, "utf8")) as Report;
}

function mutate(folder: string, moreTests: readonly string[]): void {
  let report = run(folder, [patternOf(folder)], testsOf(folder));
  for (const tests of moreTests) {
    const places = undetectedPlaces(report);
    if (places.length > 0) report = merged(report, run(`${folder} ${tests}`, places, tests));
  }
  const lines = [
    "| folder | killed | timeout | survived | no coverage | score |",
    "|---|---|---|---|---|---|",
    ...[...scoresOf(report)].map(([each, score]) => rowOf(each, score)),
  ];
  process.stdout.write(`${lines.join("\n")}\n`);
}

if (import.meta.main) {
  const named = process.argv.slice(2);
  const folders = named.filter((name) => !name.startsWith("test/"));
  const moreTests = named.filter((name) => name.startsWith("test/"));
  if (folders.length === 0) throw new Error("Name folders: npm run mutants -- src/policy");
  for (const folder of folders) mutate(folder, moreTests);
}
