import type { Clock } from "./clock.ts";

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
        process.emitWarning(error instanceof Error ? error : String(error));
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
