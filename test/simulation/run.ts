import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { realTime } from "./runtime.ts";
import { type Scenario, scenarioOf } from "./scenario.ts";
import { type Failure, guaranteeOf, shrink } from "./shrink.ts";
import { type Outcome, simulate } from "./simulate.ts";
import { TraceRecorder } from "./trace-recorder.ts";

const usage = `npm run simulate -- [options]: simulates the whole system, one seed after the other

  --seed N         the first seed. Default: any
  --seeds M        how many. Default: until --minutes have passed
  --minutes T      for how long. Default: 1, or without end with --seeds
  --repeat K       runs each seed so often, and fails unless all runs of it are equal. Default: 1
  --scenario FILE  runs the scenario in the file, as a failure has written it
  --record FOLDER  writes a trace of each watcher, for npm run model -- --trace
  --log            prints all that happens, the services' log included
  --print          prints the fingerprint of each seed
  --no-shrink      prints a failure as it is
  --keep-going     continues behind a failure
`;

/** How long a failure is shrunk at most, in milliseconds. */
const shrinkMs = 120_000;

const folder = ".cache/simulation";

const { values } = parseArgs({
  options: {
    seed: { type: "string" },
    seeds: { type: "string" },
    minutes: { type: "string" },
    repeat: { type: "string", default: "1" },
    scenario: { type: "string" },
    record: { type: "string" },
    log: { type: "boolean", default: false },
    print: { type: "boolean", default: false },
    shrink: { type: "boolean", default: true },
    "keep-going": { type: "boolean", default: false },
    help: { type: "boolean", default: false },
  },
  allowNegative: true,
});

/** Everything that was simulated so far. */
const totals = { seeds: 0, simulatedMs: 0, events: 0, failures: 0 };
const interleavings = new Set<string>();
const began = realTime.now();
let reportedAt = began;

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

function report(): void {
  const seconds = (realTime.now() - began) / 1_000;
  const { seeds, simulatedMs, events, failures } = totals;
  const simulated = Math.round(simulatedMs / 1_000);
  const cpuSeconds = realTime.cpuMs() / 1_000;
  const rates = [simulatedMs / 1_000 / cpuSeconds, interleavings.size / cpuSeconds];
  const [faster, different] = rates.map((rate) => rate.toFixed(1));
  say(
    `${seconds.toFixed(0)} s: ${seeds} seeds, ${simulated} simulated seconds, ${events} events, ` +
      `${interleavings.size} interleavings, ${failures} failures; ` +
      `per CPU second ${faster} simulated seconds, ${different} interleavings`,
  );
}

function takeDown({ simulatedMs, events, fingerprint }: Outcome): void {
  totals.seeds++;
  totals.simulatedMs += simulatedMs;
  totals.events += events;
  interleavings.add(fingerprint.slice(0, 16));
  const now = realTime.now();
  if (now - reportedAt < 1_000) return;
  reportedAt = now;
  if (!(values.log || values.print)) report();
}

async function run(scenario: Scenario, repeats: number): Promise<boolean> {
  const recorder = values.record === undefined ? undefined : new TraceRecorder();
  const options = { recorder, ...(values.log && { log: say, logLevel: "debug" }) };
  let first: Outcome | undefined;
  for (let i = 0; i < repeats; i++) {
    const outcome = await simulate(scenario, options);
    takeDown(outcome);
    first ??= outcome;
    if (outcome.fingerprint === first.fingerprint) continue;
    say(
      `Seed ${scenario.seed} differs from run to run: ${outcome.fingerprint} and ${first.fingerprint}`,
    );
    return false;
  }
  if (repeats > 1) say(`Seed ${scenario.seed}: all ${repeats} runs are equal, to the event`);
  if (first === undefined) return true;
  // The model has no workers, and no relays that follow etcd's API.
  const { workers, tiers, relaysEtcdApi } = scenario;
  const isModelled = workers === 0 && (tiers.length === 0 || !relaysEtcdApi);
  if (recorder !== undefined && isModelled) write(recorder, scenario.seed, values.record ?? "");
  if (values.print) say(`${scenario.seed} ${first.fingerprint}`);
  if (first.wrong.length === 0) return true;
  await explain({ scenario, outcome: first });
  return false;
}

function write(recorder: TraceRecorder, seed: number, to: string): void {
  mkdirSync(to, { recursive: true });
  for (const [i, trace] of recorder.traces(`seed ${seed}`).entries()) {
    const lines = trace.steps.map((step) => `    ${JSON.stringify(step)}`);
    const head = JSON.stringify({ ...trace, steps: [] }).replace(/\]\}$/, "");
    writeFileSync(join(to, `${seed}-${i}.json`), `${head}\n${lines.join(",\n")}\n]}\n`);
  }
}

async function explain(failure: Failure): Promise<void> {
  const { seed } = failure.scenario;
  say(`\nSeed ${seed} violates ${guaranteeOf(failure.outcome.wrong[0] ?? "")}:`);
  for (const wrong of failure.outcome.wrong.slice(0, 10)) say(`  ${wrong}`);
  say(`Replay: npm run simulate -- --seed ${seed} --seeds 1 --log`);
  if (!values.shrink) return;
  const endsAt = realTime.now() + shrinkMs;
  const { scenario, outcome } = await shrink(failure, () => realTime.now() < endsAt);
  mkdirSync(folder, { recursive: true });
  const file = join(folder, `seed-${seed}.json`);
  writeFileSync(file, `${JSON.stringify(scenario, undefined, 2)}\n`);
  const { members, roots, workers, tiers, watchers, faults } = scenario;
  say(
    `The least that violates it: ${members.length} members, ${roots} roots with ${workers} workers each, relays ${JSON.stringify(tiers)}, ` +
      `watchers ${JSON.stringify(watchers)}, ${faults.length} faults, ${outcome.events} events`,
  );
  for (const { kind, atMs, forMs } of faults) {
    say(`  at ${atMs.toFixed(0)} ms for ${forMs.toFixed(0)} ms: ${kind}`);
  }
  for (const wrong of outcome.wrong.slice(0, 10)) say(`  ${wrong}`);
  say(`Replay: npm run simulate -- --scenario ${file} --log\n`);
}

async function main(): Promise<number> {
  if (values.help) {
    process.stdout.write(usage);
    return 0;
  }
  const repeats = Number(values.repeat);
  if (values.scenario !== undefined) {
    const scenario = JSON.parse(readFileSync(values.scenario, "utf8")) as Scenario;
    return (await run(scenario, repeats)) ? 0 : 1;
  }
  const seeds = values.seeds === undefined ? Infinity : Number(values.seeds);
  const minutes = Number(values.minutes ?? (values.seeds === undefined ? "1" : "Infinity"));
  const from = Number(values.seed ?? Math.floor(Math.random() * 2 ** 31));
  for (let i = 0; i < seeds && realTime.now() - began < minutes * 60_000; i++) {
    if (await run(scenarioOf(from + i), repeats)) continue;
    totals.failures++;
    if (!values["keep-going"]) break;
  }
  report();
  return totals.failures === 0 ? 0 : 1;
}

const code = await main();
// Does not wait for what a failed simulation has left.
process.stdout.write("", () => process.exit(code));
