import { constants } from "node:fs";
import { mkdir, open, readdir, rename, rm } from "node:fs/promises";
import { dirname } from "node:path";
import { Fifo } from "../base/fifo.ts";

/** The file system, as the files of caches need it. Everything rejects with the errors of the operating system. */
export interface Disk {
  /** Creates a folder, with those above it, that only this user may use. */
  makeFolder(path: string): Promise<void>;
  /** The names of the files in a folder. */
  list(path: string): Promise<readonly string[]>;
  openToRead(path: string): Promise<ReadableFile>;
  /** Creates a file that only this user may use. */
  create(path: string): Promise<WritableFile>;
  rename(from: string, to: string): Promise<void>;
  /** Idempotent. */
  remove(path: string): Promise<void>;
  /** Makes the names of a folder survive a loss of power, where the file system can. Never rejects. */
  syncFolder(path: string): Promise<void>;
}

export interface ReadableFile {
  size(): Promise<number>;
  /** Fills the buffer with what is at this position. Rejects if the file ends before. */
  read(buffer: Buffer, position: number): Promise<void>;
  close(): Promise<void>;
}

export interface WritableFile {
  /** Appends all bytes. The buffer must not change until then. */
  write(buffer: Buffer): Promise<void>;
  /** Makes what was written survive a loss of power. */
  sync(): Promise<void>;
  close(): Promise<void>;
}

/**
 * Maximum number of operations in progress. Each occupies a thread of libuv, which has 4 for the whole process: a disk that
 * does not respond must not take them all.
 */
const maxOperations = 2;

/** Operations of all caches that wait for a thread. */
class ThreadShare {
  readonly #waiting = new Fifo<() => void>();
  #running = 0;

  async run<T>(operation: () => Promise<T>): Promise<T> {
    if (this.#running === maxOperations) {
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    } else {
      this.#running++;
    }
    try {
      return await operation();
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#running--;
      else next();
    }
  }
}

const threads = new ThreadShare();
const run = <T>(operation: () => Promise<T>): Promise<T> => threads.run(operation);

/** The real file system. */
export const nodeDisk: Disk = {
  makeFolder: (path) => run(async () => void (await mkdir(path, { recursive: true, mode: 0o700 }))),
  list: (path) => run(() => readdir(path)),
  async openToRead(path) {
    const file = await run(() => open(path, "r"));
    return {
      size: () => run(async () => (await file.stat()).size),
      read: (buffer, position) =>
        run(async () => {
          for (let at = 0; at < buffer.length; ) {
            const { bytesRead } = await file.read(buffer, at, buffer.length - at, position + at);
            if (bytesRead === 0) throw new Error(`${path} is shorter than it was.`);
            at += bytesRead;
          }
        }),
      close: () => run(() => file.close()),
    };
  },
  async create(path) {
    const { O_APPEND, O_CREAT, O_EXCL, O_WRONLY } = constants;
    const file = await run(() => open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND, 0o600));
    return {
      write: (buffer) => run(() => file.appendFile(buffer)),
      sync: () => run(() => file.datasync()),
      close: () => run(() => file.close()),
    };
  },
  rename: (from, to) => run(() => rename(from, to)),
  remove: (path) => run(() => rm(path, { force: true })),
  syncFolder: (path) =>
    run(async () => {
      try {
        const folder = await open(path, "r");
        await folder.sync().finally(() => folder.close());
      } catch {
        // Not every file system has this.
      }
    }),
};

/** Reads a small file. Rejects with the error of the operating system. */
export async function readWhole(disk: Disk, path: string): Promise<Buffer> {
  const file = await disk.openToRead(path);
  try {
    const bytes = Buffer.allocUnsafe(await file.size());
    await file.read(bytes, 0);
    return bytes;
  } finally {
    await file.close();
  }
}

/**
 * Replaces a small file, in a folder that is created if absent: after a loss of power it has this content, or that from before.
 * Rejects with the error of the operating system.
 */
export async function replaceWhole(disk: Disk, path: string, content: Buffer): Promise<void> {
  const folder = dirname(path);
  const next = `${path}.new`;
  await disk.makeFolder(folder);
  // Of a process that has ended meanwhile.
  await disk.remove(next);
  const file = await disk.create(next);
  try {
    await file.write(content);
    await file.sync();
  } finally {
    await file.close();
  }
  await disk.rename(next, path);
  await disk.syncFolder(folder);
}
