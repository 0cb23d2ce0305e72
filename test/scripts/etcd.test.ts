import { execFile } from "node:child_process";
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, onTestFinished, test } from "vitest";
import { binariesIn } from "../../scripts/etcd/binaries.ts";

const run = promisify(execFile);
const script = fileURLToPath(new URL("../../scripts/etcd.ts", import.meta.url));

/** A folder with an executable that only prints this version of etcd. */
async function folderWith(version: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "watch-fanout-etcd-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  const etcd = join(folder, "etcd");
  await writeFile(etcd, `#!/bin/sh\necho 'etcd Version: ${version}'\n`);
  await chmod(etcd, 0o755);
  return folder;
}

describe("An etcd for the tests", () => {
  test("is any from 3.5.13 on", async () => {
    expect(await binariesIn(await folderWith("3.5.13"))).toMatchObject({ version: "3.5.13" });
    expect(await binariesIn(await folderWith("3.6.6"))).toMatchObject({ version: "3.6.6" });
    await expect(binariesIn(await folderWith("3.5.9"))).rejects.toThrow(
      "is version 3.5.9, older than 3.5.13",
    );
  });

  test("has the minor version of ETCD_RELEASE", async () => {
    expect(await binariesIn(await folderWith("3.6.6"), "3.6")).toMatchObject({ version: "3.6.6" });
    await expect(binariesIn(await folderWith("3.60.1"), "3.6")).rejects.toThrow(
      "is version 3.60.1, and ETCD_RELEASE is 3.6",
    );
  });

  const find = (env: Readonly<Record<string, string>>): Promise<{ readonly stdout: string }> =>
    run(process.execPath, [script], { env: { PATH: process.env["PATH"], ...env } });

  test("is the one of ETCD_BIN, and no other", async () => {
    const folder = await folderWith("3.6.6");
    expect(await find({ ETCD_BIN: folder, ETCD_RELEASE: "3.6" })).toMatchObject({
      stdout: `${folder}/etcd\n`,
    });
    await expect(find({ ETCD_BIN: folder, ETCD_RELEASE: "3.5" })).rejects.toMatchObject({
      stderr: `ETCD_BIN is "${folder}", but ${folder}/etcd is version 3.6.6, and ETCD_RELEASE is 3.5\n`,
    });
  });

  test("is not looked for if ETCD_RELEASE is not a minor version", async () => {
    await expect(find({ ETCD_RELEASE: "v3.6.6" })).rejects.toMatchObject({
      stderr: 'ETCD_RELEASE is "v3.6.6", not a minor version such as 3.6\n',
    });
  });
});
