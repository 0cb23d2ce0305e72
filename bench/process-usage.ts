import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";

const ticksPerSecond = Number(execFileSync("getconf", ["CLK_TCK"], { encoding: "utf8" }));

/**
 * Seconds of CPU that a process has used, in user mode and in the kernel, all its threads together: to
 * the nanosecond from the scheduler where the kernel tells (schedstat), else in ticks of mostly 10 ms
 * (utime and stime of proc(5)'s stat). One measure for every kind of process.
 */
export function cpuSeconds(pid: number): number {
  try {
    let nanos = 0;
    for (const thread of readdirSync(`/proc/${pid}/task`)) {
      nanos += Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, "utf8").split(" ")[0]);
    }
    if (nanos > 0) return nanos / 1e9;
  } catch {
    // A thread that has just ended, or a kernel that keeps no such statistics.
  }
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  // The name in parentheses may hold anything; what follows it begins with the third field.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) / ticksPerSecond;
}

/** Bytes of memory that a process has in RAM. */
export function residentBytes(pid: number): number {
  return statusBytes(pid, "VmRSS");
}

/** The most that `residentBytes` has been since `forgetPeak`. */
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
 * Resolves to the resident bytes once these stay within 1 % for two seconds, or after `atMostMs`. Nobody is
 * made to collect garbage: what a process keeps of its own accord is what it costs.
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
