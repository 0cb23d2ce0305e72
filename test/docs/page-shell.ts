import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { expect, onTestFinished } from "vitest";
import { main } from "../bundle/command.ts";
import { compileCache } from "../compile-cache.ts";
import { freePorts } from "../etcd/free-ports.ts";
import { untilSeen } from "../faults/patience.ts";

/** A block of commands of a page. In a "console" block their output is shown as well. */
export interface Block {
  readonly page: string;
  readonly language: "console" | "sh";
  readonly text: string;
}

/** All blocks of commands of a page. */
export function blocksOf(page: string): readonly Block[] {
  const found = readFileSync(page, "utf8").matchAll(/^```(console|sh)\n(.*?)^```$/gms);
  return [...found].map(([, language, text = ""]) => ({
    ...{ page, text },
    language: language === "sh" ? "sh" : "console",
  }));
}

/** Commands that run until they are ended. */
const server = /^(?:npm start|watch-fanout (?:serve|etcd-proxy))\b/;
const watch = /^(?:bin\/watch-fanout watch|etcdctl .*\bwatch|(?:grpc)?curl .*\/Watch$)/s;

/** The ports that the pages name: those of services, and of their admin ports. */
const namedPorts = ["50051", "50052", "50053", "8080", "8082", "8083", "23790"] as const;

/** What differs between runs. */
const varying: readonly (readonly [RegExp, string])[] = [
  [/[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}/g, "HISTORY_ID"],
  [/sha256:[\da-f]{64}/g, "sha256:DIGEST"],
];

/** A shell in which the commands of pages run as a reader would type them, in a folder and on ports of its own. */
export class PageShell {
  readonly folder = mkdtempSync(join(tmpdir(), "watch-fanout-page-"));
  readonly #replaced: readonly (readonly [string, string])[];
  readonly #env: Readonly<Record<string, string | undefined>>;
  readonly #running: Running[] = [];

