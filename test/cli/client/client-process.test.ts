import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { pino } from "pino";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { processIo } from "../../../src/cli/output/command-io.ts";
import { type Service, startService } from "../../../src/cli/serve/main-process.ts";
import { loadConfig } from "../../../src/config/load-config.ts";
import { formatAddress } from "../../../src/config/value-types.ts";
import { main } from "../../bundle/command.ts";
import { startScriptedServer } from "../../client/scripted-server.ts";
import { wireEvent, wireResponse } from "../../client/wire-messages.ts";
import { compileCache } from "../../compile-cache.ts";

let service: Service;
let address: string;

beforeAll(async () => {
  const free = ["127.0.0.1:0"];
  const config = loadConfig({
    flags: { listen: free, admin: free, data: [":memory:"] },
    env: {},
    readFile: () => Buffer.of(),
  });
  service = await startService(config, systemClock, pino({ level: "silent" }));
  address = formatAddress(service.grpc);
});
afterAll(() => service?.stop());

const running: ChildProcess[] = [];
afterEach(() => {
  for (const child of running.splice(0)) child.kill("SIGKILL");
});

/** Runs the command in a process of its own. */
class Command {
  readonly child: ChildProcess;
  stdout = "";
  stderr = "";

  constructor(args: readonly string[], at = address) {
    this.child = spawn(
      process.execPath,
      ["--disable-warning=ExperimentalWarning", main, ...args, "--address", at],
      {
        stdio: "pipe",
        env: {
          PATH: process.env["PATH"],
          XDG_CONFIG_HOME: process.env["XDG_CONFIG_HOME"],
          ...compileCache,
        },
      },
    );
    running.push(this.child);
    this.child.stdin?.end();
    this.child.stdout?.on("data", (chunk) => {
      this.stdout += chunk;
    });
    this.child.stderr?.on("data", (chunk) => {
      this.stderr += chunk;
    });
  }

  async printed(stream: "stdout" | "stderr", part: string): Promise<void> {
    const source = this.child[stream];
    if (source === null) throw new Error("There is no such stream.");
    while (!this[stream].includes(part)) await once(source, "data");
  }

  async ended(): Promise<number | null> {
    const [code] = await once(this.child, "close");
    return code;
  }
}

async function run(...args: string[]) {
  const command = new Command(args);
  const code = await command.ended();
  return { code, stdout: command.stdout, stderr: command.stderr };
}

test("An object is put, read, listed, watched and deleted.", async () => {
  expect(await run("put", "greeting", "hello")).toMatchObject({ code: 0, stderr: "" });
  expect(await run("get", "greeting", "-o", "value")).toMatchObject({ code: 0, stdout: "hello" });
  expect((await run("list", "-o", "value")).stdout).toBe("hello\n");

  const watch = new Command(["watch", "--initial"]);
  await watch.printed("stdout", "ADDED");
  expect(await run("put", "greeting", "again")).toMatchObject({ code: 0 });
  await watch.printed("stdout", "again");
  expect(await run("delete", "greeting", "-o", "value")).toMatchObject({ stdout: "again" });
  await watch.printed("stdout", "DELETED");
  watch.child.kill("SIGINT");
  expect(await watch.ended()).toBe(0);
  expect(watch.stderr).toBe("");

  expect(await run("get", "greeting")).toMatchObject({ code: 3, stdout: "" });
  expect(await run("list", "-r", "other")).toMatchObject({ code: 3 });
  expect(await run("put", "greeting", "x", "--expected-mod-revision", "1")).toMatchObject({
    code: 4,
  });
});

describe("A watch in a process of its own", () => {
  const change = (revision: number) => wireResponse(revision, [wireEvent("ADDED", "k", revision)]);

  test("ends without an error when its reader closes the pipe, as head does.", async () => {
    const opened = Promise.withResolvers<() => void>();
    const server = await startScriptedServer({
      watch: (call) => {
        call.write(change(1));
        opened.resolve(() => call.write(change(2)));
      },
    });
    const watch = new Command(["watch"], server.address);
    await watch.printed("stdout", "ADDED");
    const { stdout } = watch.child;
    if (stdout === null) throw new Error("There is no output.");
    stdout.destroy();
    await once(stdout, "close");
    const writeMore = await opened.promise;
    writeMore();
    expect(await watch.ended()).toBe(0);
    expect(watch.stderr).toBe("");
    server.stop();
  });

  test("keeps running while it waits to reconnect, and can be interrupted then.", async () => {
    const server = await startScriptedServer({
      watch: (call) => void call.write(change(7)),
    });
    const watch = new Command(["watch"], server.address);
    await watch.printed("stdout", "ADDED");
    server.stop();
    await watch.printed("stderr", "Retrying to resume after revision 7");
    watch.child.kill("SIGTERM");
    expect(await watch.ended()).toBe(0);
  });
});

test("A second Ctrl-C has the default effect.", () => {
  const before = process.listenerCount("SIGINT");
  let asked = 0;
  processIo.onInterrupt(() => asked++);
  expect(process.listenerCount("SIGINT")).toBe(before + 1);
  process.listeners("SIGINT").at(-1)?.("SIGINT");
  expect([asked, process.listenerCount("SIGINT")]).toEqual([1, before]);
});
