import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { Cacher } from "../../src/cacher/cacher.ts";
import { systemClock } from "../../src/clock.ts";
import { startServer } from "../../src/server/server.ts";
import { MemoryStorage } from "../../src/storage/memory/memory-storage.ts";
import { silent } from "../cacher/cached-store.ts";
import { startReady } from "../cacher/ready.ts";

/** The program in README's client section, and what it says that it prints. */
async function readme(): Promise<{ program: string; printed: string }> {
  const text = await readFile(new URL("../../README.md", import.meta.url), "utf8");
  const [section = ""] = text.split("## The client library\n").slice(1);
  const block = (language: string): string =>
    section.match(new RegExp(`\`\`\`${language}\n(.*?)\`\`\``, "s"))?.[1] ?? "";
  return { program: block("ts"), printed: block("text") };
}

/** A service as `serve` without options is, but for its port. */
async function serveDefault(): Promise<string> {
  const clock = systemClock;
  const storage = new MemoryStorage({ clock });
  const cacher = await startReady(new Cacher({ storage, clock, logger: silent, name: "default" }));
  const server = await startServer({
    resources: new Map([["default", cacher]]),
    listen: { host: "127.0.0.1", port: 0 },
    ...{ clock, logger: silent },
  });
  onTestFinished(async () => {
    await server.drain(0);
    await cacher.close();
  });
  return `127.0.0.1:${server.port}`;
}

test("The program in README's client section prints what README says.", async () => {
  const { program, printed } = await readme();
  const folder = await mkdtemp(join(tmpdir(), "watch-fanout-readme-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  const file = join(folder, "program.ts");
  const library = new URL("../../src/client/index.ts", import.meta.url).href;
  const address = await serveDefault();
  await writeFile(
    file,
    program.replace("watch-fanout/client", library).replace("127.0.0.1:50051", address),
  );
  const child = spawn(process.execPath, [file], {
    env: { NODE_NO_WARNINGS: "1" },
    stdio: ["ignore", "pipe", "inherit"],
  });
  let said = "";
  for await (const chunk of child.stdout) {
    said += chunk;
    // It goes on watching until it is told to stop.
    if (said.length >= printed.length) child.kill();
  }
  expect(said).toBe(printed);
  expect(said.split("\n")).toHaveLength(3);
});
