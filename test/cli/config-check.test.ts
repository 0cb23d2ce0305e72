import { expect, test } from "vitest";
import { CommandProcess } from "./serve/serve-process.ts";

async function check(args: readonly string[], env: Readonly<Record<string, string>> = {}) {
  await using command = new CommandProcess(["config", "check", ...args], env);
  return await command.exit;
}

test("config check accepts what serve accepts, and starts nothing", async () => {
  // Nothing listens there, and an address of this kind can't be listened on.
  const flags = ["--etcd", "http://127.0.0.1:1", "--resource", "a=/a/", "--listen", "192.0.2.1:1"];
  expect(await check([...flags, "--insecure"])).toMatchObject({
    code: 0,
    stdout: "The configuration is valid.\n",
    stderr: expect.stringMatching(/^warning: without --policy every caller, .*\n$/),
  });
});

test("config check warns of an etcd API that caches nothing", async () => {
  expect(await check(["--etcd", "http://127.0.0.1:1", "--etcd-api"])).toMatchObject({
    code: 0,
    stderr: expect.stringMatching(/^warning: nothing is cached, so each watch and read /),
  });
});

test("config check prints all problems, with their flags and variables", async () => {
  const flags = ["--etcd", "http://127.0.0.1:1", "--tls-cert", "/nowhere/cert.pem"];
  const { code, stdout, stderr } = await check(flags, { WATCH_FANOUT_LISTEN: "here" });
  expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
  expect(stderr).toMatch(/^error: WATCH_FANOUT_LISTEN: "here" is not HOST:PORT/m);
  const more = await check(flags);
  expect(more.code).toBe(2);
  expect(more.stderr.trim().split("\n")).toEqual([
    expect.stringMatching(/^error: --etcd: needs the keys to serve: /),
    expect.stringMatching(/^error: --tls-cert: needs --tls-key as well\./),
  ]);
});
