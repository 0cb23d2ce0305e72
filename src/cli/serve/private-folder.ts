import { accessSync, constants, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/**
 * A folder for sockets that only this user can enter, in `$XDG_RUNTIME_DIR`, or else in the folder for temporary files. It is
 * removed also if the process ends before.
 */
export class PrivateFolder {
  readonly path: string;
  readonly #remove: () => void;

  /** Throws an Error if it can't be made. */
  constructor() {
    // mkdtemp sets mode 0700 whatever the umask.
    const path = mkdtempSync(join(parentFolder(process.env["XDG_RUNTIME_DIR"]), "watch-fanout-"));
    this.path = path;
    this.#remove = () => rmSync(path, { recursive: true, force: true });
    process.once("exit", this.#remove);
  }

  /** Idempotent. */
  remove(): void {
    this.#remove();
    process.removeListener("exit", this.#remove);
  }
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
