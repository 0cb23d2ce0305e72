import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { DirectJournal } from "./direct-journal.ts";
import { modelUpTo } from "./killed-writer.ts";
import { seen, seenChanges } from "./model.ts";

/*
 * Kills a process that commits at random times, and checks what it has left each time. `node test/storage/journal/kill.ts 100`
 * kills one hundred times.
 */

export interface KillReport {
  kills: number;
  /** Commits that had been reported as kept. */
  kept: number;
  /** Revisions that were there although the process was killed before it reported them. */
  unreported: number;
}

/** Throws an Error if a commit that was reported is missing, or one is there in part. */
export async function killAtRandom(count: number, maxMs: number): Promise<KillReport> {
  const folder = mkdtempSync(join(tmpdir(), "watch-fanout-kill-"));
  const file = join(folder, "data");
  const report: KillReport = { kills: 0, kept: 0, unreported: 0 };
  try {
    for (; report.kills < count; report.kills++) {
      const kept = await killOnce(file, Math.random() * maxMs);
      const revision = check(file, kept.at(-1) ?? 1);
      report.kept += kept.length;
      report.unreported += revision - (kept.at(-1) ?? revision);
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
  return report;
}

/** Returns the revisions that the process has reported, which is killed this long after the first one. */
async function killOnce(file: string, afterMs: number): Promise<number[]> {
  const script = join(import.meta.dirname, "killed-writer.ts");
  const child = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", script, file], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  let output = "";
  child.stdout.setEncoding("utf8");
  child.stdout.on("data", (text: string) => {
    if (output === "") setTimeout(() => child.kill("SIGKILL"), afterMs);
    output += text;
  });
  const signal = await new Promise((resolve) => {
    child.once("close", (_, killedBy) => resolve(killedBy));
  });
  if (signal !== "SIGKILL") throw new Error("The process has ended by itself.");
  // The last line may be cut off.
  return output.split("\n").slice(0, -1).map(Number);
}

/** Checks everything that the file has, and returns its revision. */
function check(file: string, kept: number): number {
  const journal = new DirectJournal(file);
  try {
    const { revision, oldest, requests } = journal.data.numbers;
    if (revision < kept) throw new Error(`Revision ${kept} was kept, and ${revision} is there.`);
    const model = modelUpTo(revision);
    const state = [...model.stateAt(revision).values()].map(seen);
    const changes = seenChanges(model.revisions.slice(oldest - 1));
    const isRight =
      isDeepStrictEqual(journal.state().map(seen), state) &&
      isDeepStrictEqual(seenChanges(journal.changesAfter(oldest)), changes) &&
      requests.count === Math.min(revision - 1, 10_000);
    if (!isRight) throw new Error(`What is there at revision ${revision} is wrong.`);
    return revision;
  } finally {
    journal.close();
  }
}

if (process.argv[1] === import.meta.filename) {
  const report = await killAtRandom(Number(process.argv[2] ?? 20), 400);
  process.stdout.write(`${JSON.stringify(report)}\n`);
}
