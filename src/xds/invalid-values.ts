import type { Logger } from "pino";
import { messageOf } from "../base/errors.ts";
import { ownText } from "../base/own-text.ts";
import { InvalidValue } from "./any-types.ts";

/** Maximum number of invalid values that are logged at one time. Further ones are counted and shown. */
const maxLogged = 100;

/** Maximum length of why a value is invalid, in characters. */
const maxLength = 500;

/** A stored value that is not served. */
export interface InvalidEntry {
  readonly key: string;
  /** A sentence. */
  readonly why: string;
}

/** The values of one resource that can't be served. Each is logged once. As many as the resource has objects at most. */
export class InvalidValues {
  readonly #logger: Logger;
  /** By key, why. */
  readonly #known = new Map<string, string>();

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  /** Number of keys whose value is invalid now. */
  get size(): number {
    return this.#known.size;
  }

  /** The first of them. */
  first(count: number): readonly InvalidEntry[] {
    const entries: InvalidEntry[] = [];
    for (const [key, why] of this.#known) {
      if (entries.length === count) break;
      entries.push({ key, why });
    }
    return entries;
  }

  /** `cause`: an InvalidValue, or what else a library throws of a value: no value may keep others from being served. */
  add(key: string, cause: unknown): void {
    const text = messageOf(cause);
    const reason = cause instanceof InvalidValue ? text : `It can't be read: ${text}.`;
    const why = ownText(reason, maxLength);
    if (this.#known.get(key) === why) return;
    this.#known.set(key, why);
    if (this.#known.size > maxLogged) return;
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
