import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { openJournal, testFolder } from "./opened.ts";

const hasStrace = spawnSync("strace", ["-V"]).error === undefined;

interface Traced {
  readonly file: string;
  /** The commits of a process, and its system calls, in order. */
  readonly lines: readonly string[];
  readonly printed: readonly string[];
}

/** Runs a process that commits four times, as strace sees it. `inject`: what fails. */
function trace(calls: string, sync: "full" | "off", inject?: string): Traced {
  const folder = testFolder();
  const [output, file] = [join(folder, "trace"), join(folder, "data")];
  const script = fileURLToPath(new URL("./synced-writer.ts", import.meta.url));
  const options = ["-f", "-y", "-e", `trace=write,${calls}`, "-o", output];
  if (inject !== undefined) options.push("-e", `inject=${inject}`);
  const node = [process.execPath, "--disable-warning=ExperimentalWarning"];
  const { stderr } = spawnSync("strace", [...options, ...node, script, file, sync], {
    encoding: "utf8",
  });
  const seen = new RegExp(`(?:commit|kept) \\d|(?:${calls.replaceAll(",", "|")})\\(`);
  const lines = readFileSync(output, "utf8").split("\n");
  return {
    file,
    lines: lines.flatMap((line) => seen.exec(line)?.[0] ?? []),
    printed: stderr.split("\n").filter((line) => /^(?:commit|kept|failed) /.test(line)),
  };
}

/** The system calls between a commit and its end. */
function during({ lines }: Traced, number: number): readonly string[] {
  return lines.slice(lines.indexOf(`commit ${number}`) + 1, lines.indexOf(`kept ${number}`));
}

/** Which calls of the process those of a commit are, from 1. */
function numberOfFirst({ lines }: Traced, commit: number): number {
  const before = lines.slice(0, lines.indexOf(`commit ${commit}`));
  return before.filter((line) => line.endsWith("(")).length + 1;
}

describe.skipIf(!hasStrace)("A commit", () => {
  const syncs = "fsync,fdatasync";

  test("is synced once before it resolves, and without a sync of commits it is not", () => {
    const [full, off] = [trace(syncs, "full"), trace(syncs, "off")];
    // The first one also syncs the folder and the beginning of the write-ahead log.
    expect(during(full, 1).length).toBeGreaterThan(0);
    for (const number of [2, 3, 4]) {
      expect(during(full, number)).toHaveLength(1);
      expect(during(off, number)).toHaveLength(0);
    }
  });

  test("whose sync fails is a fault, and so are all later ones", async () => {
    const first = numberOfFirst(trace(syncs, "full"), 3);
    const { file, printed } = trace(syncs, "full", `${syncs}:error=EIO:when=${first}`);
    expect(printed).toEqual([
      ...["commit 1", "kept 1", "commit 2", "kept 2"],
      ...["commit 3", "failed 3: fault", "commit 4", "failed 4: fault"],
    ]);
    // It may have been kept, which is not known; what was kept before is there.
    expect([3, 4]).toContain((await openJournal({ file })).revision);
  });

  test("for which the disk has no room is STORAGE_FULL, and the next one is kept", async () => {
    const first = numberOfFirst(trace("pwrite64", "full"), 3);
    const { file, printed } = trace("pwrite64", "full", `pwrite64:error=ENOSPC:when=${first}`);
    expect(printed).toEqual([
      ...["commit 1", "kept 1", "commit 2", "kept 2"],
      ...["commit 3", "failed 3: true", "commit 4", "kept 4"],
    ]);
    expect((await openJournal({ file })).revision).toBe(4);
  });

  test("that the disk can't take is a fault", () => {
    const first = numberOfFirst(trace("pwrite64", "full"), 3);
    const { printed } = trace("pwrite64", "full", `pwrite64:error=EIO:when=${first}`);
    expect(printed.slice(4)).toEqual([
      ...["commit 3", "failed 3: fault", "commit 4", "failed 4: fault"],
    ]);
  });
});
