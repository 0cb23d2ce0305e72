import { spawn } from "node:child_process";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import { expect, test } from "vitest";

/** A process of its own for each: its time, network and random numbers are replaced. */
async function simulate(...options: readonly string[]): Promise<{ code: number; said: string }> {
  const path = new URL("run.ts", import.meta.url).pathname;
  const args = ["--disable-warning=ExperimentalWarning", path, ...options];
  const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
  const [said, [code]] = await Promise.all([text(child.stdout), once(child, "close")]);
  return { code: Number(code), said };
}

const timeout = 300_000;

test("Clients of roots and relays get what is promised, whatever the seed does", {
  timeout,
}, async () => {
  const { code, said } = await simulate("--seed", "1", "--seeds", "6", "--no-shrink");
  expect(code, said).toBe(0);
});

test("A seed decides everything that happens, to the byte", { timeout }, async () => {
  const options = ["--seed", "4", "--seeds", "3", "--print"];
  const [one, other] = [await simulate(...options), await simulate(...options)];
  expect(one.said.match(/^\d+ [0-9a-f]{64}$/gm)).toHaveLength(3);
  expect(printedBy(one.said)).toEqual(printedBy(other.said));
  // Nothing is left of the seed before.
  const alone = await simulate("--seed", "6", "--seeds", "1", "--print");
  expect(printedBy(alone.said)).toEqual(printedBy(one.said).slice(-1));
});

function printedBy(said: string): string[] {
  return said.match(/^\d+ [0-9a-f]{64}$/gm) ?? [];
}
