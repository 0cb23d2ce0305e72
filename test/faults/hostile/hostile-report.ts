import type { AttackEffect } from "./attack-effects.ts";
import type { AttackCounts } from "./attack-lanes.ts";
import { processGroups, totalCpu } from "./cpu-shares.ts";
import { measures } from "./honest-probe.ts";
import { median, type PhaseKind, type PhaseReport, phaseKinds } from "./phase.ts";
import { compare, ruleInWords } from "./phase-verdict.ts";
import type { HostileReport } from "./phases.ts";

/** One number of each phase. */
type Read = (phase: PhaseReport) => number;

const mebibyte = 1024 ** 2;

const groupNames = {
  replica: "measured replica",
  decoy: "decoy",
  otherReplicas: "two other replicas",
  etcd: "etcd",
  hostile: "hostile client",
  honest: "honest clients",
} as const;

const rows: readonly (readonly [what: string, read: Read])[] = [
  ...measures.flatMap((measure) => [
    [`${measure} p50, ms`, ({ latencies }: PhaseReport) => latencies[measure].p50] as const,
    [`${measure} p99, ms`, ({ latencies }: PhaseReport) => latencies[measure].p99] as const,
  ]),
  ["rounds of the honest client", ({ latencies }) => latencies.list.count],
  ["slowest /livez, ms", ({ slowestLivez }) => slowestLivez ?? Number.POSITIVE_INFINITY],
  ["event-loop delay p50, ms", ({ process }) => process.loop.delayP50],
  ["event-loop delay p99, ms", ({ process }) => process.loop.delayP99],
  ["event-loop delay max, ms", ({ process }) => process.loop.delayMax],
  ["longest turn, ms of CPU", ({ process }) => process.loop.longestTurn],
  ["heap, MiB", ({ process }) => process.heapUsed / mebibyte],
  ["external, MiB", ({ process }) => process.external / mebibyte],
  ["resident, MiB", ({ process }) => process.rss / mebibyte],
  ["resident at the peak, MiB", ({ process }) => process.peakRss / mebibyte],
  ["open calls of the attacked", ({ openCalls }) => openCalls],
  ...processGroups.map(
    (group) =>
      [`CPU, %: ${groupNames[group]}`, ({ cpu }: PhaseReport) => 100 * cpu[group]] as const,
  ),
  ["CPU, %: all together", ({ cpu }) => 100 * totalCpu(cpu)],
];

/** For people, line by line: what was done, and with which responses, and each number's median (and most) of all phases of a kind. */
export function hostileInWords(report: HostileReport): string[] {
  const { phases, measured, decoy, effects } = report;
  return [
    "",
    `${total(decoy)} attacks on the decoy, and ${total(measured)} on the measured replica:`,
    ...Object.entries(measured.attacks)
      .sort(([, a], [, b]) => b - a)
      .flatMap(([name, count]) => [
        `  ${String(count).padStart(5)}  ${name}`,
        `         ${responsesInWords(measured.responses[name] ?? {})}`,
      ]),
    "",
    ...effectsInWords(effects.hostile, effects.decoy),
    "",
    `${phases.length} phases, median (most):`,
    columns("", phaseKinds),
    ...rows.map(([what, read]) =>
      columns(
        what,
        phaseKinds.map((kind) => inBrief(of(phases, kind), read)),
      ),
    ),
    ...cpuNote(phases),
    "",
    ...comparedInWords(phases),
    ...ruleInWords.split("\n").map((line) => `rule: ${line}`),
    "",
  ];
}

/** Each number of hostile phases beside its bound by the decoy phases, which is the rule, and by the quiet ones. */
function comparedInWords(phases: readonly PhaseReport[]): string[] {
  const [decoy, quiet] = [compare(phases, "decoy"), compare(phases, "quiet")];
  if (decoy.length === 0) return ["too few phases to compare", ""];
  const bound = (hostile: number, allowed: number): string =>
    `${allowed.toFixed(1)} ${hostile <= allowed ? "met" : "NOT MET"}`;
  return [
    columns("hostile, ms, and its bound", ["hostile", "by the decoy", "by quiet"]),
    ...decoy.map(({ what, hostile, allowed }, i) => {
      const byQuiet = bound(hostile, quiet[i]?.allowed ?? Number.NaN);
      return columns(what, [hostile.toFixed(1), bound(hostile, allowed), byQuiet]);
    }),
    "",
  ];
}

/** A decoy that takes more CPU than the attacked replica would hide a part of what the attacks do to that replica. */
function cpuNote(phases: readonly PhaseReport[]): string[] {
  const [decoy, hostile] = (["decoy", "hostile"] as const).map((kind) =>
    median(of(phases, kind).map(({ cpu }) => 100 * totalCpu(cpu))),
  ) as [number, number];
  const heavier = decoy > hostile ? "MORE" : "no more";
  return [
    `Decoy phases use ${heavier} CPU than hostile ones: ` +
      `${decoy.toFixed(1)} and ${hostile.toFixed(1)} % of a core.`,
  ];
}

function effectsInWords(
  hostile: readonly AttackEffect[],
  decoy: readonly AttackEffect[],
): string[] {
  const besideDecoy = new Map(decoy.map((effect) => [effect.name, effect]));
  return [
    "p99 in ms beside each attack, on the replica and on the decoy, and the longest turn on the replica in ms of CPU:",
    "  seconds   delivery        get       list   turn",
    ...hostile.map(({ name, seconds, p99, longestTurn }) => {
      const other = besideDecoy.get(name);
      const numbers = measures.map((measure) => {
        const decoyP99 = other === undefined ? "-" : other.p99[measure].toFixed(0);
        return `${p99[measure].toFixed(0)}, ${decoyP99}`.padStart(10);
      });
      return `  ${seconds.toFixed(1).padStart(7)} ${numbers.join(" ")} ${longestTurn.toFixed(0).padStart(6)}  ${name}`;
    }),
  ];
}

function columns(what: string, values: readonly string[]): string {
  return `  ${what.padEnd(28)}${values.map((value) => value.padStart(18)).join("")}`;
}

function of(phases: readonly PhaseReport[], kind: PhaseKind): readonly PhaseReport[] {
  return phases.filter((phase) => phase.kind === kind);
}

function total({ attacks }: AttackCounts): number {
  return Object.values(attacks).reduce((sum, count) => sum + count, 0);
}

function inBrief(phases: readonly PhaseReport[], read: Read): string {
  const numbers = phases.map(read);
  const inWords = (number: number): string =>
    Number.isFinite(number) ? number.toFixed(1) : "never";
  return `${inWords(median(numbers))} (${inWords(Math.max(0, ...numbers))})`;
}

function responsesInWords(responses: Readonly<Record<string, number>>): string {
  const parts = Object.entries(responses).map(([what, count]) => `${what}: ${count}`);
  return parts.length === 0 ? "no responses" : parts.join(", ");
}
