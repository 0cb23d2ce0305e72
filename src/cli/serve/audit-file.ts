import { open as openFile, openSync } from "node:fs";
import { stat } from "node:fs/promises";
import { promisify } from "node:util";
import type { Logger } from "pino";
import type { Clock, Timer } from "../../base/clock.ts";
import { messageOf, systemCode } from "../../base/errors.ts";
import { hostOf } from "../../server/limits/callers.ts";
import type { AuditEntry, AuditLevel, AuditLog } from "../../server/server.ts";
import { cutText } from "../output/printable.ts";
import { AuditSink, type AuditSinkEvents, type UnwrittenLine } from "./audit-sink.ts";

/** Maximum size of the lines that are not written yet, in bytes. */
const maxUnwrittenBytes = 16 * 1024 ** 2;

/** Maximum length of a text in a line, in UTF-16 code units: keys are as long as clients make them. */
const maxTextLength = 1_024;

/** Interval, in milliseconds, at which failed writes are retried, and the path is checked for another file (rotation). */
const checkIntervalMs = 1_000;

/** Of a new file: other users can't read it. */
const fileMode = 0o640;

/** The lines about dropped lines are of no caller. */
const ownLines = "";

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
 * that the disk does not take, because it is slow or full, wait in memory and are written later. Above the share of their
 * caller (`AuditShares`) further lines are dropped and counted, so that one caller can't push out the lines of others, and
 * a line of the log says how many. Nothing is dropped while the disk keeps up.
 *
 * A file that was moved away or deleted is replaced: the path is looked at once a second, and the lines from then on are
 * in a new file. While none can be opened the one before is used, if it was moved; if it was deleted, lines wait in memory.
 */
export class AuditFile implements AuditLog {
  readonly level: AuditLevel;
  readonly #path: string | undefined;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #now: () => number;
  readonly #shares: AuditShares;
  readonly #events: AuditSinkEvents;
  #sink: AuditSink;
  #timer: Timer | undefined;
  /** Why lines can't be written, as it was logged. */
  #writeFailure: string | undefined;
  /** Why the file can't be opened again, as it was logged. */
  #openFailure: string | undefined;
  #lines = 0;
  #dropped = 0;
  #failures = 0;
  #isClosed = false;

  /** Throws the error of the operating system if the file can't be opened. */
  constructor({ path, level, clock, logger, ...options }: AuditFileOptions) {
    this.level = level;
    this.#path = path;
    this.#clock = clock;
    this.#logger = logger;
    this.#now = options.now ?? Date.now;
    const shares = new AuditShares(options.maxUnwrittenBytes ?? maxUnwrittenBytes);
    this.#shares = shares;
    this.#events = {
      written: ({ caller, bytes }) => {
        this.#writeFailure = undefined;
        shares.release(caller, bytes);
        if (shares.hasDropped) this.#reportDropped();
      },
      lost: ({ caller, bytes }) => {
        shares.release(caller, bytes);
        shares.drop(caller, 1);
        this.#lines--;
        this.#countDropped();
      },
      failed: (error) => {
        this.#failures++;
        if (error.message === this.#writeFailure) return;
        this.#writeFailure = error.message;
        logger.error({ err: error }, "can't write to the audit log; its lines wait in memory");
      },
    };
    const fd = path === undefined ? process.stdout.fd : openSync(path, "a", fileMode);
    this.#sink = new AuditSink(fd, clock, this.#events);
    this.#setTimer();
  }

  /** Number of lines that were written, or wait to be written. */
  get lines(): number {
    return this.#lines;
  }

  /** Number of lines that were dropped because too many waited. */
  get dropped(): number {
    return this.#dropped;
  }

  /** Number of attempts to write, or to open the file again, that failed. */
  get failures(): number {
    return this.#failures;
  }

  record(entry: AuditEntry): void {
    if (this.#isClosed) return;
    const text = `${lineOf(entry, this.#time())}\n`;
    const line = { text, caller: callerOf(entry), bytes: Buffer.byteLength(text) };
    if (this.#shares.admit(line.caller, line.bytes)) this.#write(line);
    else this.#countDropped();
  }

  /** Writes the remaining lines, for up to 2 s. Idempotent. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#timer?.cancel();
    await this.#sink.close();
  }

  #write(line: UnwrittenLine): void {
    this.#lines++;
    this.#sink.write(line);
  }

  #countDropped(): void {
    this.#dropped++;
    this.#logger.error(
      { dropped: this.#dropped },
      "dropped a line of the audit log, which is full",
    );
  }

  /** Says in the log itself which callers' lines are missing. */
  #reportDropped(): void {
    if (this.#isClosed) return;
    for (const [caller, dropped] of this.#shares.takeDropped()) {
      const text = `${JSON.stringify({ time: this.#time(), caller, dropped })}\n`;
      const line = { text, caller: ownLines, bytes: Buffer.byteLength(text) };
      this.#shares.charge(line.caller, line.bytes);
      this.#write(line);
    }
  }

  #time(): string {
    return new Date(this.#now()).toISOString();
  }

  #setTimer(): void {
    if (this.#isClosed) return;
    this.#timer = this.#clock.setTimeout(() => {
      // One check at a time: the file system may not respond.
      void this.#check().finally(() => this.#setTimer());
    }, checkIntervalMs);
  }

