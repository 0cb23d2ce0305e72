import { hash } from "node:crypto";
import type { Choose, Model, State, Taken } from "./compile.ts";
import { type Fields, textOf } from "./values.ts";

/** What a search of a model's states has found. */
export interface Search {
  /** States that were visited, by a breadth-first search each once. */
  readonly states: number;
  /** Runs from the initial state; 1 for a breadth-first search. */
  readonly traces: number;
  /** The steps to the first state without the property; undefined: each state has it. */
  readonly counterexample: readonly Taken[] | undefined;
}

/** A search at random. */
export interface Sampling {
  readonly traces: number;
  /** Maximum number of steps of each. */
  readonly steps: number;
  readonly seed: number;
}

/** How often a step chooses again if what it has chosen is not enabled, or is rare. */
const maxAttempts = 500;

/**
 * What is not of the service: a random run takes it only once in `rarity` times that it could, so that the service gets
 * to do something in between.
 */
const rare: ReadonlySet<string> = new Set([
  ...["write", "remove", "writeElsewhere", "compact", "restore", "beginWrite"],
  ...["breakWatch", "crash", "trim", "disconnect", "refuseWrite", "loseResponse"],
]);
const rarity = 12;

/** Takes random steps from `init`, until a state does not have the property. The same seed takes the same steps. */
export function sample(
  model: Model,
  init: State,
  property: string,
  { traces, steps, seed }: Sampling,
): Search {
  const random = randomNumbers(seed);
  let states = 0;
  for (let trace = 1; trace <= traces; trace++) {
    let state = init;
    const taken: Taken[] = [];
    for (let step = 0; step < steps; step++) {
      const next = attempt(model, state, random);
      if (next === undefined) break;
      state = next;
      states++;
      if (model.taken !== undefined) taken.push(model.taken);
      if (!model.holds(state, property)) return { states, traces: trace, counterexample: taken };
    }
  }
  return { states, traces, counterexample: undefined };
}

function attempt(model: Model, state: State, random: () => number): State | undefined {
  const choose: Choose = (count) => Math.floor(random() * count);
  for (let i = 0; i < maxAttempts; i++) {
    const next = model.step(state, choose);
    if (next === undefined) continue;
    if (!rare.has(model.taken?.action ?? "") || random() * rarity < 1) return next;
  }
  return undefined;
}

/** How a state was first found: by a step from the state with the index `before`. */
interface Found {
  readonly before: number;
  readonly step: Taken | undefined;
}

/**
 * Visits every state that can be reached, in the order of its number of steps, so that a counterexample is as short as
 * any. States are distinguished by 120 bits of a hash.
 *
 * Throws an Error above `maxStates` states.
 */
export function exhaust(model: Model, init: State, property: string, maxStates: number): Search {
  const seen = new Set<string>([identityOf(init)]);
  const found: Found[] = [{ before: 0, step: undefined }];
  let level: { readonly state: State; readonly index: number }[] = [{ state: init, index: 0 }];
  for (let steps = 0; level.length > 0; steps++) {
    const following: typeof level = [];
    for (const { state, index } of level) {
      for (const { next, step } of successors(model, state)) {
        const isKept = model.holds(next, property);
        const identity = identityOf(next);
        if (isKept && seen.has(identity)) continue;
        seen.add(identity);
        const own = found.push({ before: index, step }) - 1;
        if (!isKept) return { states: seen.size, traces: 1, counterexample: pathTo(own, found) };
        if (seen.size > maxStates) {
          throw new Error(`There are more than ${maxStates} states, after ${steps} steps.`);
        }
        following.push({ state: next, index: own });
      }
    }
    level = following;
  }
  return { states: seen.size, traces: 1, counterexample: undefined };
}

function pathTo(last: number, found: readonly Found[]): Taken[] {
  const path: Taken[] = [];
  for (let at = last; at > 0; at = found[at]?.before ?? 0) {
    const { step } = found[at] ?? {};
    if (step !== undefined) path.unshift(step);
  }
  return path;
}

/** All steps from a state: takes the choices in the order of numbers, the last one first. */
export function* successors(
  model: Model,
  state: State,
): Generator<{ readonly next: State; readonly step: Taken | undefined }> {
  const choices: number[] = [];
  const counts: number[] = [];
  for (;;) {
    let depth = 0;
    const next = model.step(state, (count) => {
      counts[depth] = count;
      choices[depth] ??= 0;
      return choices[depth++] ?? 0;
    });
    if (next !== undefined) yield { next, step: model.taken };
    while (depth > 0 && (choices[depth - 1] ?? 0) + 1 >= (counts[depth - 1] ?? 0)) depth--;
    if (depth === 0) return;
    choices.length = depth;
    choices[depth - 1] = (choices[depth - 1] ?? 0) + 1;
  }
}

/**
 * Takes the steps of a trace. Returns the state after the last.
 *
 * @throws Error at a step that is not enabled
 */
export function follow(model: Model, init: State, steps: readonly Taken[]): State {
  return steps.reduce((state, { action, args }, i) => {
    const next = model.act(state, action, args);
    if (next === undefined) throw new Error(`Step ${i + 1}, ${action}, is not enabled.`);
    return next;
  }, init);
}

/** What was received last is only for the property, which has been checked, and has no effect on what follows. */
function identityOf({ world }: State): string {
  const { receipt: _, ...rest } = world as Fields;
  return hash("sha1", Object.values(rest).map(textOf).join(), "base64").slice(0, 20);
}

/** Numbers from 0 up to 1: mulberry32. */
function randomNumbers(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
