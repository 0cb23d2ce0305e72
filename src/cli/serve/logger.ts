import { setLogger } from "@grpc/grpc-js";
import { trace } from "@opentelemetry/api";
import { type DestinationStream, destination, type LogFn, type Logger, pino } from "pino";
import { z } from "zod";
import { type Clock, systemClock, type Timer } from "../../base/clock.ts";
import { briefDetails } from "../../base/connection-cause.ts";
import { messageOf, WatchFanoutError } from "../../base/errors.ts";
import { Rate } from "../../base/rate.ts";
import type { LogFormat, LogLevel } from "../../config/config.ts";
import { exitCodes } from "../output/command-io.ts";
import { cutText, printableText } from "../output/printable.ts";
import type { RecentProblems } from "../status/recent-problems.ts";

/** The options of the process log. */
interface LoggerOptions {
  /** One that can change, or one that does not. */
  readonly level: LogLevel | ChangeableLevel;
  readonly format: LogFormat;
  /** Default: stderr, synchronous, so that no line is lost when the process ends. */
  readonly destination?: DestinationStream;
  /** Gets the lines of level warn or above. */
  readonly problems?: RecentProblems;
  /** Default: the system clock. */
  readonly clock?: Clock;
}

/** Maximum length of a text in a line, in UTF-16 code units. Stack traces have their own bound. */
const maxTextLength = 1_024;
const maxStackLength = 8_192;

/**
 * Makes the log of a process: one line per entry, as JSON or as text. Clients can't flood it: at most one line per second
 * and kind is written after a burst of 10, and the texts of a line are cut.
 */
export function createLogger(options: LoggerOptions): Logger {
  const { format, problems } = options;
  const sink = options.destination ?? stderrSink();
  const level =
    typeof options.level === "string" ? new ChangeableLevel(options.level) : options.level;
  const logger = pino(
    {
      ...{ level: level.current, base: null, timestamp: pino.stdTimeFunctions.isoTime },
      formatters: { log: shortened, level: (label) => ({ level: label }) },
      serializers: { err: shortenedError },
      hooks: { logMethod: bounded(new LogRate(options.clock ?? systemClock)) },
      onChild: (child: Logger) => level.add(child),
      mixin: activeTrace,
      // The default would write the fields of each line into `none`.
      mixinMergeStrategy: (fields: object, traced: object) =>
        traced === none ? fields : { ...traced, ...fields },
    },
    {
      write: (line) => {
        const parsed = entry.parse(JSON.parse(line));
        problems?.offer(parsed, () => contentText(parsed));
        sink.write(format === "json" ? line : asText(parsed));
      },
    },
  );
  level.add(logger);
  return logger;
}

const none = {};

/** The fields of the traced call that is being handled; `none` if no call is. */
function activeTrace(): { readonly trace_id?: string; readonly span_id?: string } {
  const span = trace.getActiveSpan();
  // A span that has ended is of a call that has started work in the background.
  if (span?.isRecording() !== true) return none;
  const { traceId, spanId } = span.spanContext();
  return { trace_id: traceId, span_id: spanId };
}

/** Lines below info, which are for debugging, and fatal lines, which are the last, are never suppressed. */
function bounded(rate: LogRate) {
  const { info = 30, fatal = 60 } = pino.levels.values;
  return function logMethod(this: Logger, args: unknown[], method: LogFn, level: number): void {
    const write = (line: readonly unknown[]): void => Reflect.apply(method, this, line);
    if (level < info || level >= fatal) {
      write(args);
      return;
    }
    const [fields, text] = typeof args[0] === "string" ? [{}, args[0]] : args;
    rate.offer(String(text), (suppressed) => {
      write(suppressed === 0 ? args : [withCount(fields, suppressed), text]);
    });
  };
}

function withCount(fields: unknown, suppressed: number): object {
  const others = fields instanceof Error ? { err: fields } : fields;
  return { ...(typeof others === "object" ? others : {}), suppressed };
}

function shortened(fields: Record<string, unknown>): Record<string, unknown> {
  const short: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(fields)) {
    short[name] = typeof value === "string" ? cutText(value, maxTextLength) : value;
  }
  return short;
}

function shortenedError(error: unknown): unknown {
  const fields = errorFields(error);
  if (typeof fields !== "object" || fields === null) return fields;
  const short = shortened({ ...fields });
  const stack: unknown = Reflect.get(fields, "stack");
  return typeof stack === "string" ? { ...short, stack: cutText(stack, maxStackLength) } : short;
}

function stderrSink(): DestinationStream {
  const sink = destination({ dest: 2, sync: true });
  // The reader of the log has closed it. The service continues.
  sink.on("error", () => {});
  return sink;
}

/**
 * The log fields of an error. Expected errors, such as those of the network or etcd, have their reason, message and
 * causes. All others have a stack trace as well.
 */
function errorFields(error: unknown): unknown {
  if (!(error instanceof Error)) return error;
  if (!isExpected(error)) return pino.stdSerializers.err(error);
  const { name, message } = error;
  const reason = error instanceof WatchFanoutError ? { reason: error.reason } : {};
  return { type: name, ...reason, message: withCauses(message, error.cause) };
}

