import { type Measure, measures } from "./honest-probe.ts";
import { median, type PhaseReport } from "./phase.ts";

/** The bounds of the rule that a run is judged by. */
export const rule = {
  /** Times the quiet value, and milliseconds on top: two turns of time slices, and their timers. */
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
    `${rule.latency.times} times the median over the quiet ones, plus ${rule.latency.plusMs} ms.`,
  `The same holds for the p99 of the event loop's delay.`,
  `No turn of the event loop takes more than ${rule.longestTurnMs} ms of CPU time.`,
  `No hostile phase takes more than ${mib(rule.peakBytes)} MiB more resident memory than a quiet one.`,
  `/livez answers. No call of an honest client fails, and none receives an older state than before.`,
].join("\n");

/** In sentences, what breaks the rule; none if nothing does. */
export function brokenRules(phases: readonly PhaseReport[]): string[] {
  const quiet = phases.filter(({ kind }) => kind === "quiet");
  const hostile = phases.filter(({ kind }) => kind === "hostile");
  return [
    ...hostile.flatMap((phase) => brokenIn(phase, quiet)),
    ...(Math.min(quiet.length, hostile.length) < rule.leastPhases ? [] : compared(quiet, hostile)),
  ];
}

function compared(quiet: readonly PhaseReport[], hostile: readonly PhaseReport[]): string[] {
  const wrong: string[] = [];
  const compare = (
    what: string,
    { times, plusMs }: { readonly times: number; readonly plusMs: number },
    read: (phase: PhaseReport) => number,
  ): void => {
    const [before, beside] = [median(quiet.map(read)), median(hostile.map(read))];
    if (beside <= times * before + plusMs) return;
    wrong.push(
      `Hostile: ${what} was ${beside.toFixed(1)} ms beside attacks, and ${before.toFixed(1)} ms without`,
    );
  };
  for (const measure of measures) {
    compare(`p50 of ${measure}`, rule.latency, latency(measure, "p50"));
    compare(`p99 of ${measure}`, rule.latency, latency(measure, "p99"));
  }
  compare("p99 of the event loop's delay", rule.loopDelay, ({ process }) => process.loop.delayP99);
  return wrong;
}

function latency(measure: Measure, at: "p50" | "p99"): (phase: PhaseReport) => number {
  return ({ latencies }) => latencies[measure][at];
}

/** Limits for each single phase, independent of the others. */
function brokenIn(phase: PhaseReport, quiet: readonly PhaseReport[]): string[] {
  const { loop, peakRss } = phase.process;
  const beside = `beside ${Object.keys(phase.attacks).join(", ")}`;
  const wrong: string[] = [];
  if (phase.slowestLivez === undefined) wrong.push(`Hostile: /livez did not answer ${beside}`);
  if (loop.longestTurn > rule.longestTurnMs) {
    wrong.push(`Hostile: a turn took ${Math.round(loop.longestTurn)} ms of CPU ${beside}`);
  }
  const usual = median(quiet.map(({ process }) => process.rss));
  if (quiet.length > 0 && peakRss > usual + rule.peakBytes) {
    wrong.push(`Hostile: the replica took ${mib(peakRss)} MiB, usually ${mib(usual)}, ${beside}`);
  }
  return wrong;
}

function mib(bytes: number): number {
  return Math.round(bytes / 1024 ** 2);
}
