import { createHash } from "node:crypto";
import { open, stat } from "node:fs/promises";
import type { FileCertificate } from "./certificate-store.ts";
import { type Clock, pause, type Timer } from "./clock.ts";
import { messageOf } from "./errors.ts";
import type { Logger } from "./logger.ts";

/** Interval between two checks of all files, in milliseconds. */
const checkIntervalMs = 1_000;

/**
 * Number of checks that read a file again after its metadata has changed. A file that is written twice within the
 * resolution of its modification time, up to 2 s on some file systems, has the same metadata after the second time.
 */
const readsAfterChange = 3;

/** Time after which a version is tried again that was refused for a passing reason, in milliseconds. Doubled each time. */
const firstRetryMs = 2_000;
const maxRetryMs = 5 * 60_000;

/**
 * Why a version could not be used now, for a reason that is not its content, such as a time limit: it is tried again. The
 * message is a sentence.
 */
export class PassingFailure extends Error {
  override readonly name = "PassingFailure";
}

/** Files that are used together, such as a certificate and its key. */
export interface WatchedFileSet {
  /** What they are, for log lines and as a label of metrics, such as `server-certificate`. */
  readonly kind: string;
  /** At least one. A symbolic link is followed, so a replaced link (`..data` of Kubernetes) is a change. */
  readonly paths: readonly string[];
  /** Maximum size of each file, in bytes. A larger version is refused. */
  readonly maxBytes: number;
  /** The contents that are in use, in the order of `paths`. */
  readonly contents: readonly Uint8Array[];
  /**
   * Takes a new version of the files, in the order of `paths`. Throws, or rejects with, an Error with a sentence if the
   * version can't be used; it must then have changed nothing. With a PassingFailure it is called again later, otherwise
   * not before the files have changed. The sentence is logged, so it has no secrets. A promise must settle in bounded
   * time: the files are not checked before that.
   */
  readonly apply: (contents: readonly Buffer[]) => void | Promise<void>;
  /** Finds when the certificates of a version expire. Absent: the files have no certificates. */
  readonly certificates?: (contents: readonly Uint8Array[]) => readonly FileCertificate[];
}

/** The certificates of a file in use. */
export interface WatchedCertificate extends FileCertificate {
  /** That of its files. */
  readonly kind: string;
}

/** How often the files of one kind have changed. */
export interface ReloadCounts {
  readonly kind: string;
  /** Versions that are, or were, in use, without the first. */
  readonly applied: number;
  /** Versions that were refused, or could not be read. */
  readonly refused: number;
}

/** A version that is tried again. */
interface Retry {
  readonly digest: string;
  /** When it is tried, in the clock's milliseconds. */
  readonly at: number;
  /** The pause before that, in milliseconds. */
  readonly afterMs: number;
}

/** A file as the last check saw it. */
interface SeenFile {
  readonly path: string;
  /** Its metadata as text; undefined before the first check. */
  metadata: string | undefined;
}

interface WatchedSet {
  readonly set: WatchedFileSet;
  readonly files: readonly SeenFile[];
  /** Those of the version in use. */
  certificates: readonly FileCertificate[];
  /** SHA-256 of the contents in use, or of a version that was refused. Contents may be keys and are not retained. */
  digest: string;
  /** Why the files can't be read, as it was logged; undefined if they can be. */
  failure: string | undefined;
  /** SHA-256 of the contents of the last check, if they are not in use; undefined otherwise. */
  candidate: string | undefined;
  /** The version that was refused for a passing reason; undefined: none. */
  retry: Retry | undefined;
  /** Number of further checks that read the contents even if no metadata has changed. */
  reads: number;
  /** The check in progress. On a file system that does not respond it may never end. */
  checking: Promise<void> | undefined;
  applied: number;
  refused: number;
}

/**
 * Applies new versions of files while they are in use: certificates, keys, tokens, policies. Checks the metadata of all
 * files once a second, and their contents after a change. Polling finds every kind of replacement: writing in place,
 * atomic renames, and symbolic links that are replaced, also on network file systems, where notifications are missing.
 *
 * A version is applied when two successive checks have read the same contents. So a file that is written in place, or a
 * certificate and a key that are replaced one after the other, are not applied by halves, unless that takes longer than a
 * second.
 *
 * A version that can't be used is refused: it is logged once and counted, and the version before stays in use.
 */
export class WatchedFiles {
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #onApplied: ((path: string, content: Buffer) => void) | undefined;
  readonly #sets: WatchedSet[] = [];
  #timer: Timer | undefined;
  #isClosed = false;

  /** `onApplied` is called with each file of a version that is in use from then on. */
  constructor(clock: Clock, logger: Logger, onApplied?: (path: string, content: Buffer) => void) {
    this.#clock = clock;
    this.#logger = logger;
    this.#onApplied = onApplied;
  }

