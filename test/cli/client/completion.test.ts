import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, existsSync, writeFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { main } from "../../bundle/command.ts";
import { startScriptedServer } from "../../client/scripted-server.ts";
import { compileCache } from "../../compile-cache.ts";
import { run } from "./client-terminal.ts";
import { ServedCodecs } from "./served-codecs.ts";

const source = fileURLToPath(new URL("../../../src/cli/main.ts", import.meta.url));
const execute = promisify(execFile);

let served: ServedCodecs;
let env: NodeJS.ProcessEnv;

beforeAll(async () => {
  served = await ServedCodecs.start();
  for (const key of ["ns-1/a", "ns-1/b", "ns-2/x:y", "single", "odd\u001bkey", "with blank"]) {
    await served.client.put("pods", key, Buffer.from("{}"));
  }
  const shim = join(served.folder, "watch-fanout");
  const node = `"${process.execPath}" --disable-warning=ExperimentalWarning "${main}"`;
  writeFileSync(shim, `#!/bin/sh\nexec ${node} "$@"\n`);
  chmodSync(shim, 0o755);
  env = {
    ...compileCache,
    PATH: `${served.folder}:${process.env["PATH"]}`,
    HOME: served.folder,
    TERM: "dumb",
    WATCH_FANOUT_ADDRESS: served.address,
    WATCH_FANOUT_TIMEOUT: "60s",
    XDG_CONFIG_HOME: join(served.folder, "config"),
  };
  const setting = ["context", "set", "prod", "--address", served.address, "--resource", "pods"];
  await execute(shim, setting, { env });
});
afterAll(() => served?.[Symbol.asyncDispose]());

/** The words that the last of `words` can become. */
async function candidates(...words: readonly string[]): Promise<readonly string[]> {
  const { code, stdout, stderr } = await run(["__complete", "--", ...words]);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  return stdout
    .split("\n")
    .slice(0, -1)
    .map((line) => line.split("\t")[0] ?? "");
}

describe("Completed by the definitions of the commands are", () => {
  test.each([
    [["wa"], ["watch"]],
    [
      ["policy", "c"],
      ["check", "can"],
    ],
    [["list", "--page"], ["--page-size"]],
    [["list", "-l", "app=web", "--revision-match", "e"], ["exact"]],
    [["list", "--revision-match=e"], ["--revision-match=exact"]],
    [["completion", "z"], ["zsh"]],
    [["get", "--tls-ca", ""], [":files"]],
    [["put", "k", "--file=x"], [":files"]],
    [["list", "--", "--page"], []],
    [["none", "x"], []],
    [["__"], []],
  ])("%j: %j.", async (words, expected) => {
    expect(await candidates(...words)).toEqual(expected);
  });

  test("with their descriptions, all commands.", async () => {
    const { stdout } = await run(["__complete", "--", ""]);
    expect(stdout).toContain("\nhealth\tAsk the service whether it serves");
    expect(stdout).not.toContain("__complete");
  });
});

describe("Completed by the service are", () => {
  const at = (...words: readonly string[]): Promise<readonly string[]> => {
    const [command = "", ...rest] = words;
    return candidates(command, "--address", served.address, "--timeout", "60s", ...rest);
  };

  test("resources.", async () => {
    expect(await at("get", "-r", "")).toEqual(["blobs", "leases", "pods"]);
    expect(await at("list", "--resource=po")).toEqual(["--resource=pods"]);
  });

  test("keys, by their levels, of the resource that is named.", async () => {
    expect(await at("get", "-r", "pods", "")).toEqual(["ns-1/", "ns-2/", "single", "with blank"]);
    expect(await at("get", "-r", "pods", "ns-1/")).toEqual(["ns-1/a", "ns-1/b"]);
    expect(await at("watch", "--resource=pods", "--key", "si")).toEqual(["single"]);
    expect(await at("get", "k", "")).toEqual([]);
  });

  test("nothing, without an error, if there is no service, or it does not respond.", async () => {
    expect(await candidates("get", "--address", "127.0.0.1:1", "")).toEqual([]);
    const silent = await startScriptedServer({ list: () => {} });
    expect(await candidates("get", "--address", silent.address, "")).toEqual([]);
    silent.stop();
  });
});

