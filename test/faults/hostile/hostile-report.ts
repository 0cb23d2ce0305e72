import { measures } from "./honest-probe.ts";
import { median, type PhaseReport } from "./phase.ts";
import { ruleInWords } from "./phase-verdict.ts";
import type { HostileCounts } from "./phases.ts";

/** The attacks of a soak, and the measurements with and without them. */
export interface HostileReport extends HostileCounts {
  readonly phases: readonly PhaseReport[];
}

/** One number of each phase. */
type Read = (phase: PhaseReport) => number;

const mebibyte = 1024 ** 2;

const rows: readonly (readonly [what: string, read: Read])[] = [
  ...measures.flatMap((measure) => [
    [`${measure} p50, ms`, ({ latencies }: PhaseReport) => latencies[measure].p50] as const,
    [`${measure} p99, ms`, ({ latencies }: PhaseReport) => latencies[measure].p99] as const,
  ]),
  ["slowest /livez, ms", ({ slowestLivez }) => slowestLivez ?? Number.POSITIVE_INFINITY],
  ["event-loop delay p99, ms", ({ process }) => process.loop.delayP99],
  ["event-loop delay max, ms", ({ process }) => process.loop.delayMax],
  ["longest turn, ms of CPU", ({ process }) => process.loop.longestTurn],
  ["replica CPU, % of a core", ({ process, seconds }) => process.loop.cpu / 10 / seconds],
  ["hostile CPU, % of a core", ({ hostileCpu }) => 100 * hostileCpu],
  ["heap, MiB", ({ process }) => process.heapUsed / mebibyte],
  ["external, MiB", ({ process }) => process.external / mebibyte],
  ["resident, MiB", ({ process }) => process.rss / mebibyte],
  ["resident at the peak, MiB", ({ process }) => process.peakRss / mebibyte],
  ["open calls", ({ openCalls }) => openCalls],
];

/** For people, line by line: what was done and answered, and each number's median (and most) of all phases of a kind. */
export function hostileInWords({ attacks, answers, phases }: HostileReport): string[] {
  const all = Object.values(attacks).reduce((sum, count) => sum + count, 0);
  const quiet = phases.filter(({ kind }) => kind === "quiet");
  const hostile = phases.filter(({ kind }) => kind === "hostile");
  return [
    "",
    `${all} attacks:`,
    ...Object.entries(attacks)
      .sort(([, a], [, b]) => b - a)
      .flatMap(([name, count]) => [
        `  ${String(count).padStart(5)}  ${name}`,
        `         ${answersInWords(answers[name] ?? {})}`,
      ]),
    "",
    `${phases.length} phases, median (most):`,
    `  ${"".padEnd(26)} ${"quiet".padStart(18)} ${"hostile".padStart(18)}`,
    ...rows.map(
      ([what, read]) =>
        `  ${what.padEnd(26)} ${inBrief(quiet, read).padStart(18)} ${inBrief(hostile, read).padStart(18)}`,
    ),
    ...ruleInWords.split("\n").map((line) => `rule: ${line}`),
    "",
  ];
}

function inBrief(phases: readonly PhaseReport[], read: Read): string {
  const numbers = phases.map(read);
  const inWords = (number: number): string =>
    Number.isFinite(number) ? number.toFixed(1) : "never";
  return `${inWords(median(numbers))} (${inWords(Math.max(0, ...numbers))})`;
}

function answersInWords(answers: Readonly<Record<string, number>>): string {
  const parts = Object.entries(answers).map(([what, count]) => `${what}: ${count}`);
  return parts.length === 0 ? "no answers" : parts.join(", ");
}
