import { agoOf, byId, bytesOf, durationOf, msOf, numberOf, setText, timeOf } from "./format.js";
import { nameOf } from "./overview.js";
import { fill, head } from "./table.js";

const resourceColumns = [
  { title: "Name", isHeading: true },
  { title: "Upstream", kind: "wrap" },
  { title: "Revision", kind: "number" },
  { title: "Lag", kind: "number" },
  { title: "Objects", kind: "number" },
  { title: "Window from", kind: "number" },
  { title: "Window to", kind: "number" },
  { title: "Events", kind: "number" },
  { title: "Bytes", kind: "number" },
  { title: "Reconnects", kind: "number" },
  { title: "Relists", kind: "number" },
];

const processColumns = [
  { title: "Process", isHeading: true },
  { title: "State" },
  { title: "PID", kind: "number" },
  { title: "Connections", kind: "number" },
  { title: "Streams", kind: "number" },
  { title: "Memory used", kind: "number" },
  { title: "Ceiling", kind: "number" },
  { title: "Resident", kind: "number" },
  { title: "Delay p99", kind: "number" },
  { title: "Delay max", kind: "number" },
  { title: "Restarts", kind: "number" },
];

const certificateColumns = [
  { title: "Certificate", isHeading: true },
  { title: "Valid for" },
  { title: "Until" },
  { title: "Subject", kind: "long" },
  { title: "File", kind: "long" },
];

/** As the verdict says it. */
const noticeSeconds = 14 * 86_400;

function certificateRow({ kind, file, subject, notBefore, notAfter }, { at }) {
  const seconds = (Date.parse(notAfter) - Date.parse(at)) / 1_000;
  const left = { text: durationOf(seconds), kind: seconds < noticeSeconds ? "warn" : "good" };
  const invalid =
    seconds <= 0 ? "expired" : Date.parse(notBefore) > Date.parse(at) ? "not valid yet" : undefined;
  const valid = invalid === undefined ? left : { text: invalid, kind: "bad" };
  return [kind, valid, `${timeOf(notAfter)} UTC`, subject, file];
}

function upstreamCell({ upstream }, { at, upstream: tier }) {
  if (upstream === undefined) return { text: "not cached", kind: "muted" };
  const { state, error, staleSeconds, lastReceivedAt } = upstream;
  const silentSeconds = agoOf(lastReceivedAt, at);
  // An embedded store says nothing while nothing is written.
  const isSilent = tier.kind !== "embedded" && silentSeconds >= 10;
  const silence = isSilent ? `, silent for ${durationOf(silentSeconds)}` : "";
  const stale = staleSeconds === undefined ? "" : `, stale for ${durationOf(staleSeconds)}`;
  const kind = state === "connected" ? (stale === "" ? "good" : "warn") : "bad";
  return {
    text: `${state}${stale === "" ? silence : stale}${error === undefined ? "" : `: ${error}`}`,
    kind,
  };
}

function resourceRow(resource, overview) {
  const { name, isReady, isCached, revision, lagRevisions, objects, eventWindow, upstream } =
    resource;
  const cached = (value) => (isCached ? numberOf(value) : "–");
  return [
    isReady ? name : { text: `${name} (not ready)`, kind: "bad" },
    upstreamCell(resource, overview),
    cached(revision),
    { text: cached(lagRevisions), kind: lagRevisions > 0 ? "warn" : "" },
    cached(objects),
    numberOf(eventWindow?.oldestRevision),
    numberOf(eventWindow?.newestRevision),
    numberOf(eventWindow?.events),
    bytesOf(eventWindow?.bytes),
    numberOf(upstream?.reconnects),
    numberOf(upstream?.relists),
  ];
}

function processRow(process) {
  const { isReady, hasResponded, pid, connections, streams, memoryBytes, restarts } = process;
  const { memory, eventLoopDelay: delay } = process;
  const state = !hasResponded
    ? { text: "does not respond", kind: "bad" }
    : isReady
      ? { text: "ready", kind: "good" }
      : { text: "not ready", kind: "warn" };
  return [
    nameOf(process),
    state,
    pid === undefined ? "–" : String(pid),
    numberOf(connections),
    numberOf(streams),
    bytesOf(memory?.usedBytes),
    memory === undefined ? "–" : `${bytesOf(memory.ceilingBytes)} ${memory.limit}`,
    bytesOf(memoryBytes),
    delay === undefined ? "–" : msOf(Math.round(delay.p99Ms)),
    delay === undefined ? "–" : msOf(Math.round(delay.maxMs)),
    numberOf(restarts),
  ];
}

function fileText({ path, bytes, maxBytes, commitLatency }) {
  const latency = commitLatency === undefined ? "" : `, commits p99 ${msOf(commitLatency.p99)}`;
  return `in ${path} (${bytesOf(bytes)} of ${bytesOf(maxBytes)}${latency})`;
}

function tierText({ upstream, processes }) {
  const workers = processes.length > 1 ? ` with ${processes.length} workers` : "";
  if (upstream.kind === "embedded") {
    const where = upstream.file === undefined ? "in memory" : fileText(upstream.file);
    return `This service${workers} has an embedded store ${where}: it is the only tier.`;
  }
  const addresses = upstream.addresses.join(", ");
  if (upstream.kind === "etcd") return `This service${workers} follows etcd at ${addresses}.`;
  const inUse = upstream.inUse.length === 0 ? "none at present" : upstream.inUse.join(", ");
  return `This service${workers} is a relay of watch-fanout at ${addresses}; it watches ${inUse}.`;
}

head(byId("resources"), resourceColumns);
head(byId("processes"), processColumns);
head(byId("certificates"), certificateColumns);

export function showTables(overview) {
  const { resources, processes, mainProcess } = overview;
  const rows = resources.map((each) => resourceRow(each, overview));
  fill(byId("resources").tBodies[0], resourceColumns, rows);
  const all = mainProcess === undefined ? processes : [mainProcess, ...processes];
  fill(byId("processes").tBodies[0], processColumns, all.map(processRow));
  const certificates = overview.certificates.toSorted((a, b) => (a.notAfter < b.notAfter ? -1 : 1));
  const certificateRows = certificates.map((each) => certificateRow(each, overview));
  fill(byId("certificates").tBodies[0], certificateColumns, certificateRows);
  byId("certificates-section").hidden = certificates.length === 0;
  setText(byId("tiers"), tierText(overview));
}
