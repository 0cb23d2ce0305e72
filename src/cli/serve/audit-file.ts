import { openSync } from "node:fs";
import type { Logger } from "pino";
import sonicBoom, { type SonicBoom } from "sonic-boom";
import type { Clock } from "../../base/clock.ts";
import type { AuditEntry, AuditLevel, AuditLog } from "../../server/server.ts";

/** Maximum size of the lines that are not written yet, in bytes. */
const maxUnwrittenBytes = 16 * 1024 ** 2;

/** Maximum length of a text in a line, in UTF-16 code units: keys are as long as clients make them. */
const maxTextLength = 1_024;

/** How long a shutdown waits for the last lines, in milliseconds. */
const maxCloseMs = 2_000;

/** Of a new file: other users can't read it. */
const fileMode = 0o640;

export interface AuditFileOptions {
  /** Undefined: standard output. */
  readonly path: string | undefined;
  readonly level: AuditLevel;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Maximum size of the lines that are not written yet, in bytes. Default: 16 MiB. */
  readonly maxUnwrittenBytes?: number;
  /** The time of day in milliseconds since the epoch. Default: Date.now. */
  readonly now?: () => number;
}

/**
 * Writes the audited calls as lines of JSON to a file. Threads of libuv write, so a slow disk does not delay a call. Lines
 * that the disk does not take, because it is slow or full, wait in memory and are written later; above the bound further
 * lines are dropped and counted. Nothing is dropped while the disk keeps up.
 */
export class AuditFile implements AuditLog {
  readonly level: AuditLevel;
  readonly #sink: SonicBoom;
  readonly #clock: Clock;
  readonly #now: () => number;
  #lines = 0;
  #dropped = 0;
  #failures = 0;
  #isClosed = false;

  /** Throws the error of the operating system if the file can't be opened. */
  constructor({ path, level, clock, logger, ...options }: AuditFileOptions) {
    this.level = level;
    this.#clock = clock;
    this.#now = options.now ?? Date.now;
    // Not pino's destination: at the exit of the process that would write to a full disk until it takes all lines.
    const sink = new sonicBoom.SonicBoom({
      fd: path === undefined ? process.stdout.fd : openSync(path, "a", fileMode),
      sync: false,
      maxLength: options.maxUnwrittenBytes ?? maxUnwrittenBytes,
    });
    this.#sink = sink;
    sink.on("error", (error: Error) => {
      this.#failures++;
      logger.error({ err: error }, "can't write to the audit log; its lines wait in memory");
    });
    sink.on("drop", () => {
      this.#dropped++;
      logger.error({ dropped: this.#dropped }, "dropped a line of the audit log, which is full");
    });
  }

  /** Number of lines that were written, or wait to be written. */
  get lines(): number {
    return this.#lines;
  }

  /** Number of lines that were dropped because too many waited. */
  get dropped(): number {
    return this.#dropped;
  }

  /** Number of attempts to write that failed. */
  get failures(): number {
    return this.#failures;
  }

  record(entry: AuditEntry): void {
    if (this.#isClosed) return;
    const droppedBefore = this.#dropped;
    this.#sink.write(`${lineOf(entry, new Date(this.#now()))}\n`);
    if (this.#dropped === droppedBefore) this.#lines++;
  }

  /** Writes the remaining lines, for up to 2 s. Idempotent. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    await new Promise<void>((resolve) => {
      const timer = this.#clock.setTimeout(resolve, maxCloseMs);
      const done = (): void => {
        timer.cancel();
        resolve();
      };
      this.#sink.once("close", done).once("error", done);
      this.#sink.end();
    });
    // Drops what the file does not take.
    this.#sink.destroy();
  }
}

/** Absent fields are left out. */
function lineOf(entry: AuditEntry, time: Date): string {
  const { identity, address, method, access, allowed, rule, code, traceId } = entry;
  const { verb, resource, scope } = access ?? {};
  return JSON.stringify({
    time: time.toISOString(),
    identity: cut(identity.name),
    source: identity.source,
    address,
    method,
    verb,
    resource: resource === undefined ? undefined : cut(resource),
    ...(scope !== undefined && "key" in scope && { key: cut(scope.key) }),
    ...(scope !== undefined && "prefix" in scope && { prefix: cut(scope.prefix) }),
    decision: allowed ? "allowed" : "denied",
    rule,
    code,
    trace_id: traceId,
  });
}

function cut(text: string): string {
  return text.length <= maxTextLength ? text : `${text.slice(0, maxTextLength - 1)}…`;
}
