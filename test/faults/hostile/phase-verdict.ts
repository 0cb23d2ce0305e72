import { type Measure, measures } from "./honest-probe.ts";
import { median, type PhaseKind, type PhaseReport } from "./phase.ts";

/** The bounds of the rule that a run is judged by. */
export const rule = {
  /** Times the value of decoy phases, and milliseconds on top: two turns of time slices, and their timers. */
  latency: { times: 2, plusMs: 10 },
  /** The same for how late timers are, at the 99th percentile. */
  loopDelay: { times: 2, plusMs: 10 },
  /** CPU time that one turn may take in any phase, in milliseconds. */
  longestTurnMs: 300,
  /** Resident memory at the peak of any hostile phase beyond the median of the quiet ones, in bytes. */
  peakBytes: 384 * 1024 ** 2,
  /** How many phases of each kind there have to be for medians to mean something. */
  leastPhases: 3,
} as const;

/** The rule in words, for the report. */
export const ruleInWords = [
  `Each phase gives one p50 and one p99 of each measure. The median over the hostile phases is at most ` +
    `${rule.latency.times} times the median over the decoy ones, plus ${rule.latency.plusMs} ms.`,
  `The same holds for the p99 of the event loop's delay.`,
  `No turn of the event loop takes more than ${rule.longestTurnMs} ms of CPU time.`,
  `No hostile phase takes more than ${mib(rule.peakBytes)} MiB more resident memory than a quiet one.`,
  `/livez answers. No call of an honest client fails, and none receives an older state than before.`,
].join("\n");

/** One number of hostile phases, compared with the same number of phases of another kind. Medians, in milliseconds. */
export interface Comparison {
  readonly what: string;
  readonly hostile: number;
  readonly other: number;
  /** Maximum of `hostile`, by the factor of the rule. */
  readonly allowed: number;
}

/** In sentences, what breaks the rule; none if nothing does. */
export function brokenRules(phases: readonly PhaseReport[]): string[] {
  const quiet = phases.filter(({ kind }) => kind === "quiet");
  const hostile = phases.filter(({ kind }) => kind === "hostile");
  const broken = compare(phases, "decoy")
    .filter(({ hostile, allowed }) => hostile > allowed)
    .map(
      ({ what, hostile, other }) =>
        `Hostile: ${what} was ${hostile.toFixed(1)} ms beside attacks on the replica, ` +
        `and ${other.toFixed(1)} ms beside attacks on the decoy`,
    );
  return [
    ...phases.filter(({ slowestLivez }) => slowestLivez === undefined).map(livezBroken),
    ...hostile.flatMap((phase) => brokenIn(phase, quiet)),
    ...broken,
  ];
}

/** The hostile phases beside those of another kind; none if there are too few of either. */
export function compare(phases: readonly PhaseReport[], kind: PhaseKind): readonly Comparison[] {
  const others = phases.filter((phase) => phase.kind === kind);
  const attacked = phases.filter((phase) => phase.kind === "hostile");
  if (Math.min(others.length, attacked.length) < rule.leastPhases) return [];
  const comparison = (
    what: string,
    { times, plusMs }: { readonly times: number; readonly plusMs: number },
    read: (phase: PhaseReport) => number,
  ): Comparison => {
    const [hostile, other] = [median(attacked.map(read)), median(others.map(read))];
    return { what, hostile, other, allowed: times * other + plusMs };
  };
  return [
    ...measures.flatMap((measure) => [
      comparison(`p50 of ${measure}`, rule.latency, latency(measure, "p50")),
      comparison(`p99 of ${measure}`, rule.latency, latency(measure, "p99")),
    ]),
    comparison(
      "p99 of the event loop's delay",
      rule.loopDelay,
      ({ process }) => process.loop.delayP99,
    ),
  ];
}

function latency(measure: Measure, at: "p50" | "p99"): (phase: PhaseReport) => number {
  return ({ latencies }) => latencies[measure][at];
}

/** Limits for each single phase, independent of the others. */
function brokenIn(phase: PhaseReport, quiet: readonly PhaseReport[]): string[] {
  const { loop, peakRss } = phase.process;
  const wrong: string[] = [];
  if (loop.longestTurn > rule.longestTurnMs) {
    wrong.push(`Hostile: a turn took ${Math.round(loop.longestTurn)} ms of CPU ${beside(phase)}`);
  }
  const usual = median(quiet.map(({ process }) => process.rss));
  if (quiet.length > 0 && peakRss > usual + rule.peakBytes) {
    const memory = `${mib(peakRss)} MiB, usually ${mib(usual)}`;
    wrong.push(`Hostile: the replica took ${memory}, ${beside(phase)}`);
  }
  return wrong;
}

function livezBroken(phase: PhaseReport): string {
  return `Hostile: /livez did not answer in a ${phase.kind} phase ${beside(phase)}`;
}

function beside({ attacks }: PhaseReport): string {
  const names = Object.keys(attacks);
  return names.length === 0 ? "beside no attack" : `beside ${names.join(", ")}`;
}

function mib(bytes: number): number {
  return Math.round(bytes / 1024 ** 2);
}
