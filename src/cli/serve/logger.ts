import { type DestinationStream, destination, type LogFn, type Logger, pino } from "pino";
import { z } from "zod";
import { type Clock, systemClock } from "../../base/clock.ts";
import { WatchFanoutError } from "../../base/errors.ts";
import type { LogFormat, LogLevel } from "../../config/config.ts";
import { printableText } from "../output/printable.ts";
import { LogRate } from "./log-rate.ts";

export interface LoggerOptions {
  readonly level: LogLevel;
  readonly format: LogFormat;
  /** Default: stderr, at once, so that nothing is lost when the process ends. */
  readonly destination?: DestinationStream;
  /** Default: the machine's own time. */
  readonly clock?: Clock;
}

/** How long a text of a line may be, in characters, but for where an error came from. */
const maxTextLength = 1_024;
const maxStackLength = 8_192;

/**
 * Makes the log of a process: one line of JSON an entry, or the same as text for people. Whatever clients do, the log
 * grows by no more than a line a second of each kind, and no line by what a client has sent.
 */
export function createLogger(options: LoggerOptions): Logger {
  const sink = options.destination ?? stderrSink();
  const { level } = options;
  const rate = new LogRate(options.clock ?? systemClock);
  const base = {
    ...{ level, base: null, timestamp: pino.stdTimeFunctions.isoTime },
    formatters: { log: shortened },
    serializers: { err: shortenedError },
    hooks: { logMethod: bounded(rate) },
  };
  if (options.format === "json") {
    const formatters = { ...base.formatters, level: (label: string) => ({ level: label }) };
    return pino({ ...base, formatters }, sink);
  }
  return pino(base, { write: (line) => sink.write(asText(line)) });
}

/** Below info is for who debugs, and a fatal line is the last one: neither is left out. */
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
    short[name] = typeof value === "string" ? cut(value, maxTextLength) : value;
  }
  return short;
}

function shortenedError(error: unknown): unknown {
  const fields = errorFields(error);
  if (typeof fields !== "object" || fields === null) return fields;
  const short = shortened({ ...fields });
  const stack: unknown = Reflect.get(fields, "stack");
  return typeof stack === "string" ? { ...short, stack: cut(stack, maxStackLength) } : short;
}

function cut(text: string, length: number): string {
  return text.length <= length ? text : `${text.slice(0, length - 1)}…`;
}

function stderrSink(): DestinationStream {
  const sink = destination({ dest: 2, sync: true });
  // Whoever read the log has gone. That is no reason to stop serving.
  sink.on("error", () => {});
  return sink;
}

/**
 * An error as the log has it. What the network or etcd does is no fault of ours: that is told in one line, with its
 * reason and what it came of. Where anything else comes from is told as well.
 */
function errorFields(error: unknown): unknown {
  if (!(error instanceof Error)) return error;
  if (!isExpected(error)) return pino.stdSerializers.err(error);
  const { name, message } = error;
  const reason = error instanceof WatchFanoutError ? { reason: error.reason } : {};
  return { type: name, ...reason, message: withCauses(message, error.cause) };
}

/** Whether it is something that happens to every service, now and then. */
function isExpected(error: Error): boolean {
  if (error instanceof WatchFanoutError) return error.reason !== "INTERNAL";
  // What the operating system says, mostly of a socket.
  return "syscall" in error;
}

/** The message, with those of its causes that it does not repeat. */
function withCauses(message: string, cause: unknown): string {
  if (!(cause instanceof Error)) return message;
  const told = "details" in cause ? String(cause.details) : cause.message;
  const isNew = told !== "" && !message.includes(told);
  return withCauses(isNew ? `${message}: ${told}` : message, cause.cause);
}

const entry = z.looseObject({ level: z.number(), time: z.string(), msg: z.string().optional() });
const loggedError = z.looseObject({ message: z.string(), stack: z.string().optional() });

/** `2031-04-05T06:07:08.009Z WARN  what happened key=value` and, of an error, where it came from. */
function asText(line: string): string {
  const { level, time, msg = "", err, ...rest } = entry.parse(JSON.parse(line));
  const error = loggedError.safeParse(err);
  const label = (pino.levels.labels[level] ?? String(level)).toUpperCase().padEnd(5);
  const fields = Object.entries({ ...rest, error: error.data?.message ?? err })
    .filter(([, value]) => value !== undefined)
    .map(([key, value]) => ` ${key}=${fieldText(value)}`);
  const stack = level >= (pino.levels.values["error"] ?? 0) ? error.data?.stack : undefined;
  const trace =
    stack === undefined ? "" : `${stack.split("\n").map(printableText).join("\n    ")}\n`;
  return `${time} ${label} ${printableText(msg)}${fields.join("")}\n${trace}`;
}

/** A value that can't be mistaken for several. */
function fieldText(value: unknown): string {
  if (typeof value === "string" && /^[\w./:@+-]+$/.test(value)) return value;
  return printableText(JSON.stringify(value));
}
