/**
 * Benchmarks: `npm run bench` runs all of them, `npm run bench -- NAME` one. What is measured, and how, is
 * said in docs/benchmarks.md.
 */
import { arch, cpus } from "node:os";
import { parseArgs } from "node:util";
import { type Benchmark, Settings, UsageError } from "./benchmark.ts";
import { eventCost } from "./event-cost.ts";
import { fanout } from "./fanout.ts";
import { initialState } from "./initial-state.ts";
import { pages } from "./pages.ts";

const benchmarks: readonly Benchmark[] = [fanout, eventCost, initialState, pages];

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
  const wanted = positionals.length === 0 ? benchmarks : positionals.map(benchmarkNamed);
  const json = values.json === true;
  const say = (line: string): void => {
    if (!json) process.stdout.write(`${line}\n`);
  };
  const machine = `${cpus().length} × ${cpus()[0]?.model ?? arch()}, Node.js ${process.version}`;
  say(machine);
  const results: Record<string, object> = {};
  for (const benchmark of wanted) {
    say(`\n${benchmark.name}\n`);
    results[benchmark.name] = await benchmark.run(settingsOf(benchmark, values), say);
  }
  if (json) process.stdout.write(`${JSON.stringify({ machine, ...results }, null, 2)}\n`);
}

function benchmarkNamed(name: string): Benchmark {
  const found = benchmarks.find((benchmark) => benchmark.name === name);
  if (found !== undefined) return found;
  const names = benchmarks.map((benchmark) => benchmark.name).join(", ");
  throw new UsageError(`There is no benchmark ${name}. There are: ${names}.`);
}

function settingsOf({ options }: Benchmark, given: Readonly<Record<string, unknown>>): Settings {
  const texts = Object.entries(options).map(([name, otherwise]): [string, string] => [
    name,
    String(given[name] ?? otherwise),
  ]);
  return new Settings(new Map(texts));
}
