import { styleText } from "node:util";
import type {
  DataFileReport,
  ProcessReport,
  ResourceReport,
  Status,
  StreamReport,
  VerdictLevel,
} from "../../server/admin/status/status.ts";
import { bytesOf, durationOf, msOf, printableText } from "../output/printable.ts";
import { type Cell, type Colour, Table, type TableOptions } from "../output/table.ts";
import { sinceText } from "../status/verdict.ts";

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
    ...verdictLines(status, options),
    line(
      `${service.instance}, watch-fanout ${service.version}, ${service.isReady ? "ready" : "not ready"}, up ${durationOf(seconds)}, ` +
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
      [
        ...["PROCESS", "STATE", "PID", "CONNECTIONS", "STREAMS", "RESIDENT", "USED", "CEILING"],
        ...["DELAY P99", "RESTARTS"],
      ],
      [...(status.mainProcess === undefined ? [] : [status.mainProcess]), ...status.processes].map(
        processRow,
      ),
    ),
    "\n",
    ...problems
      .slice(0, maxProblems)
      .map(({ at, level, count, text }) =>
        line(`${at} ${level} ${count === 1 ? "" : `x ${count} `}${text}`, options),
      ),
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

const colours: Readonly<Record<VerdictLevel, Colour>> = {
  ...{ ok: "green", degraded: "yellow", failing: "red" },
};

/** The verdict of the service, and what it is made of if that is more. */
function verdictLines({ verdict, at }: Status, options: TableOptions): string[] {
  const { level, summary, reasons } = verdict;
  const first = line(`${level}: ${summary}`, options);
  const colour = colours[level];
  return [
    options.colours ? styleText(colour, first, { validateStream: false }) : first,
    ...reasons.flatMap((reason, i) => [
      ...(i === 0
        ? []
        : [line(`  ${reason.level}: ${reason.text}${sinceText(reason, at)}`, options)]),
      ...(reason.detail === undefined ? [] : [line(`  ${reason.detail}`, options)]),
    ]),
  ];
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
  if (upstream.kind === "embedded") return `embedded store${fileText(upstream.file)}`;
  const addresses = upstream.addresses.join(", ");
  return upstream.kind === "etcd" ? `etcd at ${addresses}` : `relay of ${addresses}`;
}

function fileText(file: DataFileReport | undefined): string {
  if (file === undefined) return "";
  const { path, bytes, maxBytes, revision, oldestRevision, commitLatency, lastFailure } = file;
  const failed =
    lastFailure === undefined ? "" : `, failed at ${lastFailure.at}: ${lastFailure.text}`;
  return (
    ` in ${path} (${bytesOf(bytes)} of ${bytesOf(maxBytes)}, revisions ${oldestRevision} to ${revision}, ` +
    `commits ${quantilesText(commitLatency)}${failed})`
  );
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
  const { worker, isMain, isReady, hasResponded, pid, connections, streams } = report;
  const { memoryBytes, memory, eventLoopDelay } = report;
  const state = hasResponded ? (isReady ? "ready" : "not ready") : "does not respond";
  return [
    isMain === true ? "main" : worker === 0 ? "service" : `worker ${worker}`,
    { text: state, colour: state === "ready" ? "green" : "red" },
    String(pid ?? "-"),
    String(connections ?? "-"),
    String(streams ?? "-"),
    memoryBytes === undefined ? "-" : bytesOf(memoryBytes),
    memory === undefined ? "-" : bytesOf(memory.usedBytes),
    memory === undefined ? "-" : bytesOf(memory.ceilingBytes),
    eventLoopDelay === undefined ? "-" : msOf(eventLoopDelay.p99Ms),
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

function rate(value: number): string {
  return value < 10 ? String(Number(value.toFixed(1))) : String(Math.round(value));
}
