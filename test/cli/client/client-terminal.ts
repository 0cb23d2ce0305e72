import { PassThrough, Readable } from "node:stream";
import { Command, CommanderError } from "commander";
import { addClientCommands } from "../../../src/cli/client/client-commands.ts";
import { addBackupCommand } from "../../../src/cli/data/backup-command.ts";
import { addRestoreCommand } from "../../../src/cli/data/restore-command.ts";
import { type CommandIo, exitCodes } from "../../../src/cli/output/command-io.ts";
import { addPolicyCommands } from "../../../src/cli/policy/policy-commands.ts";

export interface TerminalOptions {
  readonly stdin?: string | Uint8Array;
  /** The width of the terminal; absent: input and output are not a terminal. */
  readonly columns?: number;
}

export interface Outcome {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a client or policy command in a test, with its own streams, and interrupts it on request. */
export class Terminal {
  readonly stdout = new PassThrough();
  readonly stderr = new PassThrough();
  readonly #options: TerminalOptions;
  readonly #interruptListeners = new Set<() => void>();
  readonly #out: Buffer[] = [];
  readonly #err: Buffer[] = [];
  readonly #watching = new Set<() => void>();

  constructor(options: TerminalOptions = {}) {
    this.#options = options;
    this.stdout.on("data", (chunk: Buffer) => this.#append(this.#out, chunk));
    this.stderr.on("data", (chunk: Buffer) => this.#append(this.#err, chunk));
  }

  /** Runs a command until it ends. */
  async run(...args: readonly string[]): Promise<Outcome> {
    let code: number = exitCodes.done;
    const { columns, stdin = "" } = this.#options;
    const isTTY = columns !== undefined;
    const io: CommandIo = {
      stdin: Object.assign(Readable.from([Buffer.from(stdin)]), { isTTY }),
      stdout: Object.assign(this.stdout, { isTTY, columns }),
      stderr: this.stderr,
      onInterrupt: (listener) => {
        this.#interruptListeners.add(listener);
        return () => this.#interruptListeners.delete(listener);
      },
      exitWith: (given) => {
        code = given;
      },
    };
    const program = new Command("watch-fanout").exitOverride().configureOutput({
      writeOut: (text) => this.stdout.write(text),
      writeErr: (text) => this.stderr.write(text),
    });
    addClientCommands(program, io);
    addPolicyCommands(program, io);
    addBackupCommand(program, io);
    addRestoreCommand(program, io);
    try {
      await program.parseAsync(args, { from: "user" });
    } catch (error) {
      if (!(error instanceof CommanderError)) throw error;
      code = error.exitCode === 0 ? exitCodes.done : exitCodes.usage;
    }
    return { code, stdout: text(this.#out), stderr: text(this.#err) };
  }

  /** Resolves when the output contains `part`. */
  async until(stream: "stdout" | "stderr", part: string): Promise<void> {
    const chunks = stream === "stdout" ? this.#out : this.#err;
    while (!text(chunks).includes(part)) {
      await new Promise<void>((resolve) => this.#watching.add(resolve));
    }
  }

  interrupt(): void {
    for (const listener of this.#interruptListeners) listener();
  }

  #append(chunks: Buffer[], chunk: Buffer): void {
    chunks.push(chunk);
    for (const wake of this.#watching) wake();
    this.#watching.clear();
  }
}

export function run(args: readonly string[], options?: TerminalOptions): Promise<Outcome> {
  return new Terminal(options).run(...args);
}

function text(chunks: readonly Buffer[]): string {
  return Buffer.concat(chunks).toString();
}
