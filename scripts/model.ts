/**
 * Checks the model of docs/model: `npm run model`. In random runs no guarantee falls, and without each of the rules the
 * guarantee that rests on it does. The small models of leases, locks, shards and request ids are always exhausted.
 *
 * `--exhaustive` visits every state of small models instead. `--without RULE` prints the steps after which the guarantee
 * of that rule falls. `--trace FILE` follows a trace of the simulation. `--traces N` and `--seed N` are of random runs.
 */
import { readFileSync } from "node:fs";
import { argv, stdout } from "node:process";
import { parseArgs } from "node:util";
import { Model, type Taken } from "./model/compile.ts";
import { smallSearches } from "./model/coordination.ts";
import { exhaust, type Search } from "./model/explore.ts";
import { followTrace, modelOfTraces } from "./model/follow.ts";
import {
  everyGuarantee,
  exhaustible,
  maxStates,
  modelFile,
  rules,
  sampleDesign,
  sampleWithout,
  start,
} from "./model/list-watch.ts";
import type { Trace } from "./model/trace.ts";
import { QuintSet, textOf } from "./model/values.ts";

const { values: options } = parseArgs({
  args: argv.slice(2),
  options: {
    exhaustive: { type: "boolean", default: false },
    without: { type: "string" },
    trace: { type: "string", multiple: true, default: [] },
    traces: { type: "string", default: "5000" },
    seed: { type: "string", default: "1" },
  },
});
const [traces, seed] = [Number(options.traces), Number(options.seed)];
const model = new Model(modelFile);

if (options.trace.length > 0) followAll(options.trace);
else if (options.exhaustive) visitAll();
else if (options.without !== undefined)
  explain(sampleWithout(model, options.without, traces, seed));
else sampleAll();

function followAll(files: readonly string[]): void {
  const larger = new Map<number, Model>();
  for (const file of files) {
    const trace = JSON.parse(readFileSync(file, "utf8")) as Trace;
    const keys = trace.keys.length;
    const own = larger.get(keys) ?? modelOfTraces(keys);
    larger.set(keys, own);
    const followed = followTrace(own, trace);
    const { name, steps } = trace;
    if (followed.isBehaviour) {
      stdout.write(`${steps.length} steps, ${followed.taken} of the model: ${name}\n`);
      continue;
    }
    const { at, step, why } = followed;
    fail(`Not a behaviour of the model: ${name}\n  step ${at}: ${JSON.stringify(step)}: ${why}`);
  }
}

function sampleAll(): void {
  const design = report("the whole design", everyGuarantee, () =>
    sampleDesign(model, traces, seed),
  );
  if (design.counterexample !== undefined) {
    explain(design);
    fail("A guarantee falls, although no rule is left out.");
  }
  for (const [rule, { guarantee }] of Object.entries(rules)) {
    const { counterexample } = report(rule, guarantee, () =>
      sampleWithout(model, rule, traces, seed),
    );
    if (counterexample === undefined) fail(`${guarantee} does not fall without "${rule}".`);
  }
  for (const { name, property, holds, search } of smallSearches()) {
    const result = report(name, property, search);
    if ((result.counterexample === undefined) === holds) continue;
    explain(result);
    fail(holds ? "A guarantee falls, although no rule is left out." : `${property} does not fall.`);
  }
}

function visitAll(): void {
  for (const [name, bounds] of Object.entries(exhaustible)) {
    const search = report(name, everyGuarantee, () =>
      exhaust(model, start(model, bounds), everyGuarantee, maxStates),
    );
    if (search.counterexample === undefined) continue;
    explain(search);
    fail("A guarantee falls, although no rule is left out.");
  }
}

function report(name: string, property: string, search: () => Search): Search {
  const began = performance.now();
  const result = search();
  const seconds = ((performance.now() - began) / 1000).toFixed(1);
  const { states, traces: runs, counterexample } = result;
  const outcome =
    counterexample === undefined ? "holds" : `falls after ${counterexample.length} steps`;
  const size = `${runs} runs, ${states} states, ${seconds} s`;
  stdout.write(`${property.padEnd(14)} ${outcome.padEnd(21)} ${size.padEnd(36)} ${name}\n`);
  return result;
}

function explain({ counterexample }: Search): void {
  for (const step of counterexample ?? []) stdout.write(`  ${textOfStep(step)}\n`);
}

/** As Quint writes it: a run is these with `then` between them. */
function textOfStep({ action, args }: Taken): string {
  if (args.length === 0) return action;
  const texts = args.map((arg) =>
    arg instanceof QuintSet ? `Set(${[...arg.byId.values()].map(textOf).join(", ")})` : textOf(arg),
  );
  return `${action}(${texts.join(", ")})`;
}

function fail(text: string): void {
  stdout.write(`${text}\n`);
  process.exitCode = 1;
}
