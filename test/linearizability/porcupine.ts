import { execFile } from "node:child_process";
import { mkdir, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import type { History } from "./history.ts";

const run = promisify(execFile);

const source = join(import.meta.dirname, "checker");
const cache = join(import.meta.dirname, "..", "..", ".cache", "linearizability");
const program = join(cache, "checker");

/** Includes the download of Porcupine. */
export const buildTimeoutMs = 10 * 60_000;

/** The result for one history. */
export interface Verdict {
  /** "Unknown": the check took too long. */
  readonly result: "Ok" | "Illegal" | "Unknown";
  readonly operations: number;
  /** The path of a page that shows where the history is illegal. */
  readonly visualization?: string;
}

/** Whether Go is installed. Without it tests are skipped, which this prints. */
export async function hasGo(): Promise<boolean> {
  try {
    await run("go", ["version"]);
    return true;
  } catch {
    process.stderr.write('Skipped the checks of linearizability, since "go version" fails.\n');
    return false;
  }
}

/** Builds the checker. Go gets Porcupine, and verifies its checksum. */
export async function buildChecker(): Promise<void> {
  await mkdir(cache, { recursive: true });
  // Another file of tests may build it or run it at the same time.
  const built = `${program}-${process.pid}-${process.hrtime.bigint()}`;
  await run("go", ["build", "-o", built, "."], { cwd: source, timeout: buildTimeoutMs });
  await rename(built, program);
}

/** Writes the history to .cache/linearizability and has it checked. */
export async function verdictOf(name: string, history: History): Promise<Verdict> {
  const file = join(cache, `${name}.json`);
  await writeFile(file, JSON.stringify(history));
  const { stdout } = await run(program, [file], { timeout: 60_000 });
  return JSON.parse(stdout) as Verdict;
}
