import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { ChangeableLevel, createLogger } from "../../../src/cli/serve/logger.ts";
import { tokenDigest } from "../../../src/identity/token-file.ts";
import { type Served, startServe } from "./serve-process.ts";

function logged(level: ChangeableLevel) {
  const lines: string[] = [];
  const destination = { write: (text: string) => void lines.push(JSON.parse(text).msg) };
  return { lines, logger: createLogger({ level, format: "json", destination }) };
}

async function served(...args: string[]): Promise<Served> {
  const all = await startServe(["--resource", "all=", "--log-format", "json", ...args]);
  onTestFinished(() => all.process[Symbol.asyncDispose]());
  return all;
}

function put(admin: string, level: string, token?: string): Promise<Response> {
  const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
  return fetch(`${admin}/log-level`, { method: "PUT", body: level, headers });
}

describe("A level that changes", () => {
  test("is that of the log, and of all logs that were derived from it", () => {
    const level = new ChangeableLevel("warn");
    const { lines, logger } = logged(level);
    const child = logger.child({ resource: "a" });
    const grandchild = child.child({ part: "b" });
    const all = [logger, child, grandchild];
    for (const each of all) each.debug("before");
    level.set("debug");
    for (const each of all) each.debug("during");
    level.set("error");
    for (const each of all) each.warn("after");
    const changed = "the log level has changed";
    expect(lines).toEqual([changed, "during", "during", "during", changed]);
  });

  test("is not changed to one that does not exist", () => {
    const level = new ChangeableLevel("warn");
    expect([level.set("loud"), level.set("WARN"), level.current]).toEqual([false, false, "warn"]);
  });

  test.each([
    ["warn", ["debug", "warn", "debug"]],
    ["debug", ["info", "debug", "info"]],
  ] as const)("toggles between %s and debug", (configured, expected) => {
    const level = new ChangeableLevel(configured);
    const toggled = expected.map(() => {
      level.toggleDebug();
      return level.current;
    });
    expect(toggled).toEqual(expected);
  });
});

describe("The level of a service is changed by", () => {
  test("SIGUSR2, to debug and back", async () => {
    const { process, admin } = await served();
    process.kill("SIGUSR2");
    await process.printed(/"from":"info","to":"debug"/);
    expect(await (await fetch(`${admin}/log-level`)).text()).toBe("debug\n");
    process.kill("SIGUSR2");
    await process.printed(/"from":"debug","to":"info"/);
    process.kill("SIGTERM");
    expect((await process.exit).code).toBe(0);
  });

  test("PUT /log-level, with a token where the admin port needs one", async () => {
    const folder = mkdtempSync(join(tmpdir(), "log-level-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const file = join(folder, "tokens");
    writeFileSync(file, `sha256:${tokenDigest("a-token-of-the-operator")} operator\n`);
    const { process, admin } = await served("--admin-token-file", file);
    expect((await put(admin, "debug")).status).toBe(401);
    expect((await put(admin, "debug", "another")).status).toBe(401);
    expect((await put(admin, "debug", "a-token-of-the-operator")).status).toBe(200);
    await process.printed(/"from":"info","to":"debug"/);
  });

  test("either also in its workers", async () => {
    const { process, admin } = await served("--workers", "2");
    expect((await put(admin, "warn")).status).toBe(200);
    // The main process and two workers.
    await process.printed(/(?:"from":"info","to":"warn"(?:.|\n)*){3}/);
    process.kill("SIGUSR2");
    await process.printed(/(?:"from":"warn","to":"debug"(?:.|\n)*){3}/);
  });
});
