import { spawn } from "node:child_process";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import { beforeAll, expect, test } from "vitest";
import { compileCache } from "../compile-cache.ts";
import { isThorough, rounds } from "../thorough.ts";

/** A process of its own for each: its time, network and random numbers are replaced. */
async function simulate(...options: readonly string[]): Promise<{ code: number; said: string }> {
  const path = new URL("run.ts", import.meta.url).pathname;
  const args = ["--disable-warning=ExperimentalWarning", path, ...options];
  const env = { ...process.env, ...compileCache };
  const child = spawn(process.execPath, args, { env, stdio: ["ignore", "pipe", "inherit"] });
  const [said, [code]] = await Promise.all([text(child.stdout), once(child, "close")]);
  return { code: Number(code), said };
}

/** Ends what hangs: on a busy machine a seed takes many times as long. */
const timeout = 900_000;

/**
 * The first seeds, one with workers whose etcd is restored, and some with what was added later: clients of Subscribe and of
 * parts; watches from before the window; clients of ranges and histories; clients of transactions, locks and elections; the
 * embedded store on its disk; replicas that keep their caches.
 */
const ranges = [
  [1, rounds(4, 1)],
  [25, 1],
  [10_003, rounds(2, 1)],
  [20_007, 1],
  [60_000, 1],
  [110_000, 1],
  [120_003, 2],
  [120_410, 1],
  [130_035, 1],
] as const;

const simulated: Awaited<ReturnType<typeof simulate>>[] = [];
beforeAll(async () => {
  for (const [seed, seeds] of ranges) {
    simulated.push(
      await simulate("--seed", `${seed}`, "--seeds", `${seeds}`, "--no-shrink", "--print"),
    );
  }
}, timeout);

test("Clients of roots and relays get what is promised, whatever the seed does", () => {
  for (const { code, said } of simulated) expect(code, said).toBe(0);
});

// Nothing is left of the seeds before: this process has not run them.
test("A seed decides everything that happens, to the byte", { timeout }, async () => {
  const repeated = isThorough ? ranges : ranges.slice(0, 1);
  for (const [i, [seed, seeds]] of repeated.entries()) {
    const before = printedBy(simulated[i]?.said ?? "");
    expect(before).toHaveLength(seeds);
    const last = await simulate("--seed", `${seed + seeds - 1}`, "--seeds", "1", "--print");
    expect(printedBy(last.said)).toEqual(before.slice(-1));
  }
});

function printedBy(said: string): string[] {
  return said.match(/^\d+ [0-9a-f]{64}$/gm) ?? [];
}
