import {
  agoOf,
  byId,
  bytesOf,
  durationOf,
  element,
  msOf,
  numberOf,
  rateOf,
  setClass,
  setText,
  statesOf,
  svg,
  timeOf,
} from "./format.js";

/** The verdict of the service: its one line, and below it what is behind that. */
export function showVerdict({ verdict, at, service }) {
  const { level, summary, reasons } = verdict;
  setClass(byId("verdict"), level);
  setText(byId("level"), level);
  setText(byId("summary"), summary);
  const lines = reasons.flatMap(({ text, since, detail }, i) => {
    const ago =
      since === undefined ? "" : `, since ${timeOf(since)} UTC (${durationOf(agoOf(since, at))})`;
    const own = i === 0 ? [] : [{ text: `${text}${ago}`, kind: reasons[i].level }];
    return detail === undefined ? own : [...own, { text: detail, kind: "detail" }];
  });
  showReasons(lines);
  // Without the times, which change each second.
  setText(byId("verdict-announced"), [level, ...reasons.map(({ text }) => text)].join("; "));
  document.title = `${level} · ${service.instance} · watch-fanout`;
}

/** What the page says while it can't reach the service. `since`: when it last did, in ISO 8601; undefined: never. */
export function showUnknown(since) {
  setClass(byId("verdict"), "unknown");
  setText(byId("level"), "unknown");
  const known = since === undefined ? "" : ` What is below is of ${timeOf(since)} UTC.`;
  const text = `This page can't reach the service.${known}`;
  setText(byId("summary"), text);
  setText(byId("verdict-announced"), text);
  showReasons([]);
  document.title = "unknown · watch-fanout";
}

function showReasons(lines) {
  const list = byId("reasons");
  while (list.children.length > lines.length) list.lastElementChild.remove();
  for (const [i, { text, kind }] of lines.entries()) {
    const line = list.children[i] ?? list.appendChild(element("li"));
    setText(line, text);
    setClass(line, kind);
  }
}

// Numbers.

const tiles = new Map(
  ["Open streams", "Behind", "Memory", "Event-loop delay", "Refused calls", "Failed calls"].map(
    (title) => {
      const value = element("span", { class: "value" });
      const note = element("span", { class: "note" });
      const tile = element("div", {}, element("dt", {}, title), element("dd", {}, value, note));
      byId("tiles").append(tile);
      return [title, { tile, value, note }];
    },
  ),
);

const filled = svg("rect", { height: 4, width: 0 });
const bar = svg("svg", {
  viewBox: "0 0 100 4",
  preserveAspectRatio: "none",
  "aria-hidden": "true",
});
bar.append(filled);
tiles.get("Memory").value.after(bar);

function show(title, text, note, kind = "") {
  const { tile, value, note: below } = tiles.get(title);
  setText(value, text);
  setText(below, note);
  setClass(tile, kind);
}

function worstOf(processes, read) {
  const known = processes.filter((each) => read(each) !== undefined);
  return known.sort((a, b) => read(b) - read(a))[0];
}

export function nameOf({ worker, isMain }) {
  if (isMain) return "main process";
  return worker === 0 ? "service" : `worker ${worker}`;
}

export function showNumbers({ streamCounts, processes, mainProcess, rates, calls, at }) {
  const all = mainProcess === undefined ? processes : [mainProcess, ...processes];
  const where = (process) => (all.length === 1 ? "" : `, ${nameOf(process)}`);
  if (streamCounts !== undefined) {
    const { total, byState, behind, behindSince, worstLagRevisions = 0 } = streamCounts;
    show("Open streams", numberOf(total), statesOf(byState) || "none");
    const lag = `worst lag ${numberOf(worstLagRevisions)} ${worstLagRevisions === 1 ? "revision" : "revisions"}`;
    const since = behind === 0 ? "" : `, oldest for ${durationOf(agoOf(behindSince, at))}`;
    show("Behind", numberOf(behind), `${lag}${since}`, behind === 0 ? "" : "warn");
  }
  const full = worstOf(all, ({ memory }) => memory && memory.usedBytes / memory.ceilingBytes);
  if (full !== undefined) {
    const { usedBytes, ceilingBytes, limit, pressure } = full.memory;
    const part = Math.min(1, usedBytes / ceilingBytes);
    filled.setAttribute("width", String(100 * part));
    const note = `ceiling of the ${limit}${where(full)}; pressure ${pressure}`;
    const kind = pressure !== "normal" ? "bad" : part >= 0.85 ? "warn" : "";
    show("Memory", `${bytesOf(usedBytes)} of ${bytesOf(ceilingBytes)}`, note, kind);
  } else show("Memory", "–", "not measured yet");
  const slow = worstOf(all, ({ eventLoopDelay }) => eventLoopDelay?.p99Ms);
  if (slow !== undefined) {
    const { p99Ms, maxMs } = slow.eventLoopDelay;
    const note = `p99; at most ${msOf(Math.round(maxMs))} in the last minute${where(slow)}`;
    show("Event-loop delay", msOf(Math.round(p99Ms)), note, p99Ms > 250 ? "warn" : "");
  }
  const limits = Object.entries(rates.refusedPerSecond).sort(([, a], [, b]) => b - a);
  const sum = limits.reduce((before, [, each]) => before + each, 0);
  const note = limits.map(([limit, each]) => `${limit} ${rateOf(each)}`).join(", ");
  showCalls(calls);
  show("Refused calls", `${rateOf(sum)} /s`, note || "no limit is reached", sum > 0 ? "warn" : "");
}

function showCalls({ ended, failed }) {
  const codes = Object.entries(failed).sort(([, a], [, b]) => b - a);
  const sum = codes.reduce((before, [, each]) => before + each, 0);
  const names = codes.map(([code, each]) => `; ${code} ${numberOf(each)}`).join("");
  const note = `of ${numberOf(ended)} in the last minute, without streams${names}`;
  show("Failed calls", numberOf(sum), note, sum > 0 ? "warn" : "");
}

// Warnings.

const shownProblems = 5;

function problemOf({ at, firstAt, count, level, text }) {
  const times = count === 1 ? "" : `× ${numberOf(count)}, first ${timeOf(firstAt)}, last `;
  return element(
    "li",
    {},
    element("b", { class: level === "warn" ? "warn" : "bad" }, level),
    element("span", { class: "times" }, times, element("time", { datetime: at }, timeOf(at))),
    element("span", { class: "text" }, text),
  );
}

export function showProblems(problems) {
  const list = byId("problems");
  const key = JSON.stringify(problems);
  if (list.dataset.key === key) return;
  list.dataset.key = key;
  const older = byId("older-problems");
  const rest = problems.slice(shownProblems);
  list.replaceChildren(...problems.slice(0, shownProblems).map(problemOf));
  older.querySelector("ol").replaceChildren(...rest.map(problemOf));
  setText(older.querySelector("summary"), `${rest.length} more`);
  older.hidden = rest.length === 0;
  byId("no-problems").hidden = problems.length > 0;
}
