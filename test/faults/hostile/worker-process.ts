import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { compileCache } from "../../compile-cache.ts";

/** A command for a worker, by a number that its response repeats. */
interface Command {
  readonly id: number;
  readonly name: string;
  readonly argument: unknown;
}

/** A worker's response: a result or an error. */
interface Reply {
  readonly id: number;
  readonly result?: unknown;
  readonly failure?: string;
}

type Settle = (response: Reply) => void;

/**
 * A module that runs as a process of its own and answers commands over IPC, so that its CPU time is not that of
 * the test. It ends with its parent.
 */
export class WorkerProcess {
  readonly #name: string;
  readonly #child: ChildProcess;
  readonly #exited: Promise<unknown>;
  readonly #pending = new Map<number, Settle>();
  #commands = 0;
  #isClosed = false;
  /** The end of what it wrote to stderr, for messages. */
  #log = "";

  /** `module` calls `serveParent`; `name` is for messages. */
  constructor(name: string, module: URL) {
    this.#name = name;
    this.#child = spawn(
      process.execPath,
      ["--disable-warning=ExperimentalWarning", module.pathname],
      {
        env: { PATH: process.env["PATH"], ...compileCache },
        stdio: ["ignore", "ignore", "pipe", "ipc"],
      },
    );
    this.#exited = once(this.#child, "exit");
    this.#child.stderr?.on("data", (chunk: Buffer) => {
      this.#log = (this.#log + chunk.toString()).slice(-8_000);
    });
    this.#child.on("message", (response: Reply) => {
      const settle = this.#pending.get(response.id);
      this.#pending.delete(response.id);
      settle?.(response);
    });
    this.#child.on("exit", (code, signal) => {
      if (this.#isClosed) return;
      const failure = `${this.#name} ended with ${code ?? signal}:\n${this.#log}`;
      for (const [id, settle] of this.#pending) settle({ id, failure });
      this.#pending.clear();
    });
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  /** Rejects with an Error if the command fails or the process ends first. */
  ask<T>(name: string, argument: unknown = null): Promise<T> {
    const id = this.#commands++;
    return new Promise<T>((resolve, reject) => {
      this.#pending.set(id, ({ result, failure }) => {
        if (failure === undefined) resolve(result as T);
        else reject(new Error(`${this.#name}, ${name}: ${failure}`));
      });
      const command: Command = { id, name, argument };
      this.#child.send(command, (error) => {
        if (error !== null) this.#pending.get(id)?.({ id, failure: error.message });
      });
    });
  }

  /** Kills it and resolves when it is gone. Idempotent. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#child.kill("SIGKILL");
    await this.#exited;
  }
}

/** In the worker: serves the commands, by name, until the parent is gone. */
export function serveParent(
  commands: Readonly<Record<string, (argument: never) => Promise<unknown>>>,
): void {
  process.on("disconnect", () => process.exit(0));
  process.on("message", async ({ id, name, argument }: Command) => {
    let response: Reply;
    try {
      const command = commands[name];
      if (command === undefined) throw new Error(`Unknown command ${name}.`);
      response = { id, result: await command(argument as never) };
    } catch (error) {
      const failure = error instanceof Error ? String(error.stack) : String(error);
      response = { id, failure };
    }
    if (process.connected) process.send?.(response);
  });
}
