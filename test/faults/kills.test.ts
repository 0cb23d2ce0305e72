import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { rounds } from "../thorough.ts";
import { KillRun } from "./kills/kill-run.ts";
import { StoreProcess } from "./kills/store-process.ts";
import { Seeded, seedOr } from "./seeded.ts";

test("An embedded store that is killed has every acknowledged write, whole, and its watchers resume", async () => {
  const folder = await mkdtemp(join(tmpdir(), "watch-fanout-kills-"));
  const random = new Seeded(seedOr(1));
  const run = new KillRun(random, await StoreProcess.within(folder, random.fork()));
  try {
    await run.open();
    for (let i = 0; i < rounds(4, 2); i++) expect(await run.kill()).toEqual([]);
    expect(await run.expire()).toEqual([]);
    expect(run.totals.acknowledged).toBeGreaterThan(rounds(20, 10));
    expect(run.totals.events).toBeGreaterThan(rounds(50, 25));
  } finally {
    await run.close();
    await rm(folder, { recursive: true });
  }
});
