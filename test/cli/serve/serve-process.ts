import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { main } from "../../bundle/command.ts";
import { compileCache } from "../../compile-cache.ts";
import { nextPause } from "../../until.ts";

/** How a process ended, and its output. */
export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs `watch-fanout` in a process of its own. An embedded store keeps nothing, unless `--data` is given. */
export class CommandProcess implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly exit: Promise<Exit>;
  #stdout = "";
  #stderr = "";
  readonly #changed: (() => void)[] = [];
  #exited = false;

  /** `limit`: an option of `ulimit`, such as `-n 300`. Default: the limits of this process. */
  constructor(args: readonly string[], env: Readonly<Record<string, string>> = {}, limit?: string) {
    const command = [process.execPath, "--disable-warning=ExperimentalWarning", main, ...args];
    const limited =
      limit === undefined
        ? command
        : ["/bin/sh", "-c", `ulimit ${limit} && exec "$@"`, "sh", ...command];
    const [program = "", ...rest] = limited;
    this.#child = spawn(program, rest, {
      env: {
        PATH: process.env["PATH"],
        XDG_CONFIG_HOME: process.env["XDG_CONFIG_HOME"],
        ...compileCache,
        ...(hasOwnStore(args) && { WATCH_FANOUT_DATA: ":memory:" }),
        ...env,
      },
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.#child.stdout?.setEncoding("utf8").on("data", (text: string) => {
      this.#stdout += text;
      this.#wake();
    });
    this.#child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.#stderr += text;
      this.#wake();
    });
    this.exit = once(this.#child, "close").then(([code, signal]) => {
      this.#exited = true;
      this.#wake();
      return { code, signal, stdout: this.#stdout, stderr: this.#stderr };
    });
  }

  get stdout(): string {
    return this.#stdout;
  }

  get stderr(): string {
    return this.#stderr;
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  kill(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  /** Resolves once the standard output or the log matches; rejects if the process ends before. */
  async printed(what: RegExp): Promise<RegExpExecArray> {
    for (;;) {
      const found = what.exec(this.#stdout) ?? what.exec(this.#stderr);
      if (found !== null) return found;
      if (this.#exited) throw new Error(`It ended without printing ${what}: ${this.#stderr}`);
      await new Promise<void>((resolve) => this.#changed.push(resolve));
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#child.kill("SIGKILL");
    await this.exit;
  }

  #wake(): void {
    for (const resolve of this.#changed.splice(0)) resolve();
  }
}

/** Whether `serve` gets an embedded store of which nothing says where it is: that would be in the folder of the test's process. */
function hasOwnStore([command, ...args]: readonly string[]): boolean {
  const others = ["--etcd", "--upstream", "--data"];
  return command === "serve" && !args.some((arg) => others.includes(arg));
}

/** A running service and its addresses. */
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
  limit?: string,
): Promise<Served> {
  const process = new CommandProcess(
    ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", ...args],
    env,
    limit,
  );
  const [, grpc = ""] = await process.printed(/serves gRPC on (\S+)/);
  const [, admin = ""] = await process.printed(/admin +(\S+)\/readyz/);
  return { process, grpc, admin };
}

/** Requests the URL until the response has this status, and returns its text. */
export async function untilStatus(url: string, status: number): Promise<string> {
  for (let pauseMs = 1; ; pauseMs = nextPause(pauseMs)) {
    const response = await fetch(url);
    const text = await response.text();
    if (response.status === status) return text;
    await delay(pauseMs);
  }
}
