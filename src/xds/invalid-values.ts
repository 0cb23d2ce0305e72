import type { Logger } from "pino";
import type { Clock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import { Rate } from "../base/rate.ts";
import { startOf } from "../base/text-memory.ts";
import { InvalidValue } from "./any-types.ts";

/** Lines that are logged at once, and then per second: a writer chooses how often a value becomes invalid. */
const maxLines = 100;
const linesPerSecond = 1;

/** Maximum number of values that are shown. */
const maxShown = 100;

/** Maximum length of why a value is invalid, in characters. */
const maxLength = 500;

/** A stored value that is not served. */
export interface InvalidEntry {
  readonly key: string;
  /** A sentence. */
  readonly why: string;
}

/**
 * The values of one resource that can't be served, as many as it has objects at most. Each is logged once, if there is room in the
 * log, counted and shown.
 */
export class InvalidValues {
  readonly #logger: Logger;
  readonly #lines: Rate;
  /** By key, why. */
  readonly #known = new Map<string, string>();

  constructor(clock: Clock, logger: Logger) {
    this.#logger = logger;
    this.#lines = new Rate(clock, linesPerSecond, maxLines);
  }

  /** Number of keys whose value is invalid now. */
  get size(): number {
    return this.#known.size;
  }

  /** Those that are shown. */
  get first(): readonly InvalidEntry[] {
    const entries: InvalidEntry[] = [];
    for (const [key, why] of this.#known) {
      if (entries.push({ key, why }) === maxShown) break;
    }
    return entries;
  }

  /** `cause`: an InvalidValue, or what else a library throws of a value: no value may keep others from being served. */
  add(key: string, cause: unknown): void {
    const text = messageOf(cause);
    const reason = cause instanceof InvalidValue ? text : `It can't be read: ${text}.`;
    const why = startOf(reason, maxLength);
    if (this.#known.get(key) === why) return;
    this.#known.set(key, why);
    if (!this.#lines.take()) return;
    const message = "a stored value is invalid and not served; the last valid one stays";
    this.#logger.warn({ key, why }, message);
  }

  /** The key has a valid value, or none. Idempotent. */
  delete(key: string): void {
    this.#known.delete(key);
  }

  /** Only the keys for which `exists` returns true exist now. */
  retain(exists: (key: string) => boolean): void {
    for (const key of this.#known.keys()) if (!exists(key)) this.#known.delete(key);
  }
}
