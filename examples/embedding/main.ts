/**
 * Adds the services to a grpc-js server of a program, beside those that it has: `addTo`. The program caches a store of its
 * own, here an embedded one, and writes to it.
 *
 *     npm run example examples/embedding/main.ts 127.0.0.1:50061
 *
 *     bin/watch-fanout list --address 127.0.0.1:50061 --resource settings
 */
import { Server, ServerCredentials } from "@grpc/grpc-js";
import { pino } from "pino";
import { addTo, Cacher, systemClock as clock, MemoryStorage } from "watch-fanout";

const [address = "127.0.0.1:50061"] = process.argv.slice(2);
const logger = pino({ level: "warn" });
const settings = new Cacher({
  storage: new MemoryStorage({ clock }),
  ...{ clock, logger, name: "settings" },
});
const ready = new Promise<void>((resolve) => settings.onReadyChange(() => resolve()));
settings.start();
await ready;

// A server with other services of the program, whose options apply.
const server = new Server({ "grpc.max_receive_message_length": 2 * 1024 ** 2 });
const service = addTo(server, {
  resources: new Map([["settings", settings]]),
  ...{ clock, logger },
});
server.bindAsync(address, ServerCredentials.createInsecure(), (error, port) => {
  if (error !== null) throw error;
  console.log(`Serving the resource settings on port ${port}.`);
});
await settings.put({ key: "color", value: Buffer.from('"green"') });

for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.once(signal, () => {
    // Streams get a last bookmark and DRAINING, then the server ends.
    service.drain();
    server.tryShutdown(() => void settings.close());
  });
}