  /** Never rejects. */
  async #check(): Promise<void> {
    // Standard output is never replaced.
    if (this.#path !== undefined) await this.#checkPath(this.#path);
    if (!this.#isClosed) this.#sink.retry();
  }

  /** Continues in a new file if the path has another one, or none. Never rejects. */
  async #checkPath(path: string): Promise<void> {
    const before = this.#sink;
    try {
      if ((await fileAt(path)) === before.file) before.setPaused(false);
      else await this.#continue(path, before);
      this.#openFailure = undefined;
    } catch (error) {
      this.#failures++;
      const isDeleted = await before.isDeleted().catch(() => false);
      before.setPaused(isDeleted);
      const problem = messageOf(error);
      const then = isDeleted ? "its lines wait in memory" : "the file before is used";
      if (`${problem} ${then}` === this.#openFailure) return;
      this.#openFailure = `${problem} ${then}`;
      this.#logger.error({ path, problem }, `can't open the audit log again; ${then}`);
    }
  }

  async #continue(path: string, before: AuditSink): Promise<void> {
    const fd = await promisify(openFile)(path, "a", fileMode);
    const next = new AuditSink(fd, this.#clock, this.#events);
    if (this.#isClosed) return next.close();
    this.#sink = next;
    this.#logger.info({ path }, "continued the audit log in a new file");
    // Not awaited: a file system that does not respond must not delay the next check.
    void before.moveTo(next);
  }
}

/** The device and inode of the file at a path; undefined if no file exists there. */
async function fileAt(path: string): Promise<string | undefined> {
  try {
    const { dev, ino } = await stat(path, { bigint: true });
    return `${dev} ${ino}`;
  } catch (error) {
    if (systemCode(error) === "ENOENT") return undefined;
    throw error;
  }
}

/** The caller that a line is charged to: the identity, and without one the host. */
function callerOf({ identity, address }: AuditEntry): string {
  const { name, source } = identity;
  return source === "none" ? `host ${hostOf(address)}` : `${source} ${cut(name)}`;
}

/** Absent fields are left out. */
function lineOf(entry: AuditEntry, time: string): string {
  const { identity, address, method, access, allowed, rule, code, traceId, spanId } = entry;
  const { verb, resource, scope } = access ?? {};
  return JSON.stringify({
    time,
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
    span_id: spanId,
  });
}

function cut(text: string): string {
  return cutText(text, maxTextLength);
}

/** Maximum number of callers whose dropped lines are counted apart from those of all others. */
const maxDropping = 1_000;

/** The name under which the dropped lines of further callers are counted. */
const others = "(others)";

/** What a caller may hold, as a part of what is free then. */
const share = 1 / 4;

/**
 * Divides the room for lines that are not written yet among callers, by a dynamic threshold (Choudhury and Hahne): a
 * caller may hold a quarter of what is free then. One caller alone gets a fifth of the room, and some 40 that flood the log
 * still leave room for the lines of others. Counts the dropped lines of each caller.
 */
export class AuditShares {
  readonly #maxBytes: number;
  #bytes = 0;
  /** Size of the lines of each caller that are not written yet, in bytes. */
  readonly #held = new Map<string, number>();
  readonly #dropped = new Map<string, number>();

  /** `maxBytes`: of all lines that are not written yet. */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Size of all lines that are not written yet, in bytes. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Charges a line of `bytes` to a caller. Returns false, and counts the line as dropped, if its share is used up. */
  admit(name: string, bytes: number): boolean {
    const held = this.#held.get(name) ?? 0;
    const free = this.#maxBytes - this.#bytes - bytes;
    if (held + bytes > free * share) {
      this.drop(name, 1);
      return false;
    }
    this.charge(name, bytes);
    return true;
  }

  /** Charges a line that is not dropped, whatever the share. */
  charge(name: string, bytes: number): void {
    this.#held.set(name, (this.#held.get(name) ?? 0) + bytes);
    this.#bytes += bytes;
  }

  /** A line was written, or will never be. */
  release(name: string, bytes: number): void {
    const held = this.#held.get(name);
    if (held === undefined) return;
    this.#bytes -= bytes;
    if (held === bytes) this.#held.delete(name);
    else this.#held.set(name, held - bytes);
  }

  /** Counts dropped lines of a caller. */
  drop(name: string, lines: number): void {
    const known = this.#dropped.has(name) || this.#dropped.size < maxDropping;
    const counted = known ? name : others;
    this.#dropped.set(counted, (this.#dropped.get(counted) ?? 0) + lines);
  }

  /** Whether lines were dropped since the last `takeDropped`, and there is room again to report them. */
  get hasDropped(): boolean {
    return this.#dropped.size > 0 && this.#bytes < this.#maxBytes / 4;
  }

  /** Returns the number of dropped lines by caller, and begins to count from 0. */
  takeDropped(): readonly (readonly [name: string, lines: number])[] {
    const dropped = [...this.#dropped];
    this.#dropped.clear();
    return dropped;
  }
}
