import type { Clock } from "./clock.ts";
import { emitWarning } from "./warning.ts";

/** Writes log lines: fields, and what has happened. A logger of pino is one. */
export interface Logger {
  info(fields: object, text: string): void;
  warn(fields: object, text: string): void;
  error(fields: object, text: string): void;
}

const ignore = (): void => {};

/** Writes nothing. */
export const silentLogger: Logger = { info: ignore, warn: ignore, error: ignore };

/** The logger of an application, which may throw: that is emitted as a process warning instead. */
export function guardedLogger(logger: Logger): Logger {
  const guarded =
    (level: keyof Logger): Logger["info"] =>
    (fields, text) => {
      try {
        logger[level](fields, text);
      } catch (error) {
        emitWarning(error instanceof Error ? error : String(error));
      }
    };
  return { info: guarded("info"), warn: guarded("warn"), error: guarded("error") };
}

/**
 * Bounds the log lines about one subject, such as one kind of failure: at most one per interval. Lines that are suppressed
 * are counted, and the next line has their number.
 */
export class LineLimit {
  readonly #clock: Clock;
  readonly #intervalMs: number;
  #last = Number.NEGATIVE_INFINITY;
  #suppressed = 0;

  constructor(clock: Clock, intervalMs: number) {
    this.#clock = clock;
    this.#intervalMs = intervalMs;
  }

  /** Returns the number of lines that were suppressed before this one; undefined: this one is suppressed as well. */
  admit(): number | undefined {
    const now = this.#clock.now();
    if (now - this.#last < this.#intervalMs) {
      this.#suppressed++;
      return undefined;
    }
    const suppressed = this.#suppressed;
    this.#last = now;
    this.#suppressed = 0;
    return suppressed;
  }
}

/** Interval between lines of the same kind, in milliseconds. */
const repeatMs = 60_000;

/** Maximum number of kinds of one outage that have a line of their own. */
const maxKinds = 16;

/**
 * Logs an outage of what a loop tries to reach: one line when it begins, one a minute while it lasts, and one when it has
 * ended, with the number of failed attempts and the duration. An attempt of another kind, such as one that failed for
 * another reason, has a line at once, the first time.
 */
export class OutageLog {
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #kinds = new Set<string>();
  /** When the first attempt failed, in the clock's milliseconds; undefined: there is no outage. */
  #since: number | undefined;
  /** When the last line was written. */
  #loggedAt = 0;
  #attempts = 0;

  constructor(clock: Clock, logger: Logger) {
    this.#clock = clock;
    this.#logger = logger;
  }

  /** An attempt has failed. `fields` say why, and `text` what is done about it. */
  failed(kind: string, fields: object, text: string): void {
    const now = this.#clock.now();
    this.#since ??= now;
    this.#attempts++;
    const isNew = !this.#kinds.has(kind) && this.#kinds.size < maxKinds;
    if (!isNew && now - this.#loggedAt < repeatMs) return;
    this.#kinds.add(kind);
    this.#loggedAt = now;
    this.#logger.warn(this.#attempts === 1 ? fields : { ...fields, ...this.#outage(now) }, text);
  }

  /** An attempt has succeeded. Without effect if none has failed before. */
  ended(text: string): void {
    if (this.#since === undefined) return;
    this.#logger.info(this.#outage(this.#clock.now()), text);
    this.#since = undefined;
    this.#attempts = 0;
    this.#kinds.clear();
  }

  #outage(now: number): { readonly attempts: number; readonly outageMs: number } {
    return { attempts: this.#attempts, outageMs: Math.round(now - (this.#since ?? now)) };
  }
}
