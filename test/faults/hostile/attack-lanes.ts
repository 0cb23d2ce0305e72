import { setTimeout as delay } from "node:timers/promises";
import type { Seeded } from "../seeded.ts";
import type { Target } from "./attack.ts";
import { attacks } from "./attacks.ts";
import type { Attacking, HostileClient } from "./hostile-client.ts";
import { addResponses, type ResponseCounts } from "./responses.ts";

/** How many attacks there are at once, and how long one holds what it has opened, in milliseconds at most. */
const atOnce = 3;
const longestHoldMs = 2_000;

const weights = Object.fromEntries(
  Object.entries(attacks).map(([name, { weight }]) => [name, weight]),
);

/** When an attack was under way, in milliseconds since the epoch. */
export interface AttackSpan {
  readonly name: string;
  readonly from: number;
  readonly to: number;
}

/** Totals of the attacks on one target. */
export interface AttackCounts {
  /** How often each attack was begun. */
  readonly attacks: Readonly<Record<string, number>>;
  /** The responses to each. */
  readonly responses: Readonly<Record<string, ResponseCounts>>;
}

/** Attacks one target at random, with a few attacks at once. */
export class AttackLanes {
  readonly #hostile: HostileClient;
  readonly #target: () => Target;
  readonly #attacks: Record<string, number> = {};
  readonly #responses: Record<string, Record<string, number>> = {};
  #stop: AbortController | undefined;
  #lanes: Promise<unknown> = Promise.resolve();
  #spans: AttackSpan[] = [];

  /** `target` is asked before each attack, since ports change when a process restarts. */
  constructor(hostile: HostileClient, target: () => Target) {
    this.#hostile = hostile;
    this.#target = target;
  }

  get counts(): AttackCounts {
    return { attacks: this.#attacks, responses: this.#responses };
  }

  /** Attacks from now on. Equal seeds choose the same attacks in the same order. */
  begin(random: Seeded): void {
    const stop = new AbortController();
    this.#stop = stop;
    this.#spans = [];
    this.#lanes = Promise.all(
      Array.from({ length: atOnce }, () => this.#attackInTurn(random.fork(), stop.signal)),
    );
    // A caller that does not await it gets its failure from `end`.
    this.#lanes.catch(() => {});
  }

  /** Ends all attacks. Resolves to those since `begin`. */
  async end(): Promise<readonly AttackSpan[]> {
    this.#stop?.abort();
    await this.#lanes;
    return this.#spans;
  }

  /** One attack after the other. */
  async #attackInTurn(random: Seeded, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const name = random.pickWeighted(weights);
      const [seed, holdMs] = [random.fork().seed, random.between(0, longestHoldMs)];
      this.#attacks[name] = (this.#attacks[name] ?? 0) + 1;
      const from = now();
      await this.#hold(this.#hostile.begin(name, this.#target(), seed), holdMs, signal);
      this.#spans.push({ name, from, to: now() });
    }
  }

  async #hold(attack: Attacking, ms: number, signal: AbortSignal): Promise<void> {
    const aborted = new Promise<void>((resolve) => {
      signal.addEventListener("abort", () => resolve(), { once: true });
    });
    await Promise.race([aborted, attack.holding]);
    if (!signal.aborted) await Promise.race([aborted, delay(ms)]);
    const known = this.#responses[attack.name] ?? {};
    this.#responses[attack.name] = known;
    addResponses(known, await attack.release());
  }
}

function now(): number {
  return performance.timeOrigin + performance.now();
}
