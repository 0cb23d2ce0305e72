import type { ProcessReport } from "../process-report.ts";
import type { CpuShares } from "./cpu-shares.ts";
import { type Latencies, type Measure, measures } from "./honest-probe.ts";
import type { ResponseCounts } from "./responses.ts";

/** Percentiles of a measure, in milliseconds. */
export interface Percentiles {
  readonly count: number;
  readonly p50: number;
  readonly p99: number;
  readonly max: number;
}

/** Kinds of phases: without attacks, with attacks on the decoy, with attacks on the measured replica. */
export const phaseKinds = ["quiet", "decoy", "hostile"] as const;
export type PhaseKind = (typeof phaseKinds)[number];

/** The measurements of one phase. The honest load is equal in all kinds. */
export interface PhaseReport {
  readonly kind: PhaseKind;
  readonly seconds: number;
  /** How often each attack was begun, by name. */
  readonly attacks: ResponseCounts;
  readonly latencies: Readonly<Record<Measure, Percentiles>>;
  /** The slowest response of /livez in milliseconds; undefined: one did not come. */
  readonly slowestLivez: number | undefined;
  readonly cpu: CpuShares;
  /** Calls that the attacked replica had open at the end, before the attacks were ended. */
  readonly openCalls: number;
  /** Of the measured replica, before the attacks were ended. */
  readonly process: ProcessReport;
}

export function percentilesOf(latencies: Latencies): Record<Measure, Percentiles> {
  return Object.fromEntries(
    measures.map((measure) => [measure, percentiles(latencies[measure].map(({ ms }) => ms))]),
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
