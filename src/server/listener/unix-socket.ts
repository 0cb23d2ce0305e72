import { chmodSync, lstatSync, mkdtempSync, renameSync, rmSync, type Stats } from "node:fs";
import { createConnection } from "node:net";
import { dirname, join, resolve } from "node:path";
import type { Clock } from "../../base/clock.ts";

/** Maximum length of a path, in bytes. Systems allow 103 and more; the socket is made in a folder next to its path. */
const maxPathBytes = 90;

/** How long a process that may still serve on the path can take to accept a connection, in milliseconds. */
const probeMs = 1_000;

const defaultMode = 0o600;

/** A Unix socket to listen on. */
export interface UnixListen {
  /** The path of its file, at most 90 bytes. */
  readonly path: string;
  /** The permissions of its file. Default: 0o600. */
  readonly mode?: number | undefined;
}

/** The file of a Unix socket that the server listens on. */
export interface UnixSocketFile {
  /** Removes the file, unless another process has replaced it. Idempotent. */
  remove(): void;
}

/**
 * Makes a Unix socket at a path: calls `bind` with another path in a folder that only this user can enter, sets the
 * permissions, and moves the socket to its path. So no process can connect before the permissions are set, and a file that
 * a killed process has left is replaced in one step.
 *
 * Rejects with an Error with a sentence if another process serves on the path, if the path is another file or too long, or
 * with the error of the operating system.
 */
export async function makeUnixSocket(
  { path: given, mode = defaultMode }: UnixListen,
  clock: Clock,
  bind: (path: string) => Promise<unknown>,
): Promise<UnixSocketFile> {
  const path = resolve(given);
  const bytes = Buffer.byteLength(path);
  if (bytes > maxPathBytes) {
    throw new Error(`the path has ${bytes} bytes, and the maximum is ${maxPathBytes}`);
  }
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (found !== undefined) await checkStale(path, found, clock);
  const folder = mkdtempSync(join(dirname(path), ".wf-"));
  try {
    const made = join(folder, "s");
    await bind(made);
    chmodSync(made, mode);
    const own = lstatSync(made);
    renameSync(made, path);
    return { remove: () => removeOwn(path, own) };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Rejects unless the file is a socket on which no process listens. */
async function checkStale(path: string, found: Stats, clock: Clock): Promise<void> {
  if (!found.isSocket()) throw new Error("the file exists, and is not a socket");
  const socket = createConnection(path);
  const code = await new Promise<string | undefined>((done) => {
    // A process that does not accept connections in time is alive.
    const timer = clock.setTimeout(() => done("ETIMEDOUT"), probeMs);
    socket.once("connect", () => done(undefined));
    socket.once("error", (error: NodeJS.ErrnoException) => done(error.code));
    socket.once("close", () => timer.cancel());
  });
  socket.destroy();
  if (code === "EACCES") throw new Error("EACCES: another user's process may serve on this socket");
  // ENOENT: that process has just removed it.
  if (code !== "ECONNREFUSED" && code !== "ENOENT") {
    throw new Error("EADDRINUSE: another process serves on this socket");
  }
}

function removeOwn(path: string, own: Stats): void {
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (found?.ino === own.ino && found.dev === own.dev) rmSync(path, { force: true });
}
