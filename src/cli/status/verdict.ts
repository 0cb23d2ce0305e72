import type { ReadinessCheck } from "../../server/admin/admin.ts";
import type {
  Overview,
  ProcessReport,
  ResourceReport,
  UpstreamTier,
  Verdict,
  VerdictReason,
} from "../../server/admin/status/status.ts";
import { bytesOf, countOf, durationOf, msOf } from "../output/amounts.ts";

/** What the verdict is made of: the status, and the checks of /readyz. */
export interface VerdictFacts extends Omit<Overview, "verdict" | "problems" | "latencies"> {
  readonly checks: readonly ReadinessCheck[];
}

/** From this part of the streams on, those that are behind need attention; from the second on, they are a failure. */
const behindDegraded = 0.05;
const behindFailing = 0.5;
/** Fewer streams that are behind are no failure, whatever their part. */
const leastBehindFailing = 10;

/** The thresholds of the alerts WatchFanoutEventLoopDelayed, WatchFanoutMemoryNearCeiling and WatchFanoutCallersRefused. */
const eventLoopDelayMs = 250;
const memoryNearCeiling = 0.85;
const refusedPerSecond = 1;

/** How long before a certificate expires it needs attention, in milliseconds. */
const certificateNoticeMs = 14 * 86_400_000;

/** Maximum length of an error in a reason, in UTF-16 code units. */
const maxError = 300;

/** Decides whether the service is well. The status page and `top` show it as it is. */
export function verdictOf(facts: VerdictFacts): Verdict {
  const reasons = [
    ...ofServing(facts),
    ...ofResources(facts),
    ...ofWorkers(facts),
    ...ofCertificates(facts),
    ...ofMemory(facts),
    ...ofStreams(facts),
    ...ofEventLoops(facts),
    ...ofRefusals(facts),
  ];
  const worst = [
    ...reasons.filter(({ level }) => level === "failing"),
    ...reasons.filter(({ level }) => level === "degraded"),
  ];
  const [first] = worst;
  if (first === undefined) return { level: "ok", summary: wellText(facts), reasons: [] };
  const others = worst.length - 1;
  const more = others === 0 ? "" : `; ${others} more ${others === 1 ? "problem" : "problems"}`;
  return {
    level: first.level,
    summary: `${first.text}${sinceText(first, facts.at)}${more}`,
    reasons: worst,
  };
}

/** What is appended to a reason: when it began, and how long ago that was. */
export function sinceText({ since }: Pick<VerdictReason, "since">, at: string): string {
  if (since === undefined) return "";
  const seconds = Math.max(0, (Date.parse(at) - Date.parse(since)) / 1_000);
  return `, since ${since.replace("T", " ").slice(0, 19)} UTC (${durationOf(seconds)})`;
}

function wellText({ streamCounts, resources, upstream }: VerdictFacts): string {
  const follows = `${quantity(resources.length, "resource")} of ${nameOf(upstream)}`;
  if (streamCounts === undefined) return follows;
  const { total, behind } = streamCounts;
  const streams = quantity(total, "open stream");
  return `${streams}, ${behind === 0 ? "none" : countOf(behind)} behind; ${follows}`;
}

function ofServing({ checks }: VerdictFacts): VerdictReason[] {
  const failure = checks.find(({ name }) => name === "serving")?.failure;
  return failure === undefined ? [] : [{ level: "failing", text: failure }];
}

function ofResources({ resources, upstream, at }: VerdictFacts): VerdictReason[] {
  const reasons: VerdictReason[] = [];
  const unsynced = resources.filter(({ isReady }) => !isReady);
  if (unsynced.length > 0) {
    const text = `${whichOf(unsynced, resources)} not served: not synced with ${nameOf(upstream)}`;
    const since = failingSince(unsynced);
    reasons.push({ level: "failing", text, detail: errorOf(unsynced), since });
  }
  const stale = resources.filter(
    ({ isReady, upstream: own }) => isReady && own?.staleSeconds !== undefined,
  );
  if (stale.length > 0) {
    const oldest = Math.max(...stale.map((each) => each.upstream?.staleSeconds ?? 0));
    const detail = errorOf(stale);
    const lost = detail === undefined ? "can't reach its own store" : "can't be reached";
    reasons.push({
      level: "failing",
      text: `${nameOf(upstream)} ${lost}, ${whichOf(stale, resources)} served stale from the cache`,
      detail,
      since: failingSince(stale) ?? new Date(Date.parse(at) - oldest * 1_000).toISOString(),
    });
  }
  return reasons;
}

function ofWorkers({ processes, checks }: VerdictFacts): VerdictReason[] {
  const bad = processes.filter(
    ({ worker, isReady, hasResponded }) => worker > 0 && !(isReady && hasResponded),
  );
  const [first] = bad;
  if (first === undefined) return [];
  const check = checks.find(({ name }) => name === `worker/${first.worker}`);
  const why = check?.failure ?? check?.warning ?? "it has not reported its status within 2 s";
  const isServing = processes.some(({ isReady }) => isReady);
  const which =
    bad.length === 1
      ? `worker ${first.worker} is not well`
      : `${bad.length} of ${processes.length} workers are not well`;
  return [{ level: isServing ? "degraded" : "failing", text: which, detail: cut(why) }];
}

