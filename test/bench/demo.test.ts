import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, it, onTestFinished } from "vitest";
import { Example } from "../examples/example.ts";

const run = promisify(execFile);

const { scripts } = JSON.parse(readFileSync("package.json", "utf8"));
const [, ...script] = scripts.demo.split(" ");

/** The demo with few watchers, with a folder of its own for temporary files. */
class Demo {
  readonly process: Example;
  readonly #folder: string;

  private constructor(process: Example, folder: string) {
    this.process = process;
    this.#folder = folder;
  }

  static async start(...args: readonly string[]): Promise<Demo> {
    const folder = await mkdtemp(join(tmpdir(), "demo-test-"));
    onTestFinished(() => rm(folder, { recursive: true, force: true }));
    const few = ["--watchers", "20", "--writes-per-second", "50"];
    const command = ["env", `TMPDIR=${folder}`, process.execPath, ...script, ...few, ...args];
    return new Demo(new Example(command, "", true), folder);
  }

  /** The lines about one second in which all watchers received something. */
  get lines(): readonly string[] {
    return this.process.lines.filter((line) => /^\d\d:\d\d:\d\d +[1-9]\d* events\/s /.test(line));
  }

  /** The command that it prints which begins with this, on one line. */
  command(beginning: string): string {
    const text = this.process.output.replaceAll(/\\\n */g, "");
    const found = text.split("\n").find((line) => line.trim().startsWith(beginning));
    if (found === undefined) throw new Error(`The demo does not print ${beginning}: ${text}`);
    return found.trim();
  }

  /** What it has left behind after its end: processes that it has named, and temporary files. */
  async leftBehind(): Promise<readonly (number | string)[]> {
    const pids = [...this.process.output.matchAll(/\(pid (\d+)\)/g)].map(([, pid]) => Number(pid));
    expect(pids).toHaveLength(4);
    return [...pids.filter(isRunning), ...(await readdir(this.#folder))];
  }
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

describe("The demo", () => {
  it("ends by itself after --seconds, and leaves neither a process nor a file", async () => {
    const demo = await Demo.start("--seconds", "2");
    expect(await demo.process.ended()).toBe(0);
    expect(demo.process.lines.filter((line) => line.includes(" events/s "))).toHaveLength(2);
    expect(demo.lines.length).toBeGreaterThan(0);
    expect(await demo.leftBehind()).toEqual([]);
  });

  it("prints commands that work, survives a killed replica, and leaves nothing after Ctrl-C", async () => {
    const demo = await Demo.start();
    await demo.process.until("an event", () => demo.lines[0]);
    const list = await run("sh", ["-c", demo.command("bin/watch-fanout list")]);
    expect(list.stdout).toContain("item-00");
    const buf = await run("sh", ["-c", demo.command("npx buf curl").replace("npx ", "")]);
    expect(JSON.parse(buf.stdout).items.length).toBeGreaterThan(0);
    for (const url of demo.process.output.match(/http:\S+\/(?:metrics|readyz\?verbose)$/gm) ?? []) {
      expect((await fetch(url)).status, url).toBe(200);
    }

    const lines = demo.lines.length;
    await run("sh", ["-c", demo.command("bin/watch-fanout put greeting hello")]);
    for (const value of ["null", "[1]", '{"sentAt":"now"}']) {
      await run("sh", ["-c", demo.command("bin/watch-fanout put").replace("hello", `'${value}'`)]);
    }
    await demo.process.until("events after a put by hand", () => demo.lines[lines + 2]);

    await run("sh", ["-c", demo.command("kill -9")]);
    await demo.process.said(/[1-9]\d* interrupted watches/);
    const before = demo.lines.length;
    // A watcher that did not continue would lag by 50 revisions per second.
    await demo.process.until("all watchers to continue", () =>
      demo.lines.slice(before + 2).find((line) => /lag \d revisions/.test(line)),
    );
    expect(await demo.process.interrupt()).toBe(0);
    expect(await demo.leftBehind()).toEqual([]);
  });

  it("explains itself for a wrong option", async () => {
    const demo = await Demo.start("--watchers", "none");
    expect(await demo.process.ended()).toBe(2);
    expect(demo.process.output).toMatch(/"none" is not a whole number above 0\.\n\nUsage: /);
  });
});
