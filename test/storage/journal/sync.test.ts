import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { testFolder } from "./opened.ts";

/** The commits of a process, and its syncs, in order: what strace sees. */
function trace(sync: string): string[] {
  const folder = testFolder();
  const output = join(folder, "trace");
  const script = join(import.meta.dirname, "synced-writer.ts");
  const args = ["-f", "-e", "trace=fsync,fdatasync,write", "-o", output];
  const node = [process.execPath, "--disable-warning=ExperimentalWarning"];
  const { status } = spawnSync("strace", [...args, ...node, script, join(folder, "data"), sync]);
  expect(status).toBe(0);
  const lines = readFileSync(output, "utf8").split("\n");
  return lines.flatMap((line) => /(?:commit|kept) \d|fsync|fdatasync/.exec(line)?.[0] ?? []);
}

/** The part of a trace between a commit and its end. */
function during(lines: readonly string[], number: number): readonly string[] {
  return lines.slice(lines.indexOf(`commit ${number}`) + 1, lines.indexOf(`kept ${number}`));
}

test.skipIf(spawnSync("strace", ["-V"]).error !== undefined)(
  "A commit is synced once before it resolves, and without a sync of commits it is not",
  () => {
    const [full, off] = [trace("full"), trace("off")];
    // The first one also syncs the folder and the beginning of the write-ahead log.
    expect(during(full, 1).length).toBeGreaterThan(0);
    for (const number of [2, 3, 4]) {
      expect(during(full, number)).toHaveLength(1);
      expect(during(off, number)).toHaveLength(0);
    }
  },
);
