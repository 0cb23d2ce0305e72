import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { usableCores } from "../../src/base/process-limits.ts";

/** The cores of a process in these groups, on a machine with 8. */
function coresOf(self: string, files: Readonly<Record<string, string>>): number {
  const folder = mkdtempSync(join(tmpdir(), "cores-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  for (const [path, content] of Object.entries({ self, ...files })) {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    writeFileSync(join(folder, path), content);
  }
  return usableCores({ root: folder, self: join(folder, "self") }, 8);
}

test.each<[string, string, Readonly<Record<string, string>>, number]>([
  ["the machine's without control groups", "", {}, 8],
  ["the machine's without a quota", "0::/a\n", { "a/cpu.max": "max 100000\n" }, 8],
  ["as many as the quota, rounded up", "0::/a\n", { "a/cpu.max": "250000 100000\n" }, 3],
  ["one with less than that", "0::/a\n", { "a/cpu.max": "50000 100000\n" }, 1],
  ["those of the machine with a larger quota", "0::/a\n", { "a/cpu.max": "900000 100000" }, 8],
  ["those of the smallest group around it", "0::/a/b\n", { "a/cpu.max": "200000 100000" }, 2],
  ["those of the top group, as in a container", "0::/a\n", { "cpu.max": "200000 100000\n" }, 2],
  [
    "those of version 1",
    "4:cpu,cpuacct:/a\n",
    { "cpu/a/cpu.cfs_quota_us": "150000\n", "cpu/a/cpu.cfs_period_us": "50000\n" },
    3,
  ],
  [
    "the machine's with version 1 and no quota",
    "4:cpu,cpuacct:/a\n",
    { "cpu/a/cpu.cfs_quota_us": "-1\n", "cpu/a/cpu.cfs_period_us": "50000\n" },
    8,
  ],
])("The usable cores are %s.", (_what, self, files, expected) => {
  expect(coresOf(self, files)).toBe(expected);
});
