import type {
  ProcessReport,
  ResourceReport,
  Status,
  StreamReport,
} from "../../server/admin/status/status.ts";
import { printableText } from "../output/printable.ts";
import { type Cell, Table, type TableOptions } from "../output/table.ts";

/** Number of warnings that are shown. */
const maxProblems = 5;

/** The status as lines of text, each ended by a newline. */
export function statusText(status: Status, options: TableOptions): string {
  const { service, rates, latencies, streams, problems, at } = status;
  const table = (headings: readonly string[], rows: readonly (readonly Cell[])[]): string =>
    new Table(headings, options).format(rows.map((row) => row.map(printableCell)));
  const seconds = (Date.parse(at) - Date.parse(service.startedAt)) / 1_000;
  const states = Object.entries(streams.byState).map(([state, count]) => `${count} ${state}`);
  const isSearch = streams.matched !== streams.total;
  return [
    line(
      `watch-fanout ${service.version}, ${service.isReady ? "ready" : "not ready"}, up ${durationOf(seconds)}, ` +
        upstreamText(status),
      options,
    ),
    line(
      `events/s ${rate(rates.eventsReceivedPerSecond)} in, ${rate(rates.eventsDispatchedPerSecond)} out; ` +
        `RPC/s ${rate(rates.rpcsPerSecond)}; sent/s ${bytesOf(rates.bytesSentPerSecond)}; ` +
        `over ${rate(rates.overSeconds)} s`,
      options,
    ),
    line(
      `dispatch ${quantilesText(latencies.dispatch)}; RPC ${quantilesText(latencies.rpc)}`,
      options,
    ),
    "\n",
    table(
      ["RESOURCE", "UPSTREAM", "REVISION", "LAG", "OBJECTS", "WINDOW", "EVENTS", "BYTES"],
      status.resources.map((resource) => resourceRow(resource, at)),
    ),
    "\n",
    table(
      ["PROCESS", "STATE", "PID", "CONNECTIONS", "STREAMS", "MEMORY", "RESTARTS"],
      status.processes.map(processRow),
    ),
    "\n",
    ...problems
      .slice(0, maxProblems)
      .map((problem) => line(`${problem.at} ${problem.level} ${problem.text}`, options)),
    ...(problems.length > 0 ? ["\n"] : []),
    line(
      `streams ${isSearch ? `${streams.matched} of ${streams.total}` : streams.total}` +
        `${states.length > 0 ? `: ${states.join(", ")}` : ""}`,
      options,
    ),
    table(
      ["IDENTITY", "RESOURCE", "STATE", "AGE", "LAG", "BUFFER", "SENT", "SCOPE", "SELECTORS"],
      streams.items.map(streamRow),
    ),
  ].join("");
}

/** A cell without control characters: clients choose some texts, and another program may respond in place of the service. */
function printableCell(cell: Cell): Cell {
  if (typeof cell === "string") return printableText(cell);
  return { ...cell, text: printableText(cell.text) };
}

/** A line without control characters, cut to the width of the terminal. */
function line(text: string, { columns = Number.POSITIVE_INFINITY }: TableOptions): string {
  return `${[...printableText(text)].slice(0, columns).join("")}\n`;
}

function upstreamText({ upstream }: Status): string {
  if (upstream.kind === "embedded") return "embedded store";
  const addresses = upstream.addresses.join(", ");
  return upstream.kind === "etcd" ? `etcd at ${addresses}` : `relay of ${addresses}`;
}

function resourceRow(resource: ResourceReport, at: string): readonly Cell[] {
  const { name, revision, lagRevisions, objects, eventWindow, upstream, isReady } = resource;
  if (eventWindow === undefined || upstream === undefined) return [name, "not cached"];
  const silent = (Date.parse(at) - Date.parse(upstream.lastReceivedAt)) / 1_000;
  const isConnected = upstream.state === "connected" && isReady;
  const text = isConnected ? upstream.state : `${upstream.state}, silent for ${durationOf(silent)}`;
  return [
    name,
    { text, colour: isConnected ? "green" : "red" },
    String(revision),
    lagCell(lagRevisions),
    String(objects),
    `${eventWindow.oldestRevision}..${eventWindow.newestRevision}`,
    String(eventWindow.events),
    bytesOf(eventWindow.bytes),
  ];
}

function processRow(report: ProcessReport): readonly Cell[] {
  const { worker, isReady, hasResponded, pid, connections, streams, memoryBytes } = report;
  const state = hasResponded ? (isReady ? "ready" : "not ready") : "does not respond";
  return [
    worker === 0 ? "service" : `worker ${worker}`,
    { text: state, colour: state === "ready" ? "green" : "red" },
    String(pid ?? "-"),
    String(connections ?? "-"),
    String(streams ?? "-"),
    memoryBytes === undefined ? "-" : bytesOf(memoryBytes),
    String(report.restarts),
  ];
}

function streamRow(stream: StreamReport): readonly Cell[] {
  const { identity, caller, resource, state, ageSeconds, lagRevisions, bufferFill } = stream;
  const selectors = [stream.labelSelector, stream.fieldSelector].filter(
    (each) => each !== undefined,
  );
  return [
    caller ?? identity,
    resource ?? "-",
    state === "live" || state === "open"
      ? { text: state, colour: "green" }
      : { text: state, colour: "yellow" },
    ageSeconds === undefined ? "-" : durationOf(ageSeconds),
    lagRevisions === undefined ? "-" : lagCell(lagRevisions),
    bufferFill === undefined ? "-" : `${Math.round(bufferFill * 100)}%`,
    String(stream.messagesSent ?? "-"),
    scopeText(stream),
    selectors.length === 0 ? "-" : selectors.join("; "),
  ];
}

function scopeText({ scope, kind }: StreamReport): string {
  if (scope === undefined) return kind;
  if ("key" in scope) return `key ${scope.key}`;
  if ("prefix" in scope) return scope.prefix === "" ? "all keys" : `prefix ${scope.prefix}`;
  return scope.to === null ? `from ${scope.from}` : `from ${scope.from} to ${scope.to}`;
}

function lagCell(lag: number): Cell {
  return lag === 0 ? "0" : { text: String(lag), colour: "yellow" };
}

function quantilesText(latency: Status["latencies"]["rpc"]): string {
  if (latency === undefined) return "-";
  const { p50, p90, p99 } = latency;
  return `p50 ${msOf(p50)}, p90 ${msOf(p90)}, p99 ${msOf(p99)}`;
}

function msOf(ms: number): string {
  return ms < 1_000 ? `${Number(ms.toPrecision(3))} ms` : `${(ms / 1_000).toFixed(2)} s`;
}

function rate(value: number): string {
  return value < 10 ? String(Number(value.toFixed(1))) : String(Math.round(value));
}

function bytesOf(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const unit = Math.min(units.length - 1, Math.floor(Math.log2(Math.max(1, bytes)) / 10));
  const amount = bytes / 1_024 ** unit;
  return `${amount < 10 && unit > 0 ? amount.toFixed(1) : Math.round(amount)} ${units[unit]}`;
}

function durationOf(seconds: number): string {
  if (seconds < 60) return `${Math.floor(seconds)}s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)}m${Math.floor(seconds % 60)}s`;
  const hours = Math.floor(seconds / 3_600);
  if (hours < 24) return `${hours}h${Math.floor((seconds % 3_600) / 60)}m`;
  return `${Math.floor(hours / 24)}d${hours % 24}h`;
}
