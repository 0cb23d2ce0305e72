import { mkdtempSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pino } from "pino";
import { afterAll } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { EtcdServer } from "../../src/etcd-server/etcd-server.ts";
import { ServedStore } from "../../src/etcd-server/protocol/served-store.ts";
import { MemoryStore, type MemoryStoreOptions } from "../../src/storage/memory/memory-store.ts";
import { RawGrpc } from "../etcd-api/raw-grpc.ts";

/** An embedded store with etcd's API, and a client of it. */
export interface Served {
  readonly store: MemoryStore;
  readonly client: RawGrpc;
  /** Another client, on a connection of its own. */
  connect(): RawGrpc;
  close(): Promise<void>;
}

export async function serveStore(
  options: Partial<MemoryStoreOptions> = {},
  progressIntervalMs: number = 600_000,
): Promise<Served> {
  const folder = mkdtempSync(join(tmpdir(), "etcd-server-"));
  const path = join(folder, "etcd.sock");
  const store = new MemoryStore({ clock: systemClock, ...options });
  const server = new EtcdServer({
    ...{ served: new ServedStore(store), progressIntervalMs, logger: pino({ level: "silent" }) },
    historyKey: Buffer.from("/watchfanout/history"),
    clientUrl: () => "http://127.0.0.1:2379",
  });
  await server.listen(path);
  const clients: RawGrpc[] = [];
  const newClient = (): RawGrpc => {
    const createConnection = () => connect(path);
    const client = new RawGrpc("http://localhost", undefined, { createConnection });
    clients.push(client);
    return client;
  };
  return {
    store,
    client: newClient(),
    connect: newClient,
    close: async () => {
      for (const client of clients) client.close();
      server.close();
      await store.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** One for the tests of the file that calls this at its top. */
export function servedOfFile(options: Partial<MemoryStoreOptions> = {}): () => Promise<Served> {
  let started: Promise<Served> | undefined;
  afterAll(async () => {
    await (await started)?.close();
  });
  return () => {
    started ??= serveStore(options);
    return started;
  };
}
