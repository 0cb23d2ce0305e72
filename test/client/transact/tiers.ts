import { onTestFinished } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { Cacher } from "../../../src/cacher/cacher.ts";
import type { ConnectOptions } from "../../../src/client/calls/options.ts";
import { type Client, connect } from "../../../src/client/connect.ts";
import type { AliasedUpstream } from "../../../src/client/remote/history-alias.ts";
import { RelayedCalls } from "../../../src/client/remote/relayed-calls.ts";
import { RemoteLeases } from "../../../src/client/remote/remote-leases.ts";
import { RemoteStorage } from "../../../src/client/remote/remote-storage.ts";
import { RemoteStore } from "../../../src/client/remote/remote-store.ts";
import { startServer } from "../../../src/server/server.ts";
import { EtcdStorage } from "../../../src/storage/etcd/etcd-storage.ts";
import { EtcdStore } from "../../../src/storage/etcd/etcd-store.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import { MemoryStore } from "../../../src/storage/memory/memory-store.ts";
import type { Storage } from "../../../src/storage/storage.ts";
import type { Store } from "../../../src/storage/store.ts";
import { startReady } from "../../cacher/ready.ts";
import type { Etcd } from "../../etcd/etcd.ts";
import { Relay } from "../../faults/relay.ts";
import { clientOf, newPrefix, silent } from "../../storage/etcd/source.ts";
import { openOnFile } from "../../storage/memory/store-on-file.ts";

/** The resources of each service. */
export const resources = ["a", "b"] as const;

/** A server behind a network that a test can break. */
export interface Served {
  readonly network: Relay;
  readonly port: number;
}

/** Serves a store with caches until the test ends. */
async function serve(store: Store, storageOf: (name: string) => Storage): Promise<Served> {
  const caches = new Map(
    resources.map((name) => {
      const options = { name, storage: storageOf(name), clock: systemClock, logger: silent };
      return [name as string, new Cacher(options)] as const;
    }),
  );
  await Promise.all([...caches.values()].map(startReady));
  const server = await startServer({
    ...{ resources: caches, store, clock: systemClock, logger: silent },
    listen: { host: "127.0.0.1", port: 0 },
  });
  const network = await Relay.to(server.port);
  onTestFinished(async () => {
    await network.close();
    await server.drain(0);
    for (const cacher of caches.values()) await cacher.close();
  });
  return { network, port: server.port };
}

/** Several replicas of a service of one etcd. */
export async function serveEtcd(etcd: Etcd, replicas: number = 1): Promise<Served[]> {
  const prefix = newPrefix();
  const prefixes = new Map(resources.map((name) => [name as string, `${prefix}${name}/`]));
  const served: Served[] = [];
  for (let i = 0; i < replicas; i++) {
    const client = clientOf(etcd, { historyKey: `${prefix}history` });
    onTestFinished(() => client.close());
    const store = new EtcdStore(client, { prefixes });
    const storageOf = (name: string) =>
      new EtcdStorage(client, { prefix: prefixes.get(name) ?? "" });
    served.push(await serve(store, storageOf));
  }
  return served;
}

/** A service of the embedded store. */
export async function serveMemory(store: MemoryStore = new MemoryStore({ clock: systemClock })) {
  onTestFinished(() => store.close());
  return serve(store, (resource) => new MemoryStorage({ store, resource }));
}

/** A service of the embedded store with a file of its own. */
export async function serveFile(): Promise<Served> {
  const { store, close } = await openOnFile();
  onTestFinished(close);
  return serveMemory(store);
}

/** A relay of servers. `names`: how it calls their resources. */
export async function serveRelay(
  upstream: readonly Served[],
  names: (name: string) => string = (name) => name,
): Promise<Served> {
  const client = clientFor(upstream, { relayId: "relay" });
  const calls = new RelayedCalls(client);
  const aliased: AliasedUpstream = {};
  const renamed = resources.map((name) => [name, names(name)] as const);
  const leases = new RemoteLeases({
    ...{ connection: client.connection, clock: systemClock },
    names: new Map(renamed.map(([name, upstreamName]) => [upstreamName, name])),
  });
  const store = new RemoteStore({
    ...{ client: calls, upstream: aliased, leases },
    names: new Map(renamed),
  });
  onTestFinished(() => store.close());
  return serve(store, (name) => {
    return new RemoteStorage({ client: calls, resource: names(name), upstream: aliased });
  });
}

/** A client with connections of its own, through the networks of the servers. */
export function clientFor(
  servers: readonly { readonly network: Pick<Relay, "port"> }[],
  options: Partial<ConnectOptions> = {},
): Client {
  const address = servers.map(({ network }) => `127.0.0.1:${network.port}`);
  const client = connect({
    address,
    timeoutMs: 20_000,
    keepaliveIntervalMs: unshared(),
    ...options,
  });
  onTestFinished(() => client.close());
  return client;
}

let clients = 0;

/** grpc-js shares the connections of clients with the same options. */
function unshared(): number {
  clients++;
  return 30_000 + clients;
}
