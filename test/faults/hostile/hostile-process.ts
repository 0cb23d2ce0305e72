import { setPriority } from "node:os";
import { Seeded } from "../seeded.ts";
import { AttackSession, type Target } from "./attack.ts";
import { attacks } from "./attacks.ts";
import { CpuBudget } from "./cpu-budget.ts";
import { Responses } from "./responses.ts";
import { serveParent } from "./worker-process.ts";

/** How long an attack may take to get under way before it is given up, in milliseconds. */
const attackLimitMs = 120_000;
/** The lowest: every other process runs first. */
const niceness = 19;

/** The parameters of one attack. */
export interface AttackOrder {
  readonly id: number;
  readonly name: string;
  readonly target: Target;
  readonly seed: number;
}

interface Running {
  readonly session: AttackSession;
  readonly stop: AbortController;
  readonly done: Promise<void>;
}

const running = new Map<number, Running>();
let budget = new CpuBudget(1);

/** Resolves when all of it has been sent, or its server has had enough of it. */
async function attack({ id, name, target, seed }: AttackOrder): Promise<void> {
  const known = attacks[name];
  if (known === undefined) throw new Error(`There is no attack ${name}.`);
  const stop = new AbortController();
  const signal = AbortSignal.any([stop.signal, AbortSignal.timeout(attackLimitMs)]);
  const session = new AttackSession(target, new Seeded(seed), signal, new Responses(), budget);
  const done = known.run(session).catch((error: unknown) => {
    if (stop.signal.aborted) return;
    if (!signal.aborted) throw error;
    session.responses.count(`not done after ${attackLimitMs / 1_000} s`);
  });
  running.set(id, { session, stop, done });
  await done;
}

/** Leaves without a word, and returns what the responses were. */
async function release(id: number): Promise<object> {
  const attack = running.get(id);
  if (attack === undefined) throw new Error(`There is no attack ${id} to release.`);
  running.delete(id);
  attack.stop.abort();
  await attack.done.catch(() => {});
  return attack.session.end();
}

serveParent({
  attack,
  release,
  /** `share` of one core that attacks may spend from now on. */
  budget: async (share: number) => {
    setPriority(niceness);
    budget = new CpuBudget(share);
  },
});
