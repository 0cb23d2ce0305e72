import type { Readable, Writable } from "node:stream";
import type { Command } from "commander";
import { invalidRequest, messageOf, type Reason, WatchFanoutError } from "../../base/errors.ts";
import { waitFor } from "../../base/wait.ts";
import { printableText } from "./printable.ts";
import type { TableOptions } from "./table.ts";

/** The process that a command runs in. */
export interface CommandIo {
  readonly stdin: Readable & {
    readonly isTTY?: boolean | undefined;
    setRawMode?(isRaw: boolean): unknown;
  };
  readonly stdout: Writable & {
    readonly isTTY?: boolean | undefined;
    readonly columns?: number | undefined;
    readonly rows?: number | undefined;
  };
  readonly stderr: Writable;
  /** Calls `listener` once when the user interrupts the command. The returned function removes it. */
  onInterrupt(listener: () => void): () => void;
  /** Sets the exit code of the process. */
  exitWith(code: number): void;
}

export const processIo: CommandIo = {
  stdin: process.stdin,
  stdout: process.stdout,
  stderr: process.stderr,
  onInterrupt: (listener) => {
    const stop = (): void => {
      process.off("SIGINT", onSignal).off("SIGTERM", onSignal);
    };
    // A second signal has the default effect: a blocked output could keep the command running indefinitely.
    const onSignal = (): void => {
      stop();
      listener();
    };
    process.on("SIGINT", onSignal).on("SIGTERM", onSignal);
    return stop;
  },
  exitWith: (code) => {
    process.exitCode = code;
  },
};

/** Prints a message to stderr. */
export function say({ stderr }: Pick<CommandIo, "stderr">, message: string): void {
  stderr.write(`watch-fanout: ${printableText(message)}\n`);
}

/** Prints why a command has failed, and sets its exit code. It did not fail if the reader of its output has closed it. */
export function reportFailure(io: Omit<CommandIo, "onInterrupt">, error: unknown): void {
  if (error instanceof OutputClosed) return;
  say(io, messageOf(error));
  io.exitWith(exitCodeOf(error));
}

/** Ends a command with what is wrong in its arguments, or in files that they name: sentences. */
export function refuse(command: Command, problems: readonly string[]): never {
  const lines = problems.map((problem) => `error: ${printableText(problem)}`);
  return command.error(lines.join("\n"), { exitCode: exitCodes.usage });
}

/** On a terminal, lines are cut to its width, and colours are used unless NO_COLOR is set (no-color.org). */
export function tableOptions({ stdout }: Pick<CommandIo, "stdout">): TableOptions {
  if (stdout.isTTY !== true) return { colours: false };
  const { NO_COLOR = "", TERM = "" } = process.env;
  return { columns: stdout.columns, colours: NO_COLOR === "" && TERM !== "dumb" };
}

/** Reads a stream to its end. Undefined if it has more than `maxBytes`. */
export async function readAll(stream: Readable, maxBytes: number): Promise<Buffer | undefined> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of stream) {
    const buffer = Buffer.from(chunk);
    chunks.push(buffer);
    bytes += buffer.length;
    if (bytes > maxBytes) return undefined;
  }
  return Buffer.concat(chunks);
}

/** Maximum size of an input: far above the limit of any store, and far below the memory of this process. */
const maxInputBytes = 64 * 1024 * 1024;

/** Reads what a command is given, as a stream: `what`, for the request's `field`. Rejects with INVALID_REQUEST if it is too much. */
export async function readInput(stream: Readable, what: string, field: string): Promise<Buffer> {
  const content = await readAll(stream, maxInputBytes);
  if (content !== undefined) return content;
  throw invalidRequest(field, `${what} has more than ${maxInputBytes} bytes.`);
}

/** The exit codes of the command. */
export const exitCodes = {
  done: 0,
  failed: 1,
  usage: 2,
  notFound: 3,
  conflict: 4,
  unavailable: 5,
  denied: 6,
  unknown: 7,
} as const;

/** What each code means, in the help and in docs/reference/commands.md. */
export const exitCodeMeanings: Readonly<Record<keyof typeof exitCodes, string>> = {
  done: "done, or interrupted as intended",
  failed: "any other failure",
  usage: "a flag, variable, file or request is invalid; nothing was done",
  notFound: "the object, lease or resource does not exist",
  conflict: "a condition does not hold, such as another mod_revision; not written",
  unavailable: "no response in time, or refused for now: repeat later",
  denied: "the caller is not known, or has no right to this",
  unknown: "no response to a write, which may have been done: read first",
};

const byReason: Partial<Record<Reason, number>> = {
  INVALID_REQUEST: exitCodes.usage,
  UNKNOWN_RESOURCE: exitCodes.notFound,
  OBJECT_NOT_FOUND: exitCodes.notFound,
  LEASE_NOT_FOUND: exitCodes.notFound,
  UNKNOWN_WATCH: exitCodes.notFound,
  REVISION_CONFLICT: exitCodes.conflict,
  UPSTREAM_UNAVAILABLE: exitCodes.unavailable,
  NOT_READY: exitCodes.unavailable,
  DRAINING: exitCodes.unavailable,
  REVISION_TOO_NEW: exitCodes.unavailable,
  STORAGE_FULL: exitCodes.unavailable,
  TOO_MANY_STREAMS: exitCodes.unavailable,
  OVERLOADED: exitCodes.unavailable,
  UNAUTHENTICATED: exitCodes.denied,
  PERMISSION_DENIED: exitCodes.denied,
  OUTCOME_UNKNOWN: exitCodes.unknown,
};

/** The exit code of a client command that failed with `error`. */
export function exitCodeOf(error: unknown): number {
  return error instanceof WatchFanoutError
    ? (byReason[error.reason] ?? exitCodes.failed)
    : exitCodes.failed;
}

/** The reader of the output has closed it, as `head` does. The command ends, and did not fail. */
export class OutputClosed extends Error {
  override readonly name = "OutputClosed";
}

/**
 * Standard output with backpressure. After a failure every method rejects with its error; OutputClosed if the reader has
 * closed the stream.
 */
export class Output {
  readonly #stream: Writable;
  readonly #failed = new AbortController();

  constructor(stream: Writable) {
    this.#stream = stream;
    stream.on("error", (error: NodeJS.ErrnoException) => {
      const gone = error.code === "EPIPE" || error.code === "ERR_STREAM_DESTROYED";
      this.#failed.abort(gone ? new OutputClosed(error.message) : error);
    });
  }

  /** Aborted after a failure, with its error as the reason. */
  get failed(): AbortSignal {
    return this.#failed.signal;
  }

  /** Writes a chunk. Resolves when there is room for more. */
  async write(chunk: string | Uint8Array): Promise<void> {
    this.#failed.signal.throwIfAborted();
    if (chunk.length === 0 || this.#stream.write(chunk)) return;
    await this.#until((done) => {
      this.#stream.once("drain", done);
      return () => this.#stream.off("drain", done);
    });
  }

  /** Resolves when everything has been written. */
  async flush(): Promise<void> {
    await this.#until((done) => {
      this.#stream.write("", () => done());
      return () => {};
    });
  }

  #until(subscribe: (done: () => void) => () => void): Promise<void> {
    return waitFor<void>((resolve) => subscribe(resolve), { signal: this.#failed.signal });
  }
}