const running: ChildProcess[] = [];
afterEach(() => {
  for (const child of running.splice(0)) child.kill("SIGKILL");
});

function has(name: string): boolean {
  return (process.env["PATH"] ?? "").split(delimiter).some((path) => existsSync(join(path, name)));
}

/** Types into an interactive shell on a terminal, and resolves when its screen has `expected`. */
async function typed(shell: string, setUp: string, keys: string, expected: RegExp): Promise<void> {
  const child = spawn("script", ["-qec", shell, "/dev/null"], { env, stdio: "pipe" });
  running.push(child);
  let screen = "";
  child.stdout.on("data", (chunk: Buffer) => {
    screen += chunk.toString();
  });
  const until = async (text: RegExp): Promise<void> => {
    while (!text.test(screen)) await once(child.stdout, "data");
  };
  child.stdin.write(`${setUp}\necho set-$((1+1))\n`);
  await until(/set-2/);
  screen = "";
  child.stdin.write(keys);
  await until(expected);
}

describe.skipIf(!has("script"))("A real bash", () => {
  const bash = "bash --norc --noprofile -i";
  const setUp = "source <(watch-fanout completion bash)";

  test.each([
    ["a value behind =", "watch-fanout list --revision-match=ex\t", /--revision-match=exact /],
    ["a key with a colon", "watch-fanout get --context prod ns-2/x:\t", /ns-2\/x:y /],
    ["a key with a blank", "watch-fanout get --context prod wi\t", /with\\ blank /],
    ["a file", `watch-fanout get --tls-ca ${source.slice(0, -3)}\t`, /main\.ts /],
    ["a context", "watch-fanout list --context p\t", /prod /],
  ])("completes %s.", async (_, keys, expected) => {
    await typed(bash, setUp, keys, expected);
  });

  test("leaves no blank behind a level of keys.", async () => {
    const keys = "watch-fanout get --context prod ns-1\t\t\t";
    await typed(bash, setUp, keys, /ns-1\/a +ns-1\/b/);
  });
});

describe.skipIf(!has("script") || !has("zsh"))("A real zsh", () => {
  const setUp = "autoload -U compinit; compinit -u -D; source <(watch-fanout completion zsh)";

  test.each([
    ["a command", "watch-fanout resou\t", /resources /],
    ["a value behind =", "watch-fanout list --revision-match=ex\t", /match=exact /],
    ["a key with a blank", "watch-fanout get --context prod wi\t", /with\\ blank /],
    ["a file", `watch-fanout get --tls-ca ${source.slice(0, -3)}\t`, /main\.ts /],
  ])("completes %s.", async (_, keys, expected) => {
    await typed("zsh -f -i", setUp, keys, expected);
  });
});

describe.skipIf(!has("fish"))("A real fish", () => {
  test.each([
    ["watch-fanout resou", /^resources\tList the resources/],
    ["watch-fanout list --revision-match=ex", /^--revision-match=exact/],
    ["watch-fanout get --context prod ", /^ns-1\/\nns-2\/\nsingle\nwith blank\n$/],
    [`watch-fanout get --tls-ca ${source.slice(0, -3)}`, /main\.ts/],
    [`watch-fanout get --tls-ca=${source.slice(0, -3)}`, /^--tls-ca=\/.*main\.ts/],
    ["watch-fanout list --context p", /^prod\n$/],
  ])("completes %s.", async (line, expected) => {
    const script = "watch-fanout completion fish | source; complete -C $argv[1]";
    const { stdout } = await execute("fish", ["--no-config", "-c", script, line], { env });
    expect(stdout).toMatch(expected);
  });
});
