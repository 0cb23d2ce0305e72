import { execFile } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { firstSeedLike } from "../simulation/scenario.ts";
import { type CatchingSeed, type CatchingTest, type CorpusEntry, modelFolder } from "./entry.ts";

const run = promisify(execFile);

const register = new URL("register.ts", import.meta.url).href;
const simulation = fileURLToPath(new URL("../simulation/run.ts", import.meta.url));
const root = fileURLToPath(new URL("../..", import.meta.url));

/** How long one test or simulation may take, in milliseconds. */
const timeoutMs = 600_000;

/** After which a test has failed that waits for what the bug prevents, in milliseconds. */
const testTimeoutMs = 20_000;

/** How many seeds are tried in the place of one that no longer shows the bug. */
const otherSeeds = 30;

/** The outcome of one test or seed of an entry. */
export interface Attempt {
  /** The title of the test, or the seed. */
  readonly by: string;
  readonly tookMs: number;
  /** Why it does not count as caught; undefined: it does. */
  readonly problem: string | undefined;
}

interface Output {
  readonly code: number;
  readonly text: string;
}

/** The report of Vitest, as far as it is read. */
interface TestReport {
  readonly testResults: readonly {
    readonly assertionResults: readonly {
      readonly status: string;
      readonly failureMessages: readonly string[];
    }[];
  }[];
}

/** Runs Node.js with the bug planted, also in its child processes. `corpus`: what the variable CORPUS is. */
async function runNode(args: readonly string[], corpus: string): Promise<Output> {
  const environment = Object.fromEntries(
    // Those of Vitest, if it runs this, are for its own workers.
    Object.entries(process.env).filter(([name]) => !/^(?:VITEST|TEST$|NODE_ENV$)/.test(name)),
  );
  const env = {
    ...environment,
    CORPUS: corpus,
    THOROUGH: "1",
    NODE_OPTIONS: `--disable-warning=ExperimentalWarning --import=${register}`,
  };
  const options = { cwd: root, env, timeout: timeoutMs, maxBuffer: 64 * 1024 ** 2 };
  try {
    const { stdout } = await run(process.execPath, [...args], options);
    return { code: 0, text: stdout };
  } catch (error) {
    const { code, stdout = "", stderr = "" } = error as Partial<Record<string, unknown>>;
    return { code: typeof code === "number" ? code : -1, text: `${stdout}${stderr}` };
  }
}

/** Runs all that must catch an entry's bug. */
export async function runEntry(entry: CorpusEntry): Promise<Attempt[]> {
  const attempts: Attempt[] = [];
  for (const one of entry.tests ?? []) {
    attempts.push(await timed(one.name, () => problemOfTest(entry, one)));
  }
  const { seed } = entry;
  if (seed === undefined) return attempts;
  attempts.push(await timed(`seed ${seed.seed}`, () => problemOfSeed(entry, seed)));
  if (entry.isWithstood !== true) return attempts;
  const withDefence = `seed ${seed.seed}, withstood`;
  attempts.push(await timed(withDefence, () => problemWithstanding(entry, seed)));
  return attempts;
}

async function timed(by: string, problem: () => Promise<string | undefined>): Promise<Attempt> {
  const began = performance.now();
  const found = await problem();
  return { by, problem: found, tookMs: performance.now() - began };
}

async function problemOfTest(entry: CorpusEntry, test: CatchingTest): Promise<string | undefined> {
  const folder = mkdtempSync(join(tmpdir(), "watch-fanout-corpus-"));
  try {
    const file = join(folder, "report.json");
    const name = test.name.replaceAll(/[\\^$.*+?()[\]{}|]/g, "\\$&");
    const vitest = join(root, "node_modules/vitest/vitest.mjs");
    const reporting = ["--reporter=json", `--outputFile=${file}`, `--testTimeout=${testTimeoutMs}`];
    const args = [vitest, "run", test.file, "-t", name, ...reporting];
    const { text } = await runNode(args, entry.id);
    if (!existsSync(file)) return `Vitest made no report: ${text.slice(-500)}`;
    const report = JSON.parse(readFileSync(file, "utf8")) as TestReport;
    const results = report.testResults.flatMap(({ assertionResults }) => assertionResults);
    const failed = results.filter(({ status }) => status === "failed");
    const ran = results.filter(({ status }) => status === "passed" || status === "failed");
    if (ran.length === 0) return "no test ran: is its title right, and does its file load?";
    if (failed.length === 0) return "the test passed";
    const messages = failed.flatMap(({ failureMessages }) => failureMessages);
    if (messages.some((message) => message.includes(test.message))) return undefined;
    return `it failed for another reason: ${messages[0]?.slice(0, 300)}`;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function simulate(seed: number, seeds: number, corpus: string): Promise<Output> {
  const range = ["--seed", String(seed), "--seeds", String(seeds)];
  return runNode([simulation, ...range, "--no-shrink"], corpus);
}

/**
 * What a seed decides changes with the code. If the recorded one no longer shows the bug, looks for another and reports it.
 */
async function problemOfSeed(
  entry: CorpusEntry,
  { seed, message }: CatchingSeed,
): Promise<string | undefined> {
  const sound = await simulate(seed, 1, "");
  if (sound.code !== 0) return `the seed fails without the bug: ${sound.text.slice(0, 300)}`;
  const recorded = await simulate(seed, 1, entry.id);
  if (recorded.code !== 0 && recorded.text.includes(message)) return undefined;
  const first = firstSeedLike(seed);
  const { code, text } = await simulate(first, otherSeeds, entry.id);
  const [, found, guarantee] = /^Seed (\d+) violates (\w+)/m.exec(text) ?? [];
  if (code === 0) return `${otherSeeds} seeds from ${first} on violate nothing`;
  if (found === undefined) return `no seed violates anything within ${timeoutMs} ms`;
  return `the recorded seed shows nothing; seed ${found} violates ${guarantee}: record it`;
}

/** The bug of etcd alone, with the defence of this service. */
async function problemWithstanding(
  entry: CorpusEntry,
  { seed }: CatchingSeed,
): Promise<string | undefined> {
  const { code, text } = await simulate(seed, 1, `${entry.id},${modelFolder}`);
  return code === 0 ? undefined : `the bug of etcd alone shows: ${text.slice(0, 500)}`;
}
