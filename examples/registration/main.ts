/**
 * A service registers itself with a lease and is found: it listens on a free port, and its address is known for as long as it
 * runs. When it is stopped, its address is deleted at once; when it is killed, after the length of its lease. In terminals:
 *
 *     npm start -- --resource services=/services/
 *
 *     npm run example examples/registration/main.ts serve greeter
 *     npm run example examples/registration/main.ts serve greeter
 *
 *     npm run example examples/registration/main.ts find greeter
 *
 * A heartbeat is no write: thousands of registered services cost the store nothing.
 */
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { connect, Session } from "watch-fanout/client";

const [command, name] = process.argv.slice(2);
const client = connect({ address: process.env["WATCH_FANOUT_ADDRESS"] ?? "127.0.0.1:50051" });
const stopping = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => stopping.abort());

if (command === "serve" && name !== undefined) await serve(name);
else if (command === "find" && name !== undefined) await find(name);
else throw new Error("Usage: main.ts serve NAME | find NAME");
client.close();

async function serve(service: string): Promise<void> {
  const server = createServer((_, response) => response.end(`I am ${service}.\n`));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { address, port } = server.address() as AddressInfo;

  await using session = await Session.open(client, {
    ttlMs: 5_000,
    onLost: ({ message }) => console.log(`No longer registered: ${message}`),
    onRestored: () => console.log("Registered again."),
  });
  await session.put("services", `${service}/${port}`, Buffer.from(`${address}:${port}`));
  console.log(`Registered as ${service}/${port}.`);
  if (!stopping.signal.aborted) await once(stopping.signal, "abort");
  server.close();
}

async function find(service: string): Promise<void> {
  const scope = { prefix: `${service}/` };
  const addresses = new Map<string, string>();
  const options = { scope, sendInitialEvents: true, signal: stopping.signal };
  for await (const { events } of client.watch("services", options)) {
    for (const { type, object } of events) {
      if (type === "DELETED") addresses.delete(object.key);
      else addresses.set(object.key, Buffer.from(object.value).toString());
    }
    console.log(`${service}: ${[...addresses.values()].sort().join(" ") || "nowhere"}`);
  }
}
