// The script of the live page: follows a resource by the client library, over the port of the page.

import { bytes, connect, hasReason } from "../../../../client/browser.ts";
import { showObject } from "./object.js";
import { byId, setText } from "./page.js";
import { ObjectTable } from "./table.js";

/** Larger states are not for a page: a prefix or labels make them smaller. In bytes. */
const maxBytes = 64 * 1024 ** 2;
/** Minimum time between two tables, in milliseconds. */
const tableMs = 250;

const fields = ["resource", "prefix", "labels"];
const form = byId("choice");
const table = new ObjectTable((key) => {
  choose(key);
  // Below the table, if there is no room beside it.
  if (innerWidth < 1_000) byId("object-title").focus();
});

let client;
let resources = [];
/** The resource that is shown, or will be once there is a token that may read it. */
let wantedResource;
/** The informer, the selected key, and whether its object has changed since it was shown. */
let informer;
let chosen;
let isChosenChanged = false;
let drawing;

/** Tokens have a header of their own: the port may need the other one for a token of its own. */
function renameTokenHeader() {
  const send = globalThis.fetch;
  globalThis.fetch = (url, init) => {
    const { authorization, ...headers } = init.headers;
    if (authorization !== undefined) headers["x-service-authorization"] = authorization;
    return send(url, { ...init, headers });
  };
}

function report(error) {
  const reason = error?.reason === undefined ? "" : `${error.reason}: `;
  setText(byId("problem"), error === undefined ? "" : `${reason}${error.message}`);
}

function showConnection(text, isBad) {
  setText(byId("connection"), text);
  byId("connection").className = isBad ? "bad" : "muted";
}

async function open() {
  await informer?.stop();
  informer = undefined;
  client?.close();
  resources = [];
  const token = byId("token").value;
  client = connect({ address: "/", maxAttempts: 2, ...(token === "" ? {} : { token }) });
  resources = (await client.resources()).filter(({ isCached }) => isCached);
  byId("resource").replaceChildren(...resources.map(({ name }) => new Option(name)));
  if (resources.length === 0) {
    throw new Error(
      "There is no resource that this caller may read. Enter a token of the service.",
    );
  }
}

/** Follows what the form says. */
async function follow() {
  report(undefined);
  byId("panes").hidden = false;
  await informer?.stop();
  informer = undefined;
  const [name, prefix, labelSelector] = fields.map((field) => byId(field).value);
  wantedResource = name;
  location.replace(`#${new URLSearchParams({ resource: name, prefix, labels: labelSelector })}`);
  const { codec, fields: declared } = resources.find((each) => each.name === name) ?? {};
  table.begin(codec === "json" ? declared : []);
  choose(undefined);
  showConnection("Reading…");
  const next = client.resource(name, bytes).informer({
    ...(prefix === "" ? {} : { scope: { prefix } }),
    ...(labelSelector === "" ? {} : { labelSelector }),
    maxBytes,
    onWatchError: ({ error }) => {
      if (informer !== next) return;
      showConnection("Not connected, retrying", true);
      report(error);
    },
    onRecovered: () => {
      if (informer !== next) return;
      showConnection("Live");
      report(undefined);
    },
  });
  informer = next;
  next.addEventHandler({
    onAdd: (object, isInitialList) => changed(next, object, !isInitialList),
    onUpdate: (_, object) => changed(next, object, true),
    onDelete: (object) => removed(next, object.key),
  });
  next.start();
  await next.waitForSync();
  if (informer === next) showConnection("Live");
  draw();
}

function changed(source, object, isNew) {
  if (source !== informer) return;
  table.set(object, isNew);
  isChosenChanged ||= object.key === chosen;
  draw();
}

function removed(source, key) {
  if (source !== informer) return;
  table.delete(key);
  isChosenChanged ||= key === chosen;
  draw();
}

/** Draws the table, and the object if it has changed, which reads its history: at most every 250 ms. */
function draw() {
  if (drawing !== undefined) return;
  drawing = setTimeout(() => {
    drawing = undefined;
    table.draw(byId("filter").value, chosen);
    if (isChosenChanged) showChosen();
  }, tableMs);
}

function choose(key) {
  chosen = key;
  showChosen();
  draw();
}

function showChosen() {
  isChosenChanged = false;
  const name = byId("resource").value;
  showObject(client, name, chosen, table.get(chosen)).catch((error) => {
    if (!hasReason(error, "INVALID_REQUEST") || client !== undefined) report(error);
  });
}

async function start() {
  try {
    await open();
    setField("resource", wantedResource);
    await follow();
  } catch (error) {
    byId("panes").hidden = true;
    showConnection(error.reason === undefined ? "No data" : "Not connected", true);
    report(error);
  }
}

function setField(field, value) {
  if (value === null) return;
  const before = byId(field).value;
  byId(field).value = value;
  // A resource that is not one of the list.
  if (byId(field).value !== value) byId(field).value = before;
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const isOpen = resources.length > 0 && byId("token").value === (form.dataset.token ?? "");
  form.dataset.token = byId("token").value;
  void (isOpen ? follow().catch(report) : start());
});
byId("resource").addEventListener("change", () => form.requestSubmit());
byId("filter").addEventListener("input", draw);
table.onSort = draw;

renameTokenHeader();
const wanted = new URLSearchParams(location.hash.slice(1));
for (const field of ["prefix", "labels"]) setField(field, wanted.get(field));
wantedResource = wanted.get("resource");
void start();
