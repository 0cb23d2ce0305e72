import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { isDeepStrictEqual } from "node:util";
import { onTestFinished } from "vitest";
import { compileCache } from "../compile-cache.ts";
import { untilSeen } from "../faults/patience.ts";

const checkout = fileURLToPath(new URL("../..", import.meta.url));
const manifest = JSON.parse(readFileSync(`${checkout}/package.json`, "utf8"));
/** The flags of `npm run example`. */
const [, ...flags] = manifest.scripts.example.split(" ");

/** The command that runs examples, without npm. */
export const node: readonly string[] = [process.execPath, ...flags];

/** The command line of an example. */
export function exampleCommand(script: string, args: readonly string[]): readonly string[] {
  return [...node, `examples/${script}`, ...args];
}

/** A program in its own process, which is killed after the test. */
export class Example {
  readonly #child: ChildProcess;
  readonly #closed: Promise<number | null>;
  #output = "";
  #closedWith: string | undefined;

  /** `service` is the address of the service that it connects to. `hasOwnGroup` is for `interrupt`. */
  constructor(command: readonly string[], service: string = "", hasOwnGroup: boolean = false) {
    const [program = "", ...args] = command;
    this.#child = spawn(program, args, {
      cwd: checkout,
      detached: hasOwnGroup,
      env: {
        PATH: process.env["PATH"],
        ...compileCache,
        TERM: "xterm",
        WATCH_FANOUT_ADDRESS: service,
      },
      stdio: "pipe",
    });
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      stream?.setEncoding("utf8").on("data", (text: string) => {
        this.#output += text;
      });
    }
    this.#closed = once(this.#child, "close").then(([code, signal]) => {
      this.#closedWith = `${signal ?? code}`;
      return code;
    });
    onTestFinished(() => this.kill());
  }

  static start(script: string, args: readonly string[], service?: string): Example {
    return new Example(exampleCommand(script, args), service);
  }

  /** Everything that it has written to stdout and stderr. */
  get output(): string {
    return this.#output;
  }

  get lines(): readonly string[] {
    return this.#output.split("\n").slice(0, -1);
  }

  /** Resolves when its output matches. */
  said(what: RegExp): Promise<RegExpExecArray> {
    return this.until(`it to say ${what}`, () => what.exec(this.#output) ?? undefined);
  }

  /** Resolves when `look` returns a value; rejects if the program ends first. */
  async until<T>(what: string, look: () => T | undefined): Promise<T> {
    try {
      const seen = await untilSeen(what, async () => {
        const found = look();
        return found !== undefined || this.#closedWith !== undefined ? { found } : undefined;
      });
      if (seen.found !== undefined) return seen.found;
    } catch (error) {
      throw new Error(`Did not see ${what}. Its output: ${this.#output}`, { cause: error });
    }
    throw new Error(
      `It ended with ${this.#closedWith} before ${what}. Its output: ${this.#output}`,
    );
  }

  type(keys: string): void {
    this.#child.stdin?.write(keys);
  }

  /** Sends SIGTERM, and resolves to its exit code. */
  stop(): Promise<number | null> {
    this.#child.kill("SIGTERM");
    return this.#closed;
  }

  /** Sends SIGINT to its process group, as a terminal does at Ctrl-C, and resolves to its exit code. */
  interrupt(): Promise<number | null> {
    process.kill(-(this.#child.pid ?? Number.NaN), "SIGINT");
    return this.#closed;
  }

  /** Stops it until `resume`, as a suspended machine or an overloaded one does. */
  pause(): void {
    this.#child.kill("SIGSTOP");
  }

  resume(): void {
    this.#child.kill("SIGCONT");
  }

  /** Resolves to its exit code when it has ended by itself. */
  ended(): Promise<number | null> {
    return this.#closed;
  }

  async kill(): Promise<void> {
    this.#child.kill("SIGKILL");
    await this.#closed;
  }
}

/** Resolves when `look` returns the expected value. */
export async function eventually<T>(look: () => T | Promise<T>, expected: T): Promise<void> {
  let seen: T | undefined;
  try {
    await untilSeen("what is expected", async () => {
      seen = await look();
      return isDeepStrictEqual(seen, expected) ? true : undefined;
    });
  } catch (error) {
    const is = `Expected ${JSON.stringify(expected)}, and it is ${JSON.stringify(seen)}.`;
    throw new Error(is, { cause: error });
  }
}
