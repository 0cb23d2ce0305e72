import { access, constants, stat } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { reasonOf } from "./etcd/download.ts";

/** A place from which a binary is available, and how to get it. */
export type BinarySource<T> = readonly [name: string, get: () => Promise<T>];

/**
 * What the first of the sources has that works.
 *
 * @param failure the first line of the error if none does
 * @throws Error with the reason of every source
 */
export async function fromFirstSource<T>(
  sources: readonly BinarySource<T>[],
  failure: string,
): Promise<T> {
  const reasons: string[] = [];
  for (const [name, get] of sources) {
    try {
      return await get();
    } catch (error) {
      reasons.push(`  ${name}: ${reasonOf(error)}`);
    }
  }
  throw new Error([`${failure} What was tried:`, ...reasons].join("\n"));
}

/** Prints the path of a binary, or why it is absent, and sets the exit code. */
export async function printPath(get: () => Promise<string>): Promise<void> {
  try {
    process.stdout.write(`${await get()}\n`);
  } catch (error) {
    process.stderr.write(`${reasonOf(error)}\n`);
    process.exitCode = 1;
  }
}

/** The folder on PATH that has an executable `name`; undefined if no folder has it. */
export async function folderOnPath(name: string): Promise<string | undefined> {
  for (const folder of (process.env["PATH"] ?? "").split(delimiter)) {
    if (folder !== "" && (await isExecutable(join(folder, name)))) return folder;
  }
  return undefined;
}

/** Executable, and a file: a folder can be "executable" too. */
export async function isExecutable(path: string): Promise<boolean> {
  try {
    await access(path, constants.X_OK);
    return (await stat(path)).isFile();
  } catch {
    return false;
  }
}
