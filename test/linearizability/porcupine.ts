import { execFile } from "node:child_process";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import type { History } from "./history.ts";

const run = promisify(execFile);

const source = join(import.meta.dirname, "checker");
const cache = join(import.meta.dirname, "..", "..", ".cache", "linearizability");
const program = join(cache, "checker");

/** The result for one history. */
export interface Verdict {
  /** "Unknown": the check took too long. */
  readonly result: "Ok" | "Illegal" | "Unknown";
  readonly operations: number;
  /** The path of a page that shows where the history is illegal. */
  readonly visualization?: string;
}

/** Whether Go is installed. Without it tests are skipped. */
export async function hasGo(): Promise<boolean> {
  return run("go", ["version"]).then(
    () => true,
    () => false,
  );
}

/** Builds the checker. Go gets Porcupine, and verifies its checksum. */
export async function buildChecker(): Promise<void> {
  await mkdir(cache, { recursive: true });
  await run("go", ["build", "-o", program, "."], { cwd: source, timeout: 10 * 60_000 });
}

/** Writes the history to .cache/linearizability and has it checked. */
export async function verdictOf(name: string, history: History): Promise<Verdict> {
  const file = join(cache, `${name}.json`);
  await writeFile(file, JSON.stringify(history));
  const { stdout } = await run(program, [file], { timeout: 5 * 60_000 });
  return JSON.parse(stdout) as Verdict;
}