/** Whether the error is part of normal operation. */
function isExpected(error: Error): boolean {
  if (error instanceof WatchFanoutError) return error.reason !== "INTERNAL";
  // Errors of the operating system, usually of a socket.
  return "syscall" in error;
}

/** The message, with those of its causes that it does not repeat. */
function withCauses(message: string, cause: unknown): string {
  if (!(cause instanceof Error)) return message;
  const text = "details" in cause ? briefDetails(String(cause.details)) : cause.message;
  const isNew = text !== "" && !message.includes(text);
  return withCauses(isNew ? `${message}: ${text}` : message, cause.cause);
}

const entry = z.looseObject({
  level: z.string(),
  time: z.string(),
  msg: z.string().optional(),
});
type Entry = z.infer<typeof entry>;
const loggedError = z.looseObject({ message: z.string(), stack: z.string().optional() });

/** Formats `2031-04-05T06:07:08.009Z WARN  what happened key=value`, with the stack trace from level error on. */
function asText(parsed: Entry): string {
  const { level, time, err } = parsed;
  const { stack } = loggedError.safeParse(err).data ?? {};
  const hasTrace = (level === "error" || level === "fatal") && stack !== undefined;
  const trace = hasTrace ? `${stack.split("\n").map(printableText).join("\n    ")}\n` : "";
  return `${time} ${level.toUpperCase().padEnd(5)} ${contentText(parsed)}\n${trace}`;
}

/** The text of a line and its fields, without its level, its time and a stack trace. */
function contentText({ level, time, msg = "", err, ...rest }: Entry): string {
  const error = loggedError.safeParse(err);
  const fields = Object.entries({ ...rest, error: error.data?.message ?? err })
    .filter(([, value]) => value !== undefined)
    .map(([key, value]) => ` ${key}=${fieldText(value)}`);
  return `${printableText(msg)}${fields.join("")}`;
}

/** A field's value, quoted if it could be read as several. */
function fieldText(value: unknown): string {
  if (typeof value === "string" && /^[\w./:@+-]+$/.test(value)) return value;
  return printableText(JSON.stringify(value));
}

/** Burst of lines of one kind, and the rate of further ones. */
const burst = 10;
const linesPerSecond = 1;

/** Maximum number of kinds. */
const maxKinds = 256;

/** The kind of all lines beyond that number. */
const others = "";

/** The lines of one kind. */
interface Kind {
  readonly rate: Rate;
  /** Number of lines suppressed since the last one that was written; `write` writes the newest of them. */
  suppressed: number;
  write: ((suppressed: number) => void) | undefined;
  timer: Timer | undefined;
}

/**
 * Bounds the rate of log lines of one kind, so that a client that causes log lines can neither fill the disk nor keep the
 * process busy. Suppressed lines are counted, and the count is written with the newest line.
 */
class LogRate {
  readonly #clock: Clock;
  readonly #kinds = new Map<string, Kind>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Calls `write`, now or within a second, with the number of lines of this kind that were suppressed before. If a newer
   * line arrives in that second, calls the newer line's `write` instead.
   */
  offer(text: string, write: (suppressed: number) => void): void {
    const kind = this.#kindOf(text);
    if (kind.timer === undefined && kind.rate.take()) {
      write(0);
      return;
    }
    kind.suppressed++;
    kind.write = write;
    kind.timer ??= this.#clock.setTimeout(() => {
      const { write: newest, suppressed } = kind;
      Object.assign(kind, { timer: undefined, write: undefined, suppressed: 0 });
      kind.rate.charge(1);
      // The newest line is not suppressed.
      newest?.(suppressed - 1);
    }, kind.rate.waitMs(1));
  }

  #kindOf(text: string): Kind {
    const known = this.#kinds.get(text);
    if (known !== undefined) return known;
    if (this.#kinds.size >= maxKinds) this.#forgetIdle();
    const name = this.#kinds.size >= maxKinds ? others : text;
    const kind = this.#kinds.get(name) ?? {
      rate: new Rate(this.#clock, linesPerSecond, burst),
      ...{ suppressed: 0, write: undefined, timer: undefined },
    };
    this.#kinds.set(name, kind);
    return kind;
  }

  #forgetIdle(): void {
    for (const [text, { rate, timer }] of this.#kinds) {
      if (rate.isFull && timer === undefined) this.#kinds.delete(text);
    }
  }
}

/** grpc-js writes to the console. Its lines go to level debug, since its errors are also returned. */
export function redirectGrpcLog(logger: Logger): void {
  const debug = (...parts: unknown[]): void => logger.debug({ from: "grpc-js" }, parts.join(" "));
  setLogger({ error: debug, info: debug, debug });
}

/** Ends the process on an unexpected exception, since the state could be wrong afterwards. */
export function exitOnFault(logger: Logger): void {
  process.on("uncaughtException", (error, origin) => {
    // A plain Error is logged with its stack trace, whatever the type of the uncaught one is. Anything can be thrown.
    const thrown: unknown = error;
    const err = new Error(messageOf(thrown));
    if (thrown instanceof Error && thrown.stack !== undefined) err.stack = thrown.stack;
    logger.fatal({ err, origin }, "unexpected exception; the process ends");
    process.exit(exitCodes.failed);
  });
}

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
