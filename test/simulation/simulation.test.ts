import { spawn } from "node:child_process";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import { beforeAll, expect, test } from "vitest";
import { compileCache } from "../compile-cache.ts";

/** A process of its own for each: its time, network and random numbers are replaced. */
async function simulate(...options: readonly string[]): Promise<{ code: number; said: string }> {
  const path = new URL("run.ts", import.meta.url).pathname;
  const args = ["--disable-warning=ExperimentalWarning", path, ...options];
  const env = { ...process.env, ...compileCache };
  const child = spawn(process.execPath, args, { env, stdio: ["ignore", "pipe", "inherit"] });
  const [said, [code]] = await Promise.all([text(child.stdout), once(child, "close")]);
  return { code: Number(code), said };
}

const timeout = 300_000;

let six: Awaited<ReturnType<typeof simulate>>;
beforeAll(async () => {
  six = await simulate("--seed", "1", "--seeds", "6", "--no-shrink", "--print");
}, timeout);

test("Clients of roots and relays get what is promised, whatever the seed does", () => {
  expect(six.code, six.said).toBe(0);
});

// Nothing is left of the seeds before: here there are fewer of them.
test("A seed decides everything that happens, to the byte", { timeout }, async () => {
  const two = await simulate("--seed", "5", "--seeds", "2", "--print");
  expect(printedBy(six.said)).toHaveLength(6);
  expect(printedBy(two.said)).toEqual(printedBy(six.said).slice(-2));
});

function printedBy(said: string): string[] {
  return said.match(/^\d+ [0-9a-f]{64}$/gm) ?? [];
}
