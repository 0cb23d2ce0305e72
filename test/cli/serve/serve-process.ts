import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

const main = fileURLToPath(new URL("../../../src/cli/main.ts", import.meta.url));

export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** `watch-fanout` as a process of its own. */
export class CommandProcess implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly exit: Promise<Exit>;
  #stdout = "";
  #stderr = "";
  readonly #changed: (() => void)[] = [];
  #exited = false;

  constructor(args: readonly string[], env: Readonly<Record<string, string>> = {}) {
    this.#child = spawn(
      process.execPath,
      ["--disable-warning=ExperimentalWarning", main, ...args],
      { env: { PATH: process.env["PATH"], ...env }, stdio: ["ignore", "pipe", "pipe"] },
    );
    this.#child.stdout?.setEncoding("utf8").on("data", (text: string) => {
      this.#stdout += text;
      this.#tell();
    });
    this.#child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.#stderr += text;
      this.#tell();
    });
    this.exit = once(this.#child, "close").then(([code, signal]) => {
      this.#exited = true;
      this.#tell();
      return { code, signal, stdout: this.#stdout, stderr: this.#stderr };
    });
  }

  get stdout(): string {
    return this.#stdout;
  }

  get stderr(): string {
    return this.#stderr;
  }

  kill(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  /** Resolves once standard output or the log has this in it; rejects if the process ends before. */
  async said(what: RegExp): Promise<RegExpExecArray> {
    for (;;) {
      const found = what.exec(this.#stdout) ?? what.exec(this.#stderr);
      if (found !== null) return found;
      if (this.#exited) throw new Error(`It ended without saying ${what}: ${this.#stderr}`);
      await new Promise<void>((resolve) => this.#changed.push(resolve));
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#child.kill("SIGKILL");
    await this.exit;
  }

  #tell(): void {
    for (const resolve of this.#changed.splice(0)) resolve();
  }
}

/** A service that listens, and where. */
export interface Served {
  readonly process: CommandProcess;
  /** `127.0.0.1:PORT` */
  readonly grpc: string;
  /** `http://127.0.0.1:PORT` */
  readonly admin: string;
}

/** Starts `serve` on free ports and waits for the start-up text. */
export async function startServe(
  args: readonly string[] = [],
  env: Readonly<Record<string, string>> = {},
): Promise<Served> {
  const process = new CommandProcess(
    ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", ...args],
    env,
  );
  const [, grpc = ""] = await process.said(/serves gRPC on (\S+)/);
  const [, admin = ""] = await process.said(/admin +(\S+)\/readyz/);
  return { process, grpc, admin };
}

/** Asks until the answer has this status, and resolves to its text. */
export async function untilStatus(url: string, status: number): Promise<string> {
  for (;;) {
    const response = await fetch(url);
    const text = await response.text();
    if (response.status === status) return text;
  }
}
