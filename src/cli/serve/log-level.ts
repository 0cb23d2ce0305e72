import { type Logger, pino } from "pino";
import type { LogLevel } from "../../config/config.ts";

/** Every level, the least severe first. */
const levels: readonly LogLevel[] = ["trace", "debug", "info", "warn", "error", "fatal", "silent"];

/** The level of a process' log, which can change while it runs. */
export class ChangeableLevel {
  readonly levels: readonly string[] = levels;
  readonly #configured: LogLevel;
  #current: LogLevel;
  /** The log, and those that were derived from it: pino gives them the level that the log has then. */
  readonly #loggers: Logger[] = [];
  readonly #listeners: ((level: LogLevel) => void)[] = [];

  /** `current`: the level at first; default: as configured. */
  constructor(configured: LogLevel, current: LogLevel = configured) {
    this.#configured = configured;
    this.#current = current;
  }

  get current(): LogLevel {
    return this.#current;
  }

  /** Changes the level of this log too. Loggers are made when a process starts, a few per resource. */
  add(logger: Logger): void {
    this.#loggers.push(logger);
  }

  /** Calls `listener` with each new level. */
  onChange(listener: (level: LogLevel) => void): void {
    this.#listeners.push(listener);
  }

  /** Returns whether there is such a level. */
  set(name: string): boolean {
    const level = levels.find((known) => known === name);
    if (level === undefined) return false;
    const from = this.#current;
    if (level === from) return true;
    // The line is written at the more verbose of both levels, so that it is not suppressed by the other.
    const isQuieter = severityOf(level) > severityOf(from);
    const changed = (): void =>
      this.#loggers[0]?.info({ from, to: level }, "the log level has changed");
    if (isQuieter) changed();
    this.#current = level;
    for (const logger of this.#loggers) logger.level = level;
    if (!isQuieter) changed();
    for (const listener of this.#listeners) listener(level);
    return true;
  }

  /** Changes to debug; from debug back to the configured level, or to info if that is debug. */
  toggleDebug(): void {
    if (this.#current !== "debug") this.set("debug");
    else this.set(this.#configured === "debug" ? "info" : this.#configured);
  }
}

function severityOf(level: LogLevel): number {
  return pino.levels.values[level] ?? Number.POSITIVE_INFINITY;
}
