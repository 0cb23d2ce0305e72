// The list of single streams: sorted, searched and paged by the service. It is read while it is open.

import { byId, durationOf, numberOf, scopeOf, setText, stateKinds, statesOf } from "./format.js";
import { fill, head } from "./table.js";

const pageSize = 50;
const requestMs = 15_000;
const searchDelayMs = 250;

export const streamColumns = [
  { title: "Identity", kind: "long", sort: "identity", isHeading: true },
  { title: "Resource", sort: "resource" },
  { title: "State", sort: "state" },
  { title: "Scope", kind: "long", sort: "scope" },
  { title: "Selectors", kind: "long" },
  { title: "Age", kind: "number", sort: "age" },
  { title: "Behind for", kind: "number" },
  { title: "Lag", kind: "number", sort: "lag" },
  { title: "Buffer", kind: "number", sort: "buffer" },
  { title: "Sent", kind: "number", sort: "sent" },
  { title: "Worker", kind: "number" },
];

const view = { sort: "lag", order: "desc", search: "", group: "", cursors: [""], isAsked: false };
let request;
let nextCursor;

export function streamRow(stream) {
  const { identity, caller, resource, state, labelSelector, fieldSelector, worker } = stream;
  const { lagRevisions, bufferFill, behindSeconds } = stream;
  return [
    caller ?? identity,
    resource ?? "–",
    { text: state, kind: stateKinds[state] ?? "" },
    scopeOf(stream),
    [labelSelector, fieldSelector].filter((each) => each !== undefined).join("; ") || "–",
    durationOf(stream.ageSeconds),
    { text: durationOf(behindSeconds), kind: behindSeconds === undefined ? "" : "warn" },
    { text: numberOf(lagRevisions), kind: lagRevisions > 0 ? "warn" : "" },
    bufferFill === undefined ? "–" : `${Math.round(bufferFill * 100)} %`,
    numberOf(stream.messagesSent),
    worker === 0 ? "–" : String(worker),
  ];
}

/** Reads a page of streams. Rejects with an Error with a text for the user. */
export async function readStreams(parameters, signals = []) {
  const signal = AbortSignal.any([...signals, AbortSignal.timeout(requestMs)]);
  const response = await fetch(`/status.json?${new URLSearchParams(parameters)}`, { signal });
  if (!response.ok) throw new Error(await response.text());
  return (await response.json()).streams;
}

async function load() {
  request?.abort();
  const own = new AbortController();
  request = own;
  const { sort, order, search, group, cursors } = view;
  const page = { sort, order, search, group, limit: pageSize, cursor: cursors.at(-1) };
  try {
    const streams = await readStreams(page, [own.signal]);
    if (!own.signal.aborted) show(streams);
  } catch (error) {
    if (own.signal.aborted) return;
    setText(byId("matched"), `The streams can't be read: ${error.message}`);
  } finally {
    if (request === own) request = undefined;
  }
}

function show({ total, matched, byState, items, next }) {
  fill(byId("stream-table").tBodies[0], streamColumns, items.map(streamRow));
  const isAll = view.search === "" && view.group === "";
  const shown = isAll ? numberOf(total) : `${numberOf(matched)} of ${numberOf(total)}`;
  const page = view.cursors.length === 1 ? "" : `, page ${view.cursors.length}`;
  const states = statesOf(byState);
  setText(byId("matched"), `${shown} streams${states === "" ? "" : `: ${states}`}${page}`);
  // Updates are not announced, only what the reader has asked for.
  if (view.isAsked) setText(byId("announced"), byId("matched").textContent);
  view.isAsked = false;
  nextCursor = next;
  byId("next").disabled = next === undefined;
  byId("previous").disabled = view.cursors.length === 1;
  byId("first").disabled = view.cursors.length === 1;
}

function showSort() {
  for (const cell of document.querySelectorAll("#stream-table th[data-sort]")) {
    if (cell.dataset.sort !== view.sort) cell.removeAttribute("aria-sort");
    else cell.setAttribute("aria-sort", view.order === "asc" ? "ascending" : "descending");
  }
}

/** Shows the page that `cursors` ends with. */
function goTo(cursors) {
  view.cursors = cursors;
  view.isAsked = true;
  void load();
}

/** Opens the list with the streams of one group. */
export function listGroup(group) {
  setGroup(group.id, `Only ${group.caller ?? group.identity}, ${group.state}, ${scopeOf(group)}.`);
  byId("all-streams").open = true;
  byId("clear-group").focus();
}

function setGroup(id, text) {
  view.group = id;
  byId("only-group").hidden = id === "";
  setText(byId("only-group").firstElementChild, text);
  goTo([""]);
}

/** Reads the page again. A request that takes longer than the interval is waited for. */
export function refreshStreams() {
  const isShown = byId("all-streams").open && !byId("pause").checked;
  if (isShown && request === undefined) void load();
}

head(byId("stream-table"), streamColumns);
showSort();

byId("stream-table").tHead.addEventListener("click", ({ target }) => {
  const sort = target.closest("th[data-sort] button")?.parentElement.dataset.sort;
  if (sort === undefined) return;
  const isText = ["identity", "resource", "state", "scope"].includes(sort);
  if (view.sort === sort) view.order = view.order === "asc" ? "desc" : "asc";
  else view.order = isText ? "asc" : "desc";
  view.sort = sort;
  showSort();
  goTo([""]);
});

let searching;
byId("search").addEventListener("input", ({ target }) => {
  clearTimeout(searching);
  searching = setTimeout(() => {
    view.search = target.value;
    goTo([""]);
  }, searchDelayMs);
});
byId("search-form").addEventListener("submit", (event) => event.preventDefault());
byId("all-streams").addEventListener("toggle", refreshStreams);
byId("clear-group").addEventListener("click", () => {
  setGroup("", "");
  byId("search").focus();
});
byId("first").addEventListener("click", () => goTo([""]));
byId("previous").addEventListener("click", () => goTo(view.cursors.slice(0, -1)));
byId("next").addEventListener("click", () => {
  if (nextCursor !== undefined) goTo([...view.cursors, nextCursor]);
});
