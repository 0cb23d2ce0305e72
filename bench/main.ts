/**
 * Runs benchmarks: `npm run bench` those of the table, `npm run bench -- NAME...` the named ones. docs/benchmarks.md
 * says what is measured and how.
 */
import { spawnSync } from "node:child_process";
import { arch, cpus } from "node:os";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { type Benchmark, type Row, Settings, UsageError } from "./benchmark.ts";
import { cacheMemory } from "./cache-memory.ts";
import { compress } from "./compress.ts";
import { embedded } from "./embedded.ts";
import { etcdClients } from "./etcd-clients.ts";
import { etcdFanout, etcdRelay } from "./etcd-fanout.ts";
import { eventCost } from "./event-cost.ts";
import { fanout } from "./fanout.ts";
import { firstMinute } from "./first-minute.ts";
import { flood } from "./flood.ts";
import { idleMemory } from "./idle-memory.ts";
import { informer } from "./informer.ts";
import { initialState } from "./initial-state.ts";
import { latency } from "./latency.ts";
import { leases } from "./leases.ts";
import { listCost } from "./list-cost.ts";
import { manyStreams } from "./many-streams.ts";
import { messages, messagesTls } from "./messages.ts";
import { million } from "./million.ts";
import { objectCache } from "./object-cache.ts";
import { pages } from "./pages.ts";
import { shards, views } from "./parts.ts";
import { policyCost } from "./policy-cost.ts";
import { portSharing } from "./port-sharing.ts";
import { reconnect } from "./reconnect.ts";
import { relayFailover } from "./relay-failover.ts";
import { relays } from "./relays.ts";
import { finalTable } from "./report.ts";
import { slowConsumers } from "./slow-consumers.ts";
import { start } from "./start.ts";
import { subscribe } from "./subscribe.ts";
import { telemetry } from "./telemetry.ts";
import { transact } from "./transact.ts";
import { upstreamCost } from "./upstream-cost.ts";
import { warmStart } from "./warm-start.ts";
import { workers } from "./workers.ts";
import { xds } from "./xds.ts";

const benchmarks: readonly Benchmark[] = [
  ...[fanout, upstreamCost, latency, listCost, reconnect, idleMemory, cacheMemory, eventCost],
  ...[
    messages,
    messagesTls,
    informer,
    manyStreams,
    slowConsumers,
    initialState,
    pages,
    start,
    firstMinute,
  ],
  ...[policyCost, telemetry, flood, workers, portSharing, relays, relayFailover, million],
  ...[etcdFanout, etcdRelay, etcdClients, views, shards, subscribe, objectCache, compress, xds],
  transact,
  leases,
  embedded,
  warmStart,
];

try {
  await main();
} catch (error) {
  if (!(error instanceof UsageError || error instanceof TypeError)) throw error;
  process.stderr.write(`${error.message}\n`);
  process.exit(2);
}

async function main(): Promise<void> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      json: { type: "boolean" },
      ...Object.fromEntries(
        benchmarks.flatMap(({ options }) =>
          Object.keys(options).map((name) => [name, { type: "string" } as const]),
        ),
      ),
    },
  });
  const wanted =
    positionals.length === 0
      ? benchmarks.filter(({ onlyByName }) => !onlyByName)
      : positionals.map(benchmarkNamed);
  // All options first, so that a mistake is reported before anything runs.
  const settings = new Map(wanted.map((benchmark) => [benchmark, settingsOf(benchmark, values)]));
  const json = values.json === true;
  const say = (line: string): void => {
    // The result goes to stdout, for scripts; progress goes to stderr.
    (json ? process.stderr : process.stdout).write(`${line}\n`);
  };
  const machine = `${cpus().length} × ${cpus()[0]?.model ?? arch()}, Node.js ${process.version}`;
  say(machine);
  build();
  const rows: Row[] = [];
  const results: Record<string, unknown> = {};
  for (const [benchmark, given] of settings) {
    say(`\n${benchmark.name}\n`);
    const started = performance.now();
    try {
      const outcome = await benchmark.run(given, say);
      rows.push(...outcome.rows);
      results[benchmark.name] = outcome.results;
    } catch (error) {
      // The other benchmarks still run.
      const failure = error instanceof Error ? (error.stack ?? error.message) : String(error);
      results[benchmark.name] = { failure };
      say(`\n${benchmark.name} failed: ${failure}`);
      process.exitCode = 1;
    }
    say(`  (${((performance.now() - started) / 1_000).toFixed(0)} s)`);
  }
  if (rows.length > 0) for (const line of ["", ...finalTable(rows)]) say(line);
  if (json) process.stdout.write(`${JSON.stringify({ machine, rows, ...results }, null, 2)}\n`);
}

/** Builds the service that is measured. Throws an Error if that fails. */
function build(): void {
  const script = fileURLToPath(new URL("../scripts/build.ts", import.meta.url));
  const cwd = fileURLToPath(new URL("..", import.meta.url));
  // Results alone go to stdout.
  const { status } = spawnSync(process.execPath, [script], { cwd, stdio: ["ignore", 2, 2] });
  if (status !== 0) throw new Error("The service could not be built.");
}

function benchmarkNamed(name: string): Benchmark {
  const found = benchmarks.find((benchmark) => benchmark.name === name);
  if (found !== undefined) return found;
  const names = benchmarks.map((benchmark) => benchmark.name).join(", ");
  throw new UsageError(`Unknown benchmark ${name}. The benchmarks are: ${names}.`);
}

function settingsOf({ options }: Benchmark, given: Readonly<Record<string, unknown>>): Settings {
  const texts = Object.entries(options).map(([name, otherwise]): [string, string] => [
    name,
    String(given[name] ?? otherwise),
  ]);
  const mayBeNone = Object.keys(options).filter((name) => options[name] === "0");
  return new Settings(new Map(texts), new Set(mayBeNone));
}
