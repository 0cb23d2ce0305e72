import { pino } from "pino";
import { onTestFinished } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { Cacher } from "../../../src/cacher/cacher.ts";
import { type ServerOptions, startServer } from "../../../src/server/server.ts";
import type { BatchGetRequest } from "../../../src/wire/generated/watchfanout/v1/BatchGetRequest.ts";
import type { DeletePrefixRequest } from "../../../src/wire/generated/watchfanout/v1/DeletePrefixRequest.ts";
import type { TransactRequest } from "../../../src/wire/generated/watchfanout/v1/TransactRequest.ts";
import { listWatchService, writeService } from "../../../src/wire/services.ts";
import { startReady } from "../../cacher/ready.ts";
import type { OpenedStore } from "../../storage/store/opened.ts";
import { TestClient } from "../test-client.ts";

/** A client with the methods of transactions. */
export function transactingBy(client: TestClient) {
  return {
    client,
    transact: (request: TransactRequest) => client.unary(writeService.Transact, request),
    deletePrefix: (request: DeletePrefixRequest) =>
      client.unary(writeService.DeletePrefix, request),
    batchGet: (request: BatchGetRequest) => client.unary(listWatchService.BatchGet, request),
  };
}

/** Serves the resources `a` and `b` of a store, with caches. */
export async function serveStore(opened: OpenedStore, options: Partial<ServerOptions> = {}) {
  const { store, a, b, close } = opened;
  const logger = pino({ level: "silent" });
  const caches = new Map<string, Cacher>();
  for (const [name, storage] of Object.entries({ a, b })) {
    caches.set(name, new Cacher({ name, storage, clock: systemClock, logger }));
  }
  await Promise.all([...caches.values()].map(startReady));
  const server = await startServer({
    ...{ resources: caches, store, clock: systemClock, logger },
    listen: { host: "127.0.0.1", port: 0 },
    ...options,
  });
  const client = new TestClient(server.port);
  onTestFinished(async () => {
    client.close();
    await server.drain(0);
    for (const cacher of caches.values()) await cacher.close();
    await close();
  });
  return { ...transactingBy(client), caches };
}
