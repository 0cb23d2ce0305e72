// The object that is chosen: its value as it is now or was, and its history.

import { byId, element, labelOf, numberOf, setText, textOf } from "./page.js";

/** Number of changes in the list. */
const historySize = 30;

/** The key whose history is in the list, and the revision that is shown; undefined: the current one. */
let shownKey;
let shownRevision;
let asked = 0;

/** Shows the object, or that there is none. Rejects if its history can't be read. */
export async function showObject(client, resource, key, current) {
  byId("none").hidden = key !== undefined;
  byId("chosen").hidden = key === undefined;
  setText(byId("object-title"), key === undefined ? "Object" : labelOf(key));
  if (key !== shownKey) {
    shownRevision = undefined;
    byId("history").replaceChildren();
  }
  shownKey = key;
  if (key === undefined) return;
  if (shownRevision === undefined) showVersion(current, current === undefined);
  const turn = ++asked;
  const { events, end } = await client.historyPage(resource, key, { pageSize: historySize });
  if (turn !== asked || key !== shownKey) return;
  // A list that was shown as deleted, or is not in the table, has its last content in its history.
  if (shownRevision === undefined && current === undefined && events[0] !== undefined) {
    showVersion(events[0].object, events[0].type === "DELETED");
  }
  showHistory(events, current);
  const reasons = {
    CREATION: "",
    COMPACTION: "Older changes are compacted.",
    LIMIT: "Older changes take too long to find.",
  };
  setText(byId("history-end"), end === undefined ? "There are older changes." : reasons[end]);
}

function showVersion(object, isDeleted) {
  const facts = byId("facts");
  if (object === undefined) {
    facts.replaceChildren();
    setText(byId("value"), "It does not exist.");
    return;
  }
  const { modRevision, createRevision, version, lease } = object;
  const pairs = [
    [isDeleted ? "Deleted at" : "Revision", numberOf(modRevision)],
    ["Created at", numberOf(createRevision)],
    ["Version", numberOf(version)],
    ["Size", `${numberOf(object.value.byteLength)} bytes`],
    ...(lease === 0n ? [] : [["Lease", String(lease)]]),
  ];
  facts.replaceChildren(
    ...pairs.map(([name, value]) => {
      const pair = element("div");
      pair.append(element("dt", name), element("dd", value));
      return pair;
    }),
  );
  setText(byId("value"), textOf(object));
}

function showHistory(events, current) {
  const isShown = ({ revision }, i) =>
    shownRevision === undefined ? i === 0 : revision === shownRevision;
  byId("history").replaceChildren(
    ...events.map((event, i) => {
      const { type, object } = event;
      const item = element("li");
      const button = element("button", "", { type: "button", "aria-pressed": isShown(event, i) });
      button.append(element("span", numberOf(object.modRevision)), ` ${type.toLowerCase()}`);
      button.addEventListener("click", () => {
        shownRevision = i === 0 ? undefined : event.revision;
        showVersion(i === 0 ? (current ?? object) : object, type === "DELETED");
        showHistory(events, current);
        byId("history").children[i]?.querySelector("button").focus();
      });
      item.append(button);
      return item;
    }),
  );
}
