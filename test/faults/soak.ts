/**
 * Random load and random faults for as long as one likes, under all checkers:
 *
 *     npm run soak -- --minutes 30 --seed 7 --json report.json
 *
 * Ends with 1 as soon as a promise was broken, and prints the seed that it began with. The order of faults
 * follows from the seed; what they meet is as the machine has it.
 *
 * With `--tiers 3` clients hop between the replicas, two relays of them, and a relay of these: three tiers. `--tiers 2,1`
 * is the same, by the number of relays in each tier. With `--workers 2` all replicas but the first, which the report is
 * about, have two workers each.
 *
 * `--fault NAME` makes only this fault, and may be given several times.
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

/** What a soak has besides its length and seed. */
interface SoakTerms {
  readonly isHostile: boolean;
  /** The number of relays in each tier below the replicas. */
  readonly tiers: readonly number[];
  /** The number of workers of each replica but the first. */
  readonly workers: number;
  /** How often each fault comes, relative to the others. */
  readonly weights: Readonly<Record<string, number>>;
  /** How it was started, for the report. */
  readonly command: string;
}

async function soak(
  minutes: number,
  seed: number,
  { isHostile, tiers, workers, weights, command }: SoakTerms,
): Promise<SoakReport> {
  const { version } = await etcdBinaries();
  const counts: Counts = { writes: 0, faults: {}, violations: [], process: [], verdicts: 0 };
  const schedule = new Seeded(seed);
  let bulk: Bulk | undefined;
  let decoyBulk: Bulk | undefined;
  const world = await World.open(schedule.fork().seed, {
    // Attacks write much, and space that was compacted is won back late.
    cluster: { size: 3, quotaBytes: 8 * 1024 ** 3 },
    ...{ replicas: 0, children: 3, workers: [1, workers, workers], tiers },
    ...{ writePauseMs: 15, readPauseMs: 40 },
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
      for (let i = 0; i < faultsPerVerdict; i++) await oneFault(world, schedule, weights, counts);
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
    ...{ command, seed, minutes, etcd: version },
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

async function oneFault(
  world: World,
  schedule: Seeded,
  weights: Readonly<Record<string, number>>,
  { faults }: Counts,
): Promise<void> {
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

/** A single number is that of all tiers, the replicas included; several are the relays of each tier below them. */
function relaysOf(tiers: string): readonly number[] {
  const counts = tiers.split(",").filter(Boolean).map(wholeNumber);
  const [depth = 1] = counts;
  if (counts.length > 1) return counts;
  return Array.from({ length: depth - 1 }, (_, tier) => (tier > 0 && tier === depth - 2 ? 1 : 2));
}

function wholeNumber(text: string): number {
  const value = Number(text);
  if (Number.isSafeInteger(value) && value > 0) return value;
  throw new TypeError(`${JSON.stringify(text)} is not a whole number above 0.`);
}

/** All faults, or only these. Throws a TypeError for an unknown one. */
function weightsOf(only: readonly string[]): Record<string, number> {
  const unknown = only.filter((name) => !(name in faultCatalogue));
  if (unknown.length > 0) throw new TypeError(`--fault: there is no ${unknown.join(" and no ")}.`);
  const chosen = Object.entries(faultCatalogue).filter(
    ([name]) => only.length === 0 || only.includes(name),
  );
  return Object.fromEntries(chosen.map(([name, { weight }]) => [name, weight]));
}

const args = process.argv.slice(2);
const { values } = parseArgs({
  args,
  options: {
    minutes: { type: "string", default: "30" },
    seed: { type: "string" },
    json: { type: "string" },
    hostile: { type: "boolean", default: true },
    tiers: { type: "string", default: "" },
    workers: { type: "string", default: "1" },
    fault: { type: "string", multiple: true, default: [] },
  },
  allowNegative: true,
});
const seed = values.seed === undefined ? Math.floor(Math.random() * 2 ** 31) : Number(values.seed);
process.stderr.write(`seed ${seed}\n`);
const seeded = values.seed === undefined ? [...args, "--seed", String(seed)] : args;
const report = await soak(Number(values.minutes), seed, {
  isHostile: values.hostile,
  tiers: relaysOf(values.tiers),
  workers: wholeNumber(values.workers),
  weights: weightsOf(values.fault),
  command: `npm run soak -- ${seeded.map((arg) => (arg.includes(" ") ? `"${arg}"` : arg)).join(" ")}`,
});
if (values.json !== undefined) await writeFile(values.json, JSON.stringify(report, undefined, 2));
// Does not wait for connections that killed processes have left.
process.stdout.write(inWords(report), () => process.exit(report.violations.length === 0 ? 0 : 1));
