/**
 * A dashboard in a browser: counts the objects of a resource by their phase, as they change. Vite is one of the bundlers that
 * serve it; its page has the origin in --web-origin. Copy the folder, and in it:
 *
 *     npm install watch-fanout-client vite
 *     npx watch-fanout serve --web-origin http://localhost:5173
 *     npx vite
 *
 * In a checkout of this project: `node scripts/build.ts client`, `npm start -- --web-origin http://localhost:5173`, and
 * `npx vite examples/web-dashboard`.
 */
import { connect, jsonValues } from "watch-fanout-client/browser";

const { address, resource } = document.body.dataset;
const state = document.querySelector("#state");
const informer = connect({ address })
  .resource(resource, jsonValues())
  .informer({
    onWatchError: ({ error }) => (state.textContent = `Retrying: ${error.message}`),
    onRecovered: () => (state.textContent = "Live"),
  });
const lister = informer.lister();

let drawing;
function draw() {
  drawing = undefined;
  const counts = Object.groupBy(lister.list(), ({ value }) => value.status?.phase ?? "Unknown");
  const rows = Object.entries(counts)
    .sort()
    .map(([phase, pods]) => {
      const row = document.createElement("tr");
      for (const text of [phase, pods.length]) row.insertCell().textContent = text;
      return row;
    });
  document.querySelector("tbody").replaceChildren(...rows);
}
informer.addEventHandler({ onChange: () => (drawing ??= requestAnimationFrame(draw)) });
informer.start();
await informer.waitForSync();
state.textContent = "Live";