function ofCertificates({ certificates, at }: VerdictFacts): VerdictReason[] {
  return certificates.flatMap(({ kind, file, subject, notAfter }): VerdictReason[] => {
    const leftMs = Date.parse(notAfter) - Date.parse(at);
    const which = `the certificate ${cut(file)} (${cut(subject)})`;
    if (leftMs <= 0) {
      // Another authority of the file may still be valid, and the admin port serves no clients.
      const isMinor = kind.endsWith("-ca") || kind === "admin-certificate";
      const level = isMinor ? "degraded" : "failing";
      return [{ level, text: `${which} has expired`, since: notAfter }];
    }
    if (leftMs >= certificateNoticeMs) return [];
    const text = `${which} expires in ${durationOf(leftMs / 1_000)}`;
    return [{ level: "degraded", text }];
  });
}

function ofMemory(facts: VerdictFacts): VerdictReason[] {
  const usage = ({ memory }: ProcessReport): number =>
    memory === undefined ? 0 : memory.usedBytes / memory.ceilingBytes;
  const [worst] = processesOf(facts).toSorted((a, b) => usage(b) - usage(a));
  if (worst?.memory === undefined) return [];
  const { usedBytes, ceilingBytes, limit, pressure } = worst.memory;
  if (pressure === "normal" && usage(worst) < memoryNearCeiling) return [];
  const effect =
    pressure === "normal"
      ? "memory is near its ceiling"
      : pressure === "exhausted"
        ? "memory is exhausted and all calls are refused"
        : `memory pressure is ${pressure} and load is shed`;
  return [
    {
      level: pressure === "exhausted" ? "failing" : "degraded",
      text: `${effect}: ${bytesOf(usedBytes)} of ${bytesOf(ceilingBytes)} (${limit}${inProcess(worst)})`,
    },
  ];
}

function ofStreams({ streamCounts }: VerdictFacts): VerdictReason[] {
  if (streamCounts === undefined || streamCounts.behind === 0) return [];
  const { total, behind, behindSince, worstLagRevisions } = streamCounts;
  const part = behind / total;
  if (part < behindDegraded) return [];
  const lag =
    worstLagRevisions === undefined
      ? ""
      : `, the worst by ${quantity(worstLagRevisions, "revision")}`;
  return [
    {
      level: part >= behindFailing && behind >= leastBehindFailing ? "failing" : "degraded",
      text: `${countOf(behind)} of ${quantity(total, "stream")} ${behind === 1 ? "is" : "are"} behind${lag}`,
      since: behindSince,
    },
  ];
}

function ofEventLoops(facts: VerdictFacts): VerdictReason[] {
  const delay = ({ eventLoopDelay }: ProcessReport): number => eventLoopDelay?.p99Ms ?? 0;
  const [worst] = processesOf(facts).toSorted((a, b) => delay(b) - delay(a));
  if (worst?.eventLoopDelay === undefined || delay(worst) <= eventLoopDelayMs) return [];
  const { p99Ms, maxMs } = worst.eventLoopDelay;
  const text =
    `the event loop${inProcess(worst)} is held up: p99 ${msOf(Math.round(p99Ms))}, ` +
    `at most ${msOf(Math.round(maxMs))} in the last minute`;
  return [{ level: "degraded", text }];
}

function ofRefusals({ rates }: VerdictFacts): VerdictReason[] {
  const limits = Object.entries(rates.refusedPerSecond).sort(([, a], [, b]) => b - a);
  const sum = limits.reduce((all, [, each]) => all + each, 0);
  if (sum <= refusedPerSecond) return [];
  const names = limits.map(([limit]) => limit).join(", ");
  return [
    {
      level: "degraded",
      text: `${countOf(Math.round(sum))} calls per second are refused by limits: ${names}`,
    },
  ];
}

function processesOf({ processes, mainProcess }: VerdictFacts): readonly ProcessReport[] {
  return mainProcess === undefined ? processes : [mainProcess, ...processes];
}

/** Which process, if there are several. */
function inProcess({ worker, isMain }: ProcessReport): string {
  if (isMain === true) return " of the main process";
  return worker === 0 ? "" : ` of worker ${worker}`;
}

function nameOf(tier: UpstreamTier): string {
  if (tier.kind === "embedded") return "the embedded store";
  const addresses = cut(tier.addresses.join(", "));
  return tier.kind === "etcd" ? `etcd at ${addresses}` : `the upstream at ${addresses}`;
}

/** When the first one of them began to fail. */
function failingSince(resources: readonly ResourceReport[]): string | undefined {
  const times = resources.flatMap(({ upstream }) => upstream?.failingSince ?? []);
  return times.sort()[0];
}

/** The error of the first one that has any. */
function errorOf(resources: readonly ResourceReport[]): string | undefined {
  const failed = resources.find(({ upstream }) => upstream?.error !== undefined);
  return failed?.upstream?.error === undefined ? undefined : cut(failed.upstream.error);
}

/** The subject of a sentence, with its verb. */
function whichOf(some: readonly ResourceReport[], all: readonly ResourceReport[]): string {
  const [first] = some;
  if (first !== undefined && some.length === 1) return `the resource ${first.name} is`;
  return `${some.length} of ${all.length} resources are`;
}

function quantity(count: number, name: string): string {
  return `${countOf(count)} ${name}${count === 1 ? "" : "s"}`;
}

function cut(text: string): string {
  const line = text.replaceAll(/\s+/g, " ").trim().replace(/\.$/, "");
  return line.length <= maxError ? line : `${line.slice(0, maxError - 1)}…`;
}
