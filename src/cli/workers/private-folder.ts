import { accessSync, constants, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** A folder that only this user can enter. */
export interface PrivateFolder {
  readonly path: string;
  /** Removes it with its files. Idempotent. */
  remove(): void;
}

/**
 * Makes a folder with mode 0700 in `$XDG_RUNTIME_DIR`, or else in the folder for temporary files. Throws the error of the
 * operating system if it can't be made.
 */
export function makePrivateFolder(
  runtimeFolder: string | undefined = process.env["XDG_RUNTIME_DIR"],
): PrivateFolder {
  // mkdtemp sets mode 0700 whatever the umask.
  const path = mkdtempSync(join(parentFolder(runtimeFolder), "watch-fanout-"));
  return { path, remove: () => removeFolder(path) };
}

/** Removes a folder with its files. Idempotent. */
export function removeFolder(path: string): void {
  rmSync(path, { recursive: true, force: true });
}

function parentFolder(runtimeFolder: string | undefined): string {
  if (runtimeFolder === undefined || runtimeFolder === "") return tmpdir();
  try {
    accessSync(runtimeFolder, constants.W_OK | constants.X_OK);
    return runtimeFolder;
  } catch {
    // A service that was started with the environment of another user.
    return tmpdir();
  }
}
