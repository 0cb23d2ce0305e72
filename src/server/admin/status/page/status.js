// The script of the status page: follows the updates of the service. A hidden page is not updated.

import { agoOf, byId, durationOf, setClass, setText, timeOf } from "./format.js";
import { refreshGroups, showGroups } from "./groups.js";
import { showNumbers, showProblems, showUnknown, showVerdict } from "./overview.js";
import { draw } from "./plots.js";
import { refreshStreams } from "./streams.js";
import { showTables } from "./tables.js";
import { showXds } from "./xds.js";

const streamsMs = 2_000;
const retryMs = 5_000;

let events;
let retrying;
/** The time of the service at the last update. */
let lastAt;

function show(overview) {
  const { service, at } = overview;
  setText(byId("instance"), service.instance);
  const age = durationOf(agoOf(service.startedAt, at));
  setText(byId("service"), `${service.version}, Node.js ${service.node}, started ${age} ago`);
  showVerdict(overview);
  showNumbers(overview);
  showProblems(overview.problems);
  showGroups(overview);
  showTables(overview);
  showXds(overview);
  draw(overview);
}

function follow() {
  clearTimeout(retrying);
  events = new EventSource("/status/events");
  events.onmessage = ({ data }) => {
    const overview = JSON.parse(data);
    lastAt = overview.at;
    // Not announced each second.
    byId("connection").removeAttribute("role");
    setText(byId("connection"), `updated ${timeOf(lastAt)} UTC`);
    setClass(byId("connection"), "muted");
    show(overview);
  };
  events.onerror = () => {
    byId("connection").setAttribute("role", "status");
    setText(byId("connection"), "Not connected, retrying");
    setClass(byId("connection"), "bad");
    showUnknown(lastAt);
    if (events.readyState !== EventSource.CLOSED) return;
    // It was refused, such as in the drain.
    retrying = setTimeout(() => {
      if (!document.hidden) follow();
    }, retryMs);
  };
}

function refresh() {
  if (document.hidden) return;
  refreshStreams();
  refreshGroups();
}

document.addEventListener("visibilitychange", () => {
  events.close();
  if (document.hidden) return;
  follow();
  refresh();
});

follow();
setInterval(refresh, streamsMs);
