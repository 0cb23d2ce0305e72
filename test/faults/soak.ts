/**
 * Random load and random faults for as long as one likes, under all checkers:
 *
 *     npm run soak -- --minutes 30 --seed 7 --json report.json
 *
 * Ends with 1 as soon as a promise was broken, and prints the seed that it began with. The order of faults
 * follows from the seed; what they meet is as the machine has it.
 *
 * With `--tiers 2,1` clients hop between the replicas, two relays of them, and a relay of these.
 *
 * A hostile client attacks one replica at random beside the faults, and between them, when phases with and without
 * it are compared: docs/guarantees.md says how. That needs Linux. Without it: `--no-hostile`.
 */
import { writeFile } from "node:fs/promises";
import { parseArgs } from "node:util";
import { etcdBinaries } from "../../scripts/etcd.ts";
import { ChildReplica } from "./child-replica.ts";
import { faultCatalogue } from "./fault-catalogue.ts";
import type { Bulk } from "./hostile/attack.ts";
import { bulkPrefix, decoyBulkPrefix, fillBulk } from "./hostile/bulk.ts";
import { brokenRules } from "./hostile/phase-verdict.ts";
import { Phases } from "./hostile/phases.ts";
import type { ProcessReport } from "./process-report.ts";
import { Seeded } from "./seeded.ts";
import { growth, inWords, type SoakReport } from "./soak-report.ts";
import { prefix, World } from "./world.ts";

/** After this number of faults all are ended, and the checkers look at what was delivered. */
const faultsPerVerdict = 15;

const weights = Object.fromEntries(
  Object.entries(faultCatalogue).map(([name, { weight }]) => [name, weight]),
);

/** The totals of clients that forget their records. */
interface Counts {
  writes: number;
  readonly faults: Record<string, number>;
  readonly violations: string[];
  readonly process: ProcessReport[];
  verdicts: number;
}

/** How many events each replica keeps: with phases that last, enough for a slow client to be caught up. */
const historyEvents = { withoutPhases: 2_000, withPhases: 20_000 };

async function soak(
  minutes: number,
  seed: number,
  isHostile: boolean,
  tiers: readonly number[],
): Promise<SoakReport> {
  const { version } = await etcdBinaries();
  const counts: Counts = { writes: 0, faults: {}, violations: [], process: [], verdicts: 0 };
  const schedule = new Seeded(seed);
  let bulk: Bulk | undefined;
  let decoyBulk: Bulk | undefined;
  const world = await World.open(schedule.fork().seed, {
    // Attacks write much, and space that was compacted is won back late.
    cluster: { size: 3, quotaBytes: 8 * 1024 ** 3 },
    ...{ replicas: 0, children: 3, tiers },
    replica: isHostile
      ? { historyEvents: historyEvents.withPhases, bulkPrefix }
      : { historyEvents: historyEvents.withoutPhases },
    prepare: async (cluster) => {
      if (!isHostile) return;
      bulk = await fillBulk(cluster, bulkPrefix);
      decoyBulk = await fillBulk(cluster, decoyBulkPrefix);
    },
    // A restarted replica has no more history than etcd has.
    reasons: ["REVISION_TOO_OLD"],
  });
  const phases =
    bulk === undefined || decoyBulk === undefined
      ? undefined
      : await phasesOf(world, bulk, decoyBulk, schedule.fork());
  const end = performance.now() + minutes * 60_000;
  try {
    while (performance.now() < end && counts.violations.length === 0) {
      phases?.attack();
      for (let i = 0; i < faultsPerVerdict; i++) await oneFault(world, schedule, counts);
      await phases?.calm();
      await verdict(world, counts);
      if (phases === undefined || counts.violations.length > 0) continue;
      await phases.measureAll();
      counts.violations.push(...phases.violations.splice(0));
      await verdict(world, counts);
    }
    counts.violations.push(...growth(counts.process), ...brokenRules(phases?.report.phases ?? []));
  } catch (error) {
    counts.violations.push(`Harness: ${error instanceof Error ? error.stack : String(error)}`);
  }
  const report: SoakReport = {
    command: `npm run soak -- --minutes ${minutes} --seed ${seed}${isHostile ? "" : " --no-hostile"}${tiers.length === 0 ? "" : ` --tiers ${tiers}`}`,
    ...{ seed, minutes, etcd: version },
    ...counts,
    writes: world.writes.count,
    reads: world.reader.completed,
    eventsDelivered: world.watchers.reduce((sum, { events }) => sum + events, 0),
    streamsResumed: world.watchers.reduce((sum, { resumed }) => sum + resumed, 0),
    hostile: phases?.report,
  };
  await phases?.close();
  await world.close();
  return report;
}

/** Attacks go to the replica that is never killed, or to a decoy with its configuration and connections to etcd. */
async function phasesOf(
  world: World,
  bulk: Bulk,
  decoyBulk: Bulk,
  random: Seeded,
): Promise<Phases> {
  const [lasting, ...others] = world.children;
  if (lasting === undefined) throw new Error("There is no replica to attack.");
  const decoy = await ChildReplica.create(
    {
      ...{ name: "decoy", prefix, etcd: [], bulkPrefix: decoyBulkPrefix },
      historyEvents: historyEvents.withPhases,
    },
    lasting.upstream,
  );
  await decoy.start();
  const setting = {
    ...{ cluster: world.cluster, others },
    measured: { replica: lasting, bulk },
    decoy: { replica: decoy, bulk: decoyBulk },
  };
  return Phases.at(setting, random);
}

async function oneFault(world: World, schedule: Seeded, { faults }: Counts): Promise<void> {
  const name = schedule.pickWeighted(weights);
  const fault = faultCatalogue[name]?.fault;
  if (fault === undefined) throw new Error(`There is no fault ${name}.`);
  const isReal = await fault(world).catch((error: unknown) => {
    throw new Error(`While ${name}: ${error instanceof Error ? error.message : error}`, {
      cause: error,
    });
  });
  if (isReal) faults[name] = (faults[name] ?? 0) + 1;
}

async function verdict(world: World, counts: Counts): Promise<void> {
  counts.violations.push(...(await world.wrong()));
  counts.verdicts++;
  const [lasting] = world.children;
  if (lasting !== undefined) counts.process.push(await lasting.report());
  world.forget();
  world.goOn();
  const total = Object.values(counts.faults).reduce((sum, count) => sum + count, 0);
  process.stderr.write(
    `${counts.verdicts} verdicts, ${total} faults, ${world.writes.count} writes\n`,
  );
}

const { values } = parseArgs({
  options: {
    minutes: { type: "string", default: "30" },
    seed: { type: "string" },
    json: { type: "string" },
    hostile: { type: "boolean", default: true },
    tiers: { type: "string", default: "" },
  },
  allowNegative: true,
});
const seed = values.seed === undefined ? Math.floor(Math.random() * 2 ** 31) : Number(values.seed);
process.stderr.write(`seed ${seed}\n`);
const tiers = values.tiers.split(",").filter(Boolean).map(Number);
const report = await soak(Number(values.minutes), seed, values.hostile, tiers);
if (values.json !== undefined) await writeFile(values.json, JSON.stringify(report, undefined, 2));
// Does not wait for connections that killed processes have left.
process.stdout.write(inWords(report), () => process.exit(report.violations.length === 0 ? 0 : 1));