  private constructor(ports: readonly number[], options: PageShellOptions) {
    const bin = join(this.folder, "bin");
    mkdirSync(bin);
    const node = `exec '${process.execPath}' --disable-warning=ExperimentalWarning '${main}'`;
    script(join(bin, "watch-fanout"), `${node} "$@"`);
    // The script of the manifest, without the time that npm itself takes.
    script(
      join(bin, "npm"),
      `[ "$1" = start ] || exit 1\nshift\n[ "$1" != -- ] || shift\n${node} serve "$@"`,
    );
    const named = namedPorts.map((port, i) => [`:${port}`, `:${ports[i]}`] as const);
    this.#replaced = [...(options.replaced ?? []), ...named];
    const local = (port: (typeof namedPorts)[number]): string =>
      `127.0.0.1:${ports[namedPorts.indexOf(port)]}`;
    this.#env = {
      ...compileCache,
      PATH: [bin, ...(options.path ?? []), process.env["PATH"]].join(delimiter),
      WATCH_FANOUT_LISTEN: local("50051"),
      WATCH_FANOUT_ADMIN: local("8080"),
      WATCH_FANOUT_ADDRESS: local("50051"),
      WATCH_FANOUT_ADMIN_URL: `http://${local("8080")}`,
      ...options.env,
    };
  }

  static async open(options: PageShellOptions = {}): Promise<PageShell> {
    const shell = new PageShell(await freePorts(namedPorts.length), options);
    onTestFinished(async () => {
      await shell.endAll();
      rmSync(shell.folder, { recursive: true, force: true });
    });
    return shell;
  }

  /** Writes a file that commands name, with what is replaced in commands. */
  write(name: string, content: string): void {
    writeFileSync(join(this.folder, name), this.#here(content));
  }

  /**
   * Runs the commands of a block in turn. Each prints what the block shows, and succeeds if it shows nothing. Services
   * stay until `endAll`.
   */
  async run(block: Block): Promise<void> {
    for (const { command, output } of commandsOf(block)) {
      const shown = `${block.page}: ${command}`;
      const running = new Running(this.#here(command), this.folder, this.#env);
      this.#running.push(running);
      if (server.test(command) && output === "") await running.untilServing(shown);
      else if (watch.test(command)) await running.untilPrinted(shown, plain(output));
      else {
        const code = await running.ended;
        const printed = running.output.replaceAll(this.folder, "");
        if (output === "") expect({ shown, code, printed }).toEqual({ shown, code: 0, printed });
        else
          expect({ shown, printed: plain(printed) }).toEqual({
            shown,
            printed: plain(this.#here(output)),
          });
      }
    }
  }

  /** Ends all that runs. */
  async endAll(): Promise<void> {
    await Promise.all(this.#running.splice(0).map((running) => running.end()));
  }

  #here(text: string): string {
    return this.#replaced.reduce(
      // The port 2379 is not the beginning of 23790.
      (left, [from, to]) =>
        left.replaceAll(new RegExp(`${from.replaceAll(".", "\\.")}(?!\\d)`, "g"), to),
      text,
    );
  }
}

/** What a page shell has in addition. */
interface PageShellOptions {
  /** Texts of the page, and what is used in place of them here. */
  readonly replaced?: readonly (readonly [string, string])[];
  /** Folders with further commands. */
  readonly path?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
}

interface Command {
  readonly command: string;
  /** Empty: not shown. */
  readonly output: string;
}

function commandsOf({ language, text }: Block): readonly Command[] {
  if (language === "console") {
    const parts = text.split(/^\$ /m).slice(1);
    return parts.map((part) => {
      const [, command = "", output = ""] = /^((?:[^\n]*\\\n)*[^\n]*)\n(.*)$/s.exec(part) ?? [];
      return { command, output };
    });
  }
  // A script, in which only services need a process of their own.
  const lines = text.match(/(?:.*\\\n)*.*\n/g) ?? [];
  if (!lines.some((line) => server.test(line))) return [{ command: text, output: "" }];
  return lines.map((line) => ({ command: line.trim(), output: "" }));
}

/** Without what differs between runs, and how lines are wrapped. */
function plain(text: string): string {
  const same = varying.reduce((left, [what, name]) => left.replaceAll(what, name), text);
  return same.replaceAll(/\s+/g, " ").trim();
}

function script(path: string, content: string): void {
  writeFileSync(path, `#!/bin/sh\n${content}\n`);
  chmodSync(path, 0o755);
}

/** A command that was started. */
class Running {
  readonly #child: ChildProcess;
  readonly ended: Promise<number | null>;
  output = "";
  #hasEnded = false;

  constructor(command: string, cwd: string, env: Readonly<Record<string, string | undefined>>) {
    // In a process group of its own, so that what it starts ends with it.
    this.#child = spawn("/bin/sh", ["-ec", command], {
      ...{ cwd, env, detached: true },
      stdio: ["ignore", "pipe", "pipe"],
    });
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      stream?.setEncoding("utf8").on("data", (text: string) => {
        this.output += text;
      });
    }
    this.ended = once(this.#child, "close").then(([code]) => {
      this.#hasEnded = true;
      return code;
    });
  }

  /** Resolves when a service is ready. */
  async untilServing(shown: string): Promise<void> {
    const [, ready = ""] = await this.#until(shown, /admin +(\S+\/readyz)/);
    if (!ready.startsWith("http:")) return;
    await untilSeen(`${shown} is ready`, async () => {
      const response = await fetch(`${ready}?verbose`).catch(() => undefined);
      // Workers that are not ready are warnings.
      const checks = (await response?.text())?.trim().split("\n") ?? [];
      return response?.ok === true && checks.every((line) => /^ok$|: ok/.test(line))
        ? true
        : undefined;
    });
  }

  /** Resolves when a watch has printed this. */
  async untilPrinted(shown: string, output: string): Promise<void> {
    await untilSeen(`${shown} prints ${output}`, async () => {
      if (this.#hasEnded) throw new Error(`${shown} has ended: ${this.output}`);
      return plain(this.output).startsWith(output) ? true : undefined;
    });
  }

  async #until(shown: string, what: RegExp): Promise<RegExpExecArray> {
    return await untilSeen(`${shown} prints ${what}`, async () => {
      if (this.#hasEnded) throw new Error(`${shown} has ended: ${this.output}`);
      return what.exec(this.output) ?? undefined;
    });
  }

  async end(): Promise<void> {
    if (!this.#hasEnded && this.#child.pid !== undefined) process.kill(-this.#child.pid, "SIGKILL");
    await this.ended;
  }
}
