import type { UpstreamOutage } from "../../etcd/client/upstream.ts";
import type { ReadinessCheck } from "../../server/admin/admin.ts";
import type {
  Overview,
  ProcessReport,
  ResourceReport,
  UpstreamTier,
  Verdict,
  VerdictReason,
} from "../../server/admin/status/status.ts";
import { bytesOf, countOf, cutText, durationOf, msOf, quantity } from "../output/printable.ts";

/** What the verdict is made of: the status, and the checks of /readyz. */
export interface VerdictFacts extends Omit<Overview, "verdict" | "problems" | "latencies"> {
  readonly checks: readonly ReadinessCheck[];
  /** Whether the store has refused a write in the last minute because it is full. */
  readonly isStoreFull: boolean;
  /** That calls of the etcd API could not reach etcd. */
  readonly etcdApiOutage: UpstreamOutage | undefined;
}

/** From this part of the streams on, those that are behind need attention; from the second on, they are a failure. */
const behindDegraded = 0.05;
const behindFailing = 0.5;
/** Fewer streams that are behind are no failure, whatever their part. */
const leastBehindFailing = 10;

/** The same for calls that are no streams, of the last minute. Fewer than three that failed are no sign of anything. */
const failedDegraded = 0.05;
const failedFailing = 0.5;
const leastFailed = 3;
const leastFailedFailing = 10;

/**
 * The thresholds of the alerts WatchFanoutEventLoopDelayed, WatchFanoutMemoryNearCeiling, WatchFanoutDataNearlyFull and
 * WatchFanoutCallersRefused.
 */
const eventLoopDelayMs = 250;
const memoryNearCeiling = 0.85;
const fileNearLimit = 0.85;
const refusedPerSecond = 1;

/** A store that can't be reached for less than this, such as while it elects a leader, is no failure yet, in milliseconds. */
const briefOutageMs = 5_000;

/** How long before a certificate expires it needs attention, in milliseconds. */
const certificateNoticeMs = 14 * 86_400_000;

/** Maximum length of an error in a reason, in UTF-16 code units. */
const maxError = 300;

