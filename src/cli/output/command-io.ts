import type { Readable, Writable } from "node:stream";
import type { Command } from "commander";
import { messageOf } from "../../base/errors.ts";
import { exitCodeOf, exitCodes } from "./exit-codes.ts";
import { OutputClosed } from "./output.ts";
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
