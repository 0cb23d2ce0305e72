import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";

const ticksPerSecond = Number(execFileSync("getconf", ["CLK_TCK"], { encoding: "utf8" }));

/**
 * CPU seconds of a process, in user mode and in the kernel, over all threads: with nanosecond precision from the
 * scheduler if the kernel provides that (schedstat), otherwise in ticks of usually 10 ms (utime and stime in
 * proc(5)'s stat). The same measure for every kind of process.
 */
export function cpuSeconds(pid: number): number {
  try {
    let nanos = 0;
    for (const thread of readdirSync(`/proc/${pid}/task`)) {
      nanos += Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, "utf8").split(" ")[0]);
    }
    if (nanos > 0) return nanos / 1e9;
  } catch {
    // A thread that has just ended, or a kernel without these statistics.
  }
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  // The name in parentheses may contain anything; the third field follows it.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) / ticksPerSecond;
}

/** The processes that a process has started and that still run, oldest first. */
export function childPids(pid: number): number[] {
  const text = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8");
  return text.split(" ").filter(Boolean).map(Number);
}

/** Memory that only this process has resident, in bytes: without files and pages that it shares with others. */
export function privateBytes(pid: number): number {
  const rollup = readFileSync(`/proc/${pid}/smaps_rollup`, "utf8");
  const parts = rollup.matchAll(/^Private_(?:Clean|Dirty):\s+(\d+)/gm);
  return [...parts].reduce((sum, [, kibibytes]) => sum + Number(kibibytes) * 1024, 0);
}

/** Resident memory of a process, in bytes. */
export function residentBytes(pid: number): number {
  return statusBytes(pid, "VmRSS");
}

/** Peak of `residentBytes` since `forgetPeak`. */
export function peakResidentBytes(pid: number): number {
  return statusBytes(pid, "VmHWM");
}

/** Of proc(5), clear_refs. */
export function forgetPeak(pid: number): void {
  writeFileSync(`/proc/${pid}/clear_refs`, "5");
}

function statusBytes(pid: number, name: string): number {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  return Number(new RegExp(`${name}:\\s+(\\d+)`).exec(status)?.[1]) * 1024;
}

const settleStepMs = 500;

/**
 * Resolves to the resident bytes when they have stayed within 1 % for two seconds, or after `atMostMs`. No process is
 * made to collect garbage: the memory that it keeps by itself is its cost.
 */
export async function settledResidentBytes(pid: number, atMostMs: number): Promise<number> {
  const looks: number[] = [];
  const lookedFor = 2_000 / settleStepMs;
  for (let waited = 0; waited < atMostMs; waited += settleStepMs) {
    looks.push(residentBytes(pid));
    const recent = looks.slice(-lookedFor - 1);
    const isLevel = Math.max(...recent) - Math.min(...recent) < 0.01 * Math.max(...recent);
    if (recent.length > lookedFor && isLevel) break;
    await delay(settleStepMs);
  }
  return residentBytes(pid);
}
