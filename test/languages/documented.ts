import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { promisify } from "node:util";
import { Example } from "../examples/example.ts";

const run = promisify(execFile);

const page = readFileSync("docs/other-languages.md", "utf8");

/** Maximum time to fetch the libraries and to compile, in milliseconds. */
export const buildTimeoutMs = 300_000;

/** An example as docs/other-languages.md describes it: how to build and how to run it. */
export class DocumentedExample {
  readonly language: string;
  readonly #probes: readonly string[];
  readonly #build: string;
  readonly #run: string;

  /** `language` is the heading of its section, `probes` are commands that succeed if its toolchain is installed. */
  constructor(language: string, probes: readonly string[]) {
    this.language = language;
    this.#probes = probes;
    const section = page.split(/^## /m).find((text) => text.startsWith(`${language}\n`)) ?? "";
    const [build, start] = [...section.matchAll(/^```sh\n(.*?)^```/gms)];
    if (build?.[1] === undefined || start?.[1] === undefined) {
      throw new Error(`docs/other-languages.md has no commands to build and run ${language}.`);
    }
    this.#build = build[1];
    this.#run = start[1].trim();
  }

  /** The probes that fail on this machine. */
  async failedProbes(): Promise<readonly string[]> {
    const failed: string[] = [];
    for (const probe of this.#probes) {
      await run("sh", ["-c", probe], { timeout: 20_000 }).catch(() => failed.push(probe));
    }
    return failed;
  }

  /** @throws Error with the output of the commands if one of them fails */
  async build(): Promise<void> {
    await run("sh", ["-e", "-c", this.#build], { timeout: buildTimeoutMs });
  }

  /** Starts it after `build`, in its folder, as a process that is killed after the test. */
  start(service: string): Example {
    const [folder = ""] = this.#build.split("\n");
    return new Example(["sh", "-c", `${folder} && exec ${this.#run}`], service);
  }
}
