/**
 * Kills an embedded store (-9) again and again while clients write, and compares what it has then with what they know:
 *
 *     npm run kills -- --count 1000 --seed 7
 *
 * Ends with 1 at the first violation, and prints the seed that it began with. What follows from the seed are the clients' choices
 * and the pauses; what a kill meets is as the machine has it.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { Seeded } from "../seeded.ts";
import { KillRun } from "./kill-run.ts";
import { StoreProcess } from "./store-process.ts";

const { values } = parseArgs({
  options: {
    count: { type: "string", default: "100" },
    seed: { type: "string" },
    minutes: { type: "string", default: "Infinity" },
  },
});
const count = Number(values.count);
const seed = Number(values.seed ?? Math.floor(Math.random() * 2 ** 31));
const endsAt = performance.now() + Number(values.minutes) * 60_000;
/** After this number of kills a new store begins. */
const perStore = 25;
const totals: Record<string, number> = {};
let wrong: readonly string[] = [];

for (let done = 0, store = 0; done < count && wrong.length === 0; store++) {
  const folder = await mkdtemp(join(tmpdir(), "watch-fanout-kills-"));
  const random = new Seeded(seed + store);
  const started = await StoreProcess.within(folder, random.fork());
  if (store === 0) {
    await started.start();
    await started.close();
  }
  const run = new KillRun(random, started);
  const before = done;
  try {
    await run.open();
    while (wrong.length === 0 && done < Math.min(count, before + perStore)) {
      wrong = await run.kill();
      done = before + run.totals.kills;
      if (performance.now() > endsAt) done = count;
    }
    if (wrong.length === 0) wrong = await run.expire();
  } finally {
    await run.close();
    if (wrong.length === 0) await rm(folder, { recursive: true });
  }
  for (const [name, number] of Object.entries(run.totals)) {
    totals[name] = (totals[name] ?? 0) + number;
  }
  process.stdout.write(`${new Date().toISOString()} ${JSON.stringify(totals)}\n`);
  for (const what of wrong.slice(0, 20)) process.stdout.write(`  ${what}\n`);
  if (wrong.length > 0) {
    process.stdout.write(`Seed ${seed}, store ${store}; its file is in ${folder}\n`);
    process.exitCode = 1;
  }
}
