import type { ProcessReport } from "../process-report.ts";
import type { AttackSpan } from "./attack-lanes.ts";
import { type Latencies, type Measure, measures } from "./honest-probe.ts";
import { percentiles } from "./phase.ts";

/** The honest client's latencies beside one attack, over all phases of a kind. */
export interface AttackEffect {
  readonly name: string;
  /** How long it was under way, in seconds, over all its runs. */
  readonly seconds: number;
  /** Number of samples of all measures that overlap it. */
  readonly samples: number;
  /** The 99th percentile of those samples, in milliseconds. */
  readonly p99: Readonly<Record<Measure, number>>;
  /** The longest turn of the measured replica that ended beside it, in milliseconds of CPU time; 0 if none was long. */
  readonly longestTurn: number;
}

interface Collected {
  seconds: number;
  longestTurn: number;
  readonly ms: Record<Measure, number[]>;
}

/**
 * Attributes latencies and long turns to the attacks that were under way. A sample counts for each attack that it
 * overlaps, and a few attacks are under way at once, so an attack without an effect shares the numbers of its neighbours.
 * Over many phases the neighbours differ, and the attack that causes a delay has the highest numbers.
 */
export class AttackEffects {
  readonly #collected = new Map<string, Collected>();

  /** Adds one phase. */
  add(
    spans: readonly AttackSpan[],
    latencies: Latencies,
    { loop }: Pick<ProcessReport, "loop">,
  ): void {
    for (const { name, from, to } of spans) {
      const collected = this.#of(name);
      collected.seconds += (to - from) / 1_000;
      for (const measure of measures) {
        const beside = latencies[measure].filter(({ at, ms }) => at < to && at + ms > from);
        collected.ms[measure].push(...beside.map(({ ms }) => ms));
      }
      for (const { at, cpu } of loop.longTurns) {
        if (at - cpu < to && at > from)
          collected.longestTurn = Math.max(collected.longestTurn, cpu);
      }
    }
  }

  /** The attack with the slowest Gets first. */
  get effects(): readonly AttackEffect[] {
    return [...this.#collected]
      .map(([name, { seconds, longestTurn, ms }]) => ({
        ...{ name, seconds, longestTurn },
        samples: measures.reduce((sum, measure) => sum + ms[measure].length, 0),
        p99: Object.fromEntries(
          measures.map((measure) => [measure, percentiles(ms[measure]).p99]),
        ) as Record<Measure, number>,
      }))
      .sort((a, b) => b.p99.get - a.p99.get);
  }

  #of(name: string): Collected {
    let collected = this.#collected.get(name);
    if (collected === undefined) {
      collected = { seconds: 0, longestTurn: 0, ms: { delivery: [], get: [], list: [] } };
      this.#collected.set(name, collected);
    }
    return collected;
  }
}
