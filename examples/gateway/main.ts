/**
 * A gateway for browsers: GET /RESOURCE/PREFIX sends the objects with this prefix and then their changes, as server-sent
 * events. However many browsers there are, and whatever each follows, the service has one stream.
 *
 *     npm run example examples/gateway/main.ts 8080
 *
 *     curl -N http://127.0.0.1:8080/default/ns-1/
 */
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { type AtomicBatch, connect, requiresRelist, type WatchOptions } from "watch-fanout/client";

const [port = "8080"] = process.argv.slice(2);
const client = connect({ address: process.env["WATCH_FANOUT_ADDRESS"] ?? "127.0.0.1:50051" });
const subscription = client.subscribe();

const server = createServer((request, response) => void follow(request, response));
server.maxConnections = 5_000;
server.listen(Number(port), "127.0.0.1", () => {
  const address = server.address();
  if (address !== null && typeof address === "object") console.log(`Port ${address.port}.`);
});

async function follow(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { pathname } = new URL(request.url ?? "/", "http://gateway");
  const [, resource = "", prefix = ""] =
    /^\/([^/]*)\/?(.*)$/.exec(decodeURIComponent(pathname)) ?? [];
  const leaving = new AbortController();
  const { signal } = leaving;
  response.once("close", () => leaving.abort());
  response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
  const scope = { prefix };
  const options: WatchOptions = { scope, signal, delivery: "LATEST_STATE" };
  // A browser that reconnects sends the id of the last event that it got.
  const [, historyId, revision] = /^(.*)@(\d+)$/.exec(`${request.headers["last-event-id"]}`) ?? [];
  let from: WatchOptions =
    revision === undefined
      ? { sendInitialEvents: true }
      : { afterRevision: Number(revision), historyId };
  while (!signal.aborted) {
    try {
      for await (const batch of subscription.watch(resource, { ...options, ...from })) {
        // Until a slow browser has taken this, its watch waits, and no other one does.
        if (!response.write(eventOf(batch))) await once(response, "drain", { signal });
      }
    } catch (error) {
      if (signal.aborted) return;
      if (!requiresRelist(error)) {
        response.end(`event: refused\ndata: ${JSON.stringify(String(error))}\n\n`);
        return;
      }
      // The events in between are lost: the browser gets the state again.
      from = { sendInitialEvents: true };
    }
  }
}

/** One batch as one event, so that the browser applies all of it at once. */
function eventOf({ revision, events, initial, historyId }: AtomicBatch): string {
  const changes = events.map(({ type, object: { key, value } }) => ({
    ...{ type, key },
    value: new TextDecoder().decode(value),
  }));
  const data = JSON.stringify({ revision, isState: initial, changes });
  return `id: ${historyId}@${revision}\ndata: ${data}\n\n`;
}

for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.once(signal, () => {
    server.close();
    server.closeAllConnections();
    client.close();
  });
}