  /** Watches files until `close`. */
  add(set: WatchedFileSet): void {
    const files = set.paths.map((path) => ({ path, metadata: undefined }));
    this.#sets.push({
      certificates: set.certificates?.(set.contents) ?? [],
      ...{ set, files, digest: digestOf(set.contents), failure: undefined },
      ...{
        candidate: undefined,
        retry: undefined,
        reads: 0,
        checking: undefined,
        applied: 0,
        refused: 0,
      },
    });
    this.#setTimer();
  }

  /** Number of reloads by kind. */
  counts(): readonly ReloadCounts[] {
    return this.#sets.map(({ set: { kind }, applied, refused }) => ({ kind, applied, refused }));
  }

  /** The certificates in use, those of a file that is watched several times once. */
  certificates(): readonly WatchedCertificate[] {
    const found = new Map<string, WatchedCertificate>();
    for (const { set, certificates } of this.#sets) {
      for (const certificate of certificates) {
        const { kind } = set;
        found.set(`${kind} ${certificate.file}`, { kind, ...certificate });
      }
    }
    return [...found.values()];
  }

  /** Checks all files now. Resolves when what this check and the one before have found is in use, or was refused. */
  async check(): Promise<void> {
    await Promise.all(
      this.#sets.map((watched) => {
        watched.checking ??= this.#check(watched).finally(() => {
          watched.checking = undefined;
        });
        return watched.checking;
      }),
    );
  }

  /**
   * Checks all files now, and if one of them has changed again after the interval of checks. Resolves when what had changed
   * before the call is in use, or was refused.
   */
  async settle(): Promise<void> {
    await this.check();
    if (this.#sets.every(({ candidate }) => candidate === undefined)) return;
    await pause(this.#clock, checkIntervalMs);
    await this.check();
  }

  /** Stops watching. Idempotent. */
  close(): void {
    this.#isClosed = true;
    this.#timer?.cancel();
  }

  #setTimer(): void {
    if (this.#isClosed) return;
    this.#timer ??= this.#clock.setTimeout(() => {
      this.#timer = undefined;
      this.#setTimer();
      void this.check();
    }, checkIntervalMs);
  }

  /** Never rejects. */
  async #check(watched: WatchedSet): Promise<void> {
    const { maxBytes } = watched.set;
    try {
      const isDue = watched.retry !== undefined && this.#clock.now() >= watched.retry.at;
      if (!(await hasChanged(watched)) && !isDue) return;
      const reading = watched.files.map(({ path }) => readBounded(path, maxBytes));
      const contents = await Promise.all(reading);
      watched.failure = undefined;
      if (!this.#isClosed) await this.#apply(watched, contents);
    } catch (error) {
      this.#unreadable(watched, messageOf(error));
    }
  }

  async #apply(watched: WatchedSet, contents: readonly Buffer[]): Promise<void> {
    const { kind, paths, apply } = watched.set;
    const digest = digestOf(contents);
    const { retry } = watched;
    if (digest === retry?.digest && this.#clock.now() < retry.at) return;
    watched.retry = undefined;
    const isComplete = digest === watched.candidate || digest === retry?.digest;
    watched.candidate = undefined;
    if (digest === watched.digest) return;
    if (!isComplete) {
      watched.candidate = digest;
      watched.reads = Math.max(watched.reads, 1);
      return;
    }
    const files = paths.join(", ");
    try {
      await apply(contents);
      watched.digest = digest;
      watched.applied++;
      watched.certificates = watched.set.certificates?.(contents) ?? [];
      for (const [i, content] of contents.entries()) this.#onApplied?.(paths[i] ?? "", content);
      this.#logger.info({ kind, files }, "reloaded a file that has changed");
    } catch (error) {
      const afterMs = retry?.digest === digest ? retry.afterMs * 2 : firstRetryMs;
      if (error instanceof PassingFailure) watched.retry = this.#retryOf(digest, afterMs);
      else watched.digest = digest;
      // Once for each version.
      if (digest === retry?.digest && error instanceof PassingFailure) return;
      watched.refused++;
      const problem = messageOf(error);
      this.#logger.error(
        { kind, files, problem, ...(watched.retry !== undefined && { isTriedAgain: true }) },
        "refused a new version of a file; the version before stays in use",
      );
    }
  }

  #retryOf(digest: string, afterMs: number): Retry {
    const pauseMs = Math.min(afterMs, maxRetryMs);
    return { digest, at: this.#clock.now() + pauseMs, afterMs: pauseMs };
  }

  #unreadable(watched: WatchedSet, problem: string): void {
    watched.candidate = undefined;
    // Read again in the next check, also if nothing has changed by then.
    watched.reads = readsAfterChange;
    if (watched.failure === problem) return;
    watched.failure = problem;
    watched.refused++;
    const { kind, paths } = watched.set;
    this.#logger.error(
      { kind, files: paths.join(", "), problem },
      "can't read a file that was read before; its last version stays in use",
    );
  }
}

/** Whether the contents of the files have to be read. A pipe has its contents only once, so it never changes. */
async function hasChanged(watched: WatchedSet): Promise<boolean> {
  for (const file of watched.files) {
    const found = await stat(file.path, { bigint: true });
    if (!found.isFile()) return false;
    const { dev, ino, size, mtimeNs, ctimeNs } = found;
    const metadata = [dev, ino, size, mtimeNs, ctimeNs].join(" ");
    if (metadata === file.metadata) continue;
    file.metadata = metadata;
    watched.reads = readsAfterChange;
  }
  if (watched.reads === 0) return false;
  watched.reads--;
  return true;
}

/** Reads a file. Rejects if it has more than `maxBytes`, before it reads more than that. */
async function readBounded(path: string, maxBytes: number): Promise<Buffer> {
  const file = await open(path);
  try {
    const buffer = Buffer.alloc(maxBytes + 1);
    let length = 0;
    for (;;) {
      const { bytesRead } = await file.read(buffer, length, buffer.length - length);
      length += bytesRead;
      if (length > maxBytes) {
        throw new Error(`${JSON.stringify(path)} has more than ${maxBytes} bytes, the maximum.`);
      }
      if (bytesRead === 0) return Buffer.from(buffer.subarray(0, length));
    }
  } finally {
    await file.close();
  }
}

/** One digest of several contents: each with its length, so that different contents have different digests. */
function digestOf(contents: readonly Uint8Array[]): string {
  const hash = createHash("sha256");
  for (const content of contents) hash.update(`${content.byteLength} `).update(content);
  return hash.digest("hex");
}
