import type { ProcessReport } from "../process-report.ts";
import type { AnswerCounts } from "./answers.ts";
import { type Latencies, type Measure, measures } from "./honest-probe.ts";

/** Percentiles of a measure, in milliseconds. */
export interface Percentiles {
  readonly count: number;
  readonly p50: number;
  readonly p99: number;
  readonly max: number;
}

/** The measurements of one phase of equal honest load, with or without the hostile client. */
export interface PhaseReport {
  readonly kind: "quiet" | "hostile";
  readonly seconds: number;
  /** How often each attack was begun, by name. */
  readonly attacks: AnswerCounts;
  readonly latencies: Readonly<Record<Measure, Percentiles>>;
  /** The slowest answer of /livez in milliseconds; undefined: one did not come. */
  readonly slowestLivez: number | undefined;
  /** CPU time that the hostile process took, as a share of one core. */
  readonly hostileCpu: number;
  /** Calls that the replica had open at the end, before the attacks were ended. */
  readonly openCalls: number;
  /** Of the attacked replica, before the attacks were ended. */
  readonly process: ProcessReport;
}

export function percentilesOf(latencies: Latencies): Record<Measure, Percentiles> {
  return Object.fromEntries(
    measures.map((measure) => [measure, percentiles(latencies[measure])]),
  ) as Record<Measure, Percentiles>;
}

/** All 0 if absent. */
export function percentiles(of: readonly number[]): Percentiles {
  const sorted = [...of].sort((a, b) => a - b);
  const at = (share: number): number =>
    sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0;
  return { count: sorted.length, p50: at(0.5), p99: at(0.99), max: at(1) };
}

/** 0 if absent. */
export function median(of: readonly number[]): number {
  return percentiles(of).p50;
}