/** Decides whether the service is well. The status page and `top` show it as it is. */
export function verdictOf(facts: VerdictFacts): Verdict {
  const reasons = [
    ...ofServing(facts),
    ...ofResources(facts),
    ...ofEtcdApi(facts),
    ...ofFullStore(facts),
    ...ofDataFile(facts),
    ...ofWorkers(facts),
    ...ofCertificates(facts),
    ...ofMemory(facts),
    ...ofStreams(facts),
    ...ofEventLoops(facts),
    ...ofRefusals(facts),
    ...ofCalls(facts),
  ];
  const isExplained = reasons.some(({ level }) => level === "failing");
  if (!isExplained) reasons.push(...ofOtherChecks(facts));
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

/** What is wrong with a part of the service. */
type Reasons = Generator<VerdictReason, void>;

function* ofServing({ checks }: VerdictFacts): Reasons {
  const failure = checks.find(({ name }) => name === "serving")?.failure;
  if (failure !== undefined) yield { level: "failing", text: failure };
}

/** A service that is not ready is never well, whatever the reason. */
function* ofOtherChecks({ checks }: VerdictFacts): Reasons {
  for (const { name, failure } of checks) {
    if (failure === undefined) continue;
    yield { level: "failing", text: `${name} is not ready`, detail: cut(failure) };
  }
}

function* ofResources({ resources, upstream, checks, at }: VerdictFacts): Reasons {
  const notReady = resources.filter(({ isReady }) => !isReady);
  // Calls of etcd's API are passed to etcd where a cache is not permitted.
  const isPassedOn = ({ name }: ResourceReport): boolean =>
    checks.some((check) => check.name === `resource/${name}` && check.failure === undefined);
  const passedOn = notReady.filter(isPassedOn);
  if (passedOn.length > 0) {
    const text = `${whichOf(passedOn, resources)} not cached: ${nameOf(upstream)} serves each call itself`;
    const since = failingSince(passedOn);
    yield { level: "degraded", text, detail: errorOf(passedOn), since };
  }
  const unsynced = notReady.filter((each) => !isPassedOn(each));
  if (unsynced.length > 0) {
    const text = `${whichOf(unsynced, resources)} not served: not synced with ${nameOf(upstream)}`;
    const since = failingSince(unsynced);
    yield { level: "failing", text, detail: errorOf(unsynced), since };
  }
  const stale = resources.filter(
    ({ isReady, upstream: own }) => isReady && own?.staleSeconds !== undefined,
  );
  if (stale.length > 0) {
    const oldest = Math.max(...stale.map((each) => each.upstream?.staleSeconds ?? 0));
    const detail = errorOf(stale);
    const lost = detail === undefined ? "can't reach its own store" : "can't be reached";
    const since = failingSince(stale) ?? new Date(Date.parse(at) - oldest * 1_000).toISOString();
    const isBrief = Date.parse(at) - Date.parse(since) < briefOutageMs;
    yield {
      level: isBrief ? "degraded" : "failing",
      text: `${nameOf(upstream)} ${lost}, ${whichOf(stale, resources)} served stale from the cache`,
      ...{ detail, since },
    };
  }
}

/** Says what is not known by a cache that has failed, such as without any. */
function* ofEtcdApi({ etcdApiOutage, resources, upstream, at }: VerdictFacts): Reasons {
  if (etcdApiOutage === undefined) return;
  if (resources.some((each) => each.upstream?.failingSince !== undefined)) return;
  const { forMs, why } = etcdApiOutage;
  yield {
    level: forMs < briefOutageMs ? "degraded" : "failing",
    text: `${nameOf(upstream)} can't be reached by calls of the etcd API`,
    detail: cut(why),
    since: new Date(Date.parse(at) - forMs).toISOString(),
  };
}

function* ofFullStore({ isStoreFull, upstream }: VerdictFacts): Reasons {
  if (!isStoreFull) return;
  yield { level: "failing", text: `${nameOf(upstream)} is full and refuses writes` };
}

function* ofDataFile({ isStoreFull, upstream }: VerdictFacts): Reasons {
  if (isStoreFull || upstream.kind !== "embedded" || upstream.file === undefined) return;
  const { bytes, maxBytes } = upstream.file;
  if (bytes < fileNearLimit * maxBytes) return;
  const text = `the file of the embedded store is nearly full: ${bytesOf(bytes)} of ${bytesOf(maxBytes)}`;
  yield { level: "degraded", text };
}

function* ofWorkers({ processes, checks }: VerdictFacts): Reasons {
  const bad = processes.filter(
    ({ worker, isReady, hasResponded }) => worker > 0 && !(isReady && hasResponded),
  );
  const [first] = bad;
  if (first === undefined) return;
  const check = checks.find(({ name }) => name === `worker/${first.worker}`);
  const why = check?.failure ?? check?.warning ?? "it has not reported its status within 2 s";
  const isServing = processes.some(({ isReady }) => isReady) && check?.failure === undefined;
  const which =
    bad.length === 1
      ? `worker ${first.worker} is not well`
      : `${bad.length} of ${processes.length} workers are not well`;
  yield { level: isServing ? "degraded" : "failing", text: which, detail: cut(why) };
}

function* ofCertificates({ certificates, at }: VerdictFacts): Reasons {
  for (const { kind, file, subject, notBefore, notAfter } of certificates) {
    const leftMs = Date.parse(notAfter) - Date.parse(at);
    const untilMs = Date.parse(notBefore) - Date.parse(at);
    const which = `the certificate ${cut(file)} (${cut(subject)})`;
    // Another authority of the file may be valid, and the admin port serves no clients.
    const isMinor = kind.endsWith("-ca") || kind === "admin-certificate";
    const level = isMinor ? "degraded" : "failing";
    if (leftMs <= 0) {
      yield { level, text: `${which} has expired`, since: notAfter };
    } else if (untilMs > 0) {
      yield { level, text: `${which} is not valid yet, for ${durationOf(untilMs / 1_000)}` };
    } else if (leftMs < certificateNoticeMs) {
      yield { level: "degraded", text: `${which} expires in ${durationOf(leftMs / 1_000)}` };
    }
  }
}

function* ofMemory(facts: VerdictFacts): Reasons {
  const usage = ({ memory }: ProcessReport): number =>
    memory === undefined ? 0 : memory.usedBytes / memory.ceilingBytes;
  const [worst] = processesOf(facts).toSorted((a, b) => usage(b) - usage(a));
  if (worst?.memory === undefined) return;
  const { usedBytes, ceilingBytes, limit, pressure } = worst.memory;
  if (pressure === "normal" && usage(worst) < memoryNearCeiling) return;
  const effect =
    pressure === "normal"
      ? "memory is near its ceiling"
      : pressure === "exhausted"
        ? "memory is exhausted and all calls are refused"
        : `memory pressure is ${pressure} and load is shed`;
  yield {
    level: pressure === "exhausted" ? "failing" : "degraded",
    text: `${effect}: ${bytesOf(usedBytes)} of ${bytesOf(ceilingBytes)} (${limit}${inProcess(worst)})`,
  };
}

function* ofStreams({ streamCounts }: VerdictFacts): Reasons {
  if (streamCounts === undefined || streamCounts.behind === 0) return;
  const { total, behind, behindSince, worstLagRevisions } = streamCounts;
  const part = behind / total;
  if (part < behindDegraded) return;
  const lag =
    worstLagRevisions === undefined
      ? ""
      : `, the worst by ${quantity(worstLagRevisions, "revision")}`;
  yield {
    level: part >= behindFailing && behind >= leastBehindFailing ? "failing" : "degraded",
    text: `${countOf(behind)} of ${quantity(total, "stream")} ${behind === 1 ? "is" : "are"} behind${lag}`,
    since: behindSince,
  };
}

function* ofEventLoops(facts: VerdictFacts): Reasons {
  const delay = ({ eventLoopDelay }: ProcessReport): number => eventLoopDelay?.p99Ms ?? 0;
  const [worst] = processesOf(facts).toSorted((a, b) => delay(b) - delay(a));
  if (worst?.eventLoopDelay === undefined || delay(worst) <= eventLoopDelayMs) return;
  const { p99Ms, maxMs } = worst.eventLoopDelay;
  const text =
    `the event loop${inProcess(worst)} is held up: p99 ${msOf(Math.round(p99Ms))}, ` +
    `at most ${msOf(Math.round(maxMs))} in the last minute`;
  yield { level: "degraded", text };
}

function* ofRefusals({ rates }: VerdictFacts): Reasons {
  const limits = Object.entries(rates.refusedPerSecond).sort(([, a], [, b]) => b - a);
  const sum = limits.reduce((all, [, each]) => all + each, 0);
  if (sum <= refusedPerSecond) return;
  const names = limits.map(([limit]) => limit).join(", ");
  yield {
    level: "degraded",
    text: `${countOf(Math.round(sum))} calls per second are refused by limits: ${names}`,
  };
}

function* ofCalls({ calls }: VerdictFacts): Reasons {
  const { ended, failed } = calls;
  const codes = Object.entries(failed).sort(([, a], [, b]) => b - a);
  const sum = codes.reduce((all, [, each]) => all + each, 0);
  const part = sum / ended;
  if (sum < leastFailed || part < failedDegraded) return;
  const names = codes.map(([code]) => code).join(", ");
  yield {
    level: part >= failedFailing && sum >= leastFailedFailing ? "failing" : "degraded",
    text: `${countOf(sum)} of ${quantity(ended, "call")} in the last minute failed: ${names}`,
  };
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

function cut(text: string): string {
  const line = text.replaceAll(/\s+/g, " ").trim().replace(/\.$/, "");
  return cutText(line, maxError);
}
