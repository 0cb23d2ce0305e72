import { execFileSync } from "node:child_process";
import { globSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { execPath } from "node:process";
import { fileURLToPath } from "node:url";
import { beforeAll, describe, expect, test } from "vitest";
import { Model, type State } from "../../scripts/model/compile.ts";
import { smallModels, smallSearches } from "../../scripts/model/coordination.ts";
import { exhaust, follow, successors } from "../../scripts/model/explore.ts";
import { readItf } from "../../scripts/model/itf.ts";
import {
  everyGuarantee,
  histories,
  maxStates,
  modelFile,
  rules,
  sampleDesign,
  sampleWithout,
  standard,
  start,
} from "../../scripts/model/list-watch.ts";
import { textOf } from "../../scripts/model/values.ts";
import { isThorough, rounds } from "../thorough.ts";

/** The steps of one run of Quint's own simulator. */
function simulated(steps: number, seed: number): readonly State[] {
  const folder = mkdtempSync(join(tmpdir(), "watch-fanout-model-"));
  const out = join(folder, "trace.itf.json");
  const cli = fileURLToPath(import.meta.resolve("@informalsystems/quint/dist/src/cli.js"));
  const run = ["run", modelFile, "--backend=typescript", "--max-samples=1"];
  try {
    execFileSync(
      execPath,
      [cli, ...run, `--max-steps=${steps}`, `--seed=${seed}`, `--out-itf=${out}`],
      { stdio: "ignore" },
    );
    return readItf(out);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** All variables of a state, in one order. */
function identityOf(state: State): string {
  return Object.entries(state)
    .map(([name, value]) => `${name}=${textOf(value)}`)
    .sort()
    .join();
}

describe("The model of docs/model", () => {
  let model: Model;

  beforeAll(() => {
    model = new Model(modelFile);
  });

  test("keeps every guarantee in random runs", () => {
    const runs = rounds(1_000, 200);
    const { traces, states, counterexample } = sampleDesign(model, runs, 1);
    expect(counterexample).toBeUndefined();
    expect(traces).toBe(runs);
    expect(states).toBeGreaterThan(50 * runs);
  });

  test.each([
    "a bookmark follows the events below it",
    "a relist sends LATEST_STATE the difference",
    "a resumed watch is confirmed",
    "previous is the object before the batch",
    "a write is sent once",
  ])("loses a guarantee without the rule: %s", (rule) => {
    const { counterexample = [] } = sampleWithout(model, rule, 500, 1);
    const last = follow(model, start(model, standard, [rule]), counterexample);
    expect(model.holds(last, rules[rule]?.guarantee ?? "")).toBe(false);
    const before = follow(model, start(model, standard, [rule]), counterexample.slice(0, -1));
    expect(model.holds(before, rules[rule]?.guarantee ?? "")).toBe(true);
  });

  test("keeps every guarantee in all states of the history of a key, and loses one without its rules", () => {
    const began = start(model, histories);
    const { states, counterexample } = exhaust(model, began, everyGuarantee, maxStates);
    expect(counterexample).toBeUndefined();
    expect(states).toBeGreaterThan(4_000);
    const own = Object.entries(rules).filter(([, { guarantee }]) => guarantee === "Complete");
    expect(own).toHaveLength(3);
    for (const [rule] of own) {
      const { counterexample: steps = [] } = sampleWithout(model, rule, 1, 1);
      const last = follow(model, start(model, histories, [rule]), steps);
      expect(model.holds(last, "Complete"), rule).toBe(false);
    }
  });

  test("has no other rules than those that the script leaves out", () => {
    const text = globSync("docs/model/*.qnt")
      .map((file) => readFileSync(file, "utf8"))
      .join("\n");
    const used = [...text.matchAll(/\bo(?:n|ff)\("([^"]+)"\)/g)].map(([, rule = ""]) => rule);
    const ofSmall = Object.values(smallModels).flatMap((small) => Object.keys(small.rules));
    const known = new Set([...Object.keys(rules), ...ofSmall]);
    expect([...new Set(used)].sort()).toEqual([...known].sort());
  });

  test.runIf(isThorough)("takes the steps that Quint's own simulator takes", () => {
    const states = simulated(20, 3);
    expect(states).toHaveLength(21);
    expect(identityOf(states[0] ?? {})).toBe(identityOf(start(model, standard)));
    for (const [i, state] of states.slice(1).entries()) {
      const following = [...successors(model, states[i] ?? {})];
      expect(following.map(({ next }) => identityOf(next))).toContain(identityOf(state));
    }
  });
});

test("All states of leases, locks, shards, request ids and restarts keep every guarantee, and lose one without each rule", () => {
  const sizes: number[] = [];
  for (const { name, property, holds, search } of smallSearches()) {
    const { states, counterexample } = search();
    expect(counterexample === undefined, `${name}: ${property}`).toBe(holds);
    if (holds) sizes.push(states);
  }
  expect(sizes).toHaveLength(Object.keys(smallModels).length);
  expect(Math.min(...sizes)).toBeGreaterThan(300);
});
