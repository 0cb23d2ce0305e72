import { hostileInWords } from "./hostile/hostile-report.ts";
import type { HostileReport } from "./hostile/phases.ts";
import type { ProcessReport } from "./process-report.ts";

/** The activity and the findings of a soak. */
export interface SoakReport {
  readonly command: string;
  readonly seed: number;
  readonly minutes: number;
  readonly etcd: string;
  readonly faults: Readonly<Record<string, number>>;
  readonly writes: number;
  readonly reads: number;
  readonly eventsDelivered: number;
  readonly streamsResumed: number;
  /** How often all checkers were run over all clients. */
  readonly verdicts: number;
  readonly violations: readonly string[];
  /** Of the replica that lives throughout, at each verdict. */
  readonly process: readonly ProcessReport[];
  /** Undefined where no hostile client was. */
  readonly hostile: HostileReport | undefined;
}

/** How much more a replica may take at the end than when it had warmed up. */
const grace = { bytes: 8 * 1024 * 1024, share: 0.2, handles: 12 };

/** What has grown, in sentences: empty if the replica's resources are flat. */
export function growth(reports: readonly ProcessReport[]): string[] {
  const quarter = Math.floor(reports.length / 4);
  if (quarter === 0) return [];
  const warm = reports.slice(quarter, 2 * quarter);
  const last = reports.slice(-quarter);
  const measures: readonly (readonly [string, (report: ProcessReport) => number, number])[] = [
    ["bytes of objects", ({ heapUsed }) => heapUsed, grace.bytes],
    ["bytes of buffers", ({ buffers }) => buffers, grace.bytes],
    ["handles", handles, grace.handles],
  ];
  return measures.flatMap(([what, read, more]) => {
    const [before, after] = [mean(warm.map(read)), mean(last.map(read))];
    if (after <= before * (1 + grace.share) + more) return [];
    return [
      `Memory: a replica took ${Math.round(after)} ${what} at the end, and ${Math.round(before)} before`,
    ];
  });
}

export function faultCount({ faults }: SoakReport): number {
  return Object.values(faults).reduce((sum, count) => sum + count, 0);
}

/** For people. */
export function inWords(report: SoakReport): string {
  const { faults, violations, process } = report;
  const kinds = Object.entries(faults)
    .sort(([, a], [, b]) => b - a)
    .map(([kind, count]) => `  ${String(count).padStart(5)}  ${kind}`);
  const [first, last] = [process.at(Math.floor(process.length / 4)), process.at(-1)];
  const taken = (one: ProcessReport | undefined): string =>
    one === undefined
      ? "unknown"
      : `${mebibytes(one.heapUsed)} of objects, ${mebibytes(one.buffers)} of buffers, ` +
        `${mebibytes(one.rss)} resident, ${handles(one)} handles`;
  return [
    report.command,
    `etcd ${report.etcd}, seed ${report.seed}, ${report.minutes} minutes`,
    "",
    `${faultCount(report)} faults:`,
    ...kinds,
    "",
    `${report.writes} writes, ${report.reads} reads, ${report.eventsDelivered} events delivered, ` +
      `${report.streamsResumed} streams resumed, ${report.verdicts} verdicts`,
    `a replica, warmed up:  ${taken(first)}`,
    `and at the end:        ${taken(last)}`,
    ...(report.hostile === undefined ? [] : hostileInWords(report.hostile)),
    `violations: ${violations.length === 0 ? "none" : violations.length}`,
    ...violations.slice(0, 50).map((violation) => `  ${violation}`),
    "",
  ].join("\n");
}

function handles(report: ProcessReport): number {
  return Object.values(report.handles).reduce((sum, count) => sum + count, 0);
}

function mean(of: readonly number[]): number {
  return of.reduce((sum, one) => sum + one, 0) / of.length;
}

function mebibytes(bytes: number): string {
  return `${(bytes / 1024 / 1024).toFixed(1)} MiB`;
}
