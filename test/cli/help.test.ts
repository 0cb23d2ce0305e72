import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { Command } from "commander";
import { expect, test } from "vitest";
import { addServeFlags } from "../../src/cli/serve/serve-command.ts";
import { definition, optionNames } from "../../src/config/options.ts";
import { main } from "../bundle/command.ts";
import { compileCache } from "../compile-cache.ts";

const run = promisify(execFile);

async function helpOf(...command: readonly string[]): Promise<string> {
  const env = { PATH: process.env["PATH"], ...compileCache };
  const args = ["--disable-warning=ExperimentalWarning", main, ...command, "--help"];
  return (await run(process.execPath, args, { env })).stdout;
}

test.each([[["serve"]], [["config", "check"]], [["etcd-proxy"]]])(
  "the help of %j is wrapped, and has no values of commander",
  async (command) => {
    const help = await helpOf(...command);
    const [longest] = help.split("\n").sort((a, b) => b.length - a.length);
    expect(longest?.length, longest).toBeLessThanOrEqual(80);
    expect(help).not.toContain("preset");
  },
);

test("the help of serve is wrapped in a terminal of 40 columns", () => {
  const command = new Command().configureOutput({ getOutHelpWidth: () => 40 });
  addServeFlags(command);
  const texts = command.helpInformation().match(/^ {6}.*/gm) ?? [];
  expect(texts.length).toBeGreaterThan(optionNames.length);
  // A word is not broken.
  expect(texts.filter((line) => line.length > 40 && line.trim().includes(" "))).toEqual([]);
});

test("the help of serve has each option once, under a heading", async () => {
  const help = await helpOf("serve");
  const headings = [...help.matchAll(/^(\S.*):$/gm)].map(([, heading]) => heading);
  expect(headings).toEqual([
    ...["Options", "What is served", "Embedded store", "Ports and TLS", "Callers and their rights"],
    ...["xDS", "etcd and its API", "Caches", "Limits", "Compression", "Log, metrics and traces"],
    ...["Process", "Examples"],
  ]);
  const flags = [...help.matchAll(/^ {2}--([a-z-]+)/gm)].map(([, flag]) => flag);
  const expected = optionNames.filter((name) => definition(name).secret !== true);
  expect(flags.sort()).toEqual([...expected, "config"].sort());
});

test("the reader of help may end early", async () => {
  const help = `"${process.execPath}" --disable-warning=ExperimentalWarning "${main}" serve --help`;
  const { stdout, stderr } = await run("sh", ["-c", `${help} | true`]);
  expect({ stdout, stderr }).toEqual({ stdout: "", stderr: "" });
});

test("the help of etcd-proxy has the defaults that options have there", async () => {
  const help = (await helpOf("etcd-proxy")).replaceAll(/\s+/g, " ");
  expect(help).toMatch(/--watch-fanout-api \[on\|off\] [^-]*\(default: off\)/);
  expect(help).toMatch(/--etcd-history-create \[on\|off\] Create .*? it\. \(default: off\)/);
  expect(help).toMatch(/--resource <NAME=PREFIX> [^(]*\(default: all= \(every key\)\)/);
  expect(help).not.toContain("etcd-proxy has it off");
});
