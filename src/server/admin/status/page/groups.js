import {
  agoOf,
  byId,
  durationOf,
  element,
  numberOf,
  scopeOf,
  setText,
  stateKinds,
} from "./format.js";
import { listGroup, readStreams, streamColumns, streamRow } from "./streams.js";
import { fill, fillRow, head } from "./table.js";

/** Number of groups that are open at once, and of the streams that are shown of each. */
const maxOpen = 4;
const maxMembers = 20;

const columns = [
  {
    ...{ title: "Client", kind: "client", isHeading: true },
    make: () => element("button", { type: "button", class: "expand", "aria-expanded": "false" }),
  },
  { title: "State" },
  { title: "Streams", kind: "number" },
  { title: "Behind", kind: "number" },
  { title: "Behind for", kind: "number" },
  { title: "Worst lag", kind: "number" },
  { title: "Resource" },
  { title: "Scope", kind: "long" },
];

/** Those of the members that their group does not have. */
const memberColumns = streamColumns
  .filter(({ title }) => !["Identity", "Resource", "State"].includes(title))
  .map(({ title, kind }) => ({ title, kind }));

/** The rows, by the key of the group. `members` is shown below the row while the group is open. */
const rows = new Map();
const body = byId("groups").tBodies[0];
head(byId("groups"), columns);

function keyOf({ id, state }) {
  return id ?? `others ${state}`;
}

function rowOf(group, at) {
  const { identity, caller, resource, state, streams, behind, behindSince } = group;
  const { worstLagRevisions } = group;
  return [
    caller ?? identity ?? "other clients",
    { text: state, kind: stateKinds[state] ?? "" },
    numberOf(streams),
    { text: numberOf(behind), kind: behind > 0 ? "warn" : "" },
    behindSince === undefined ? "–" : durationOf(agoOf(behindSince, at)),
    { text: numberOf(worstLagRevisions), kind: worstLagRevisions > 0 ? "warn" : "" },
    resource ?? "–",
    scopeOf(group),
  ];
}

/** Shows the groups in their order. Rows stay the same elements, so that a focused button keeps the focus. */
export function showGroups({ streamCounts, at }) {
  if (streamCounts === undefined) return;
  const { groups, otherGroups, otherStreams } = streamCounts;
  const shown = new Set(groups.map(keyOf));
  for (const [key, { line, members }] of rows) {
    if (shown.has(key)) continue;
    line.remove();
    members?.remove();
    rows.delete(key);
  }
  const focused = document.activeElement;
  let next = body.firstElementChild;
  for (const group of groups) {
    const row = rows.get(keyOf(group)) ?? addRow(group, at);
    row.group = group;
    fillRow(row.line, columns, rowOf(group, at));
    for (const each of [row.line, row.members]) {
      if (each === undefined) continue;
      if (each === next) next = next.nextElementSibling;
      else body.insertBefore(each, next);
    }
  }
  if (focused !== document.activeElement && body.contains(focused)) focused.focus();
  const others =
    otherGroups === 0
      ? ""
      : `${numberOf(otherStreams)} streams in ${numberOf(otherGroups)} further groups.`;
  setText(byId("other-groups"), groups.length === 0 ? "No stream is open." : others);
}

function addRow(group, at) {
  const row = { line: element("tr"), members: undefined, group };
  fillRow(row.line, columns, rowOf(group, at));
  const button = row.line.querySelector("button");
  button.disabled = group.id === undefined;
  button.addEventListener("click", () => (row.members === undefined ? open(row) : close(row)));
  rows.set(keyOf(group), row);
  return row;
}

function open(row) {
  const opened = [...rows.values()].filter(({ members }) => members !== undefined);
  if (opened.length >= maxOpen) close(opened[0]);
  const { group } = row;
  const table = element("table", {}, element("thead"), element("tbody"));
  table.prepend(element("caption", { class: "hidden" }, "Streams of the group"));
  head(table, memberColumns);
  const more = element("p", { class: "muted" });
  row.members = element("tr", { class: "members" });
  const cell = element("td", { colspan: String(columns.length) });
  cell.append(table, more);
  if (group.streams > maxMembers) {
    const all = element("button", { type: "button", class: "plain" }, "List all of them");
    all.addEventListener("click", () => listGroup(row.group));
    cell.append(all);
  }
  row.members.append(cell);
  row.line.after(row.members);
  row.line.querySelector("button").setAttribute("aria-expanded", "true");
  void load(row);
}

function close(row) {
  row.members?.remove();
  row.members = undefined;
  row.line.querySelector("button").setAttribute("aria-expanded", "false");
}

async function load(row) {
  const { members, group } = row;
  const note = members.querySelector("p");
  try {
    const parameters = { sort: "lag", order: "desc", limit: maxMembers, group: group.id };
    const { items, matched } = await readStreams(parameters);
    const rowsOf = items.map((stream) =>
      streamRow(stream).filter((_, i) => isMemberColumn(streamColumns[i])),
    );
    fill(members.querySelector("tbody"), memberColumns, rowsOf);
    const shown = `The ${items.length} that lag most of ${numberOf(matched)}.`;
    setText(note, items.length < matched ? shown : "");
  } catch (error) {
    setText(note, `The streams can't be read: ${error.message}`);
  }
}

function isMemberColumn({ title }) {
  return memberColumns.some((column) => column.title === title);
}

/** Reads the streams of the open groups again. */
export function refreshGroups() {
  for (const row of rows.values()) if (row.members !== undefined) void load(row);
}
