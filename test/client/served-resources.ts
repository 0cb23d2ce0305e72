import { onTestFinished } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { Cacher } from "../../src/cacher/cacher.ts";
import type { ConnectOptions } from "../../src/client/calls/options.ts";
import { type Client, connect } from "../../src/client/connect.ts";
import { startServer } from "../../src/server/server.ts";
import { EtcdStorage } from "../../src/storage/etcd/etcd-storage.ts";
import { startReady } from "../cacher/ready.ts";
import type { Etcd } from "../etcd/etcd.ts";
import { Relay } from "../faults/relay.ts";
import { clientOf, newPrefix, silent } from "../storage/etcd/source.ts";

/** Several resources of one etcd, behind a service in this process, and its clients. */
export interface ServedResources {
  /** Reaches the service through the relay. */
  readonly client: Client;
  readonly relay: Relay;
  /** Another client, whose connection nothing disturbs. */
  readonly direct: Client;
}

/** All is closed after the test. */
export async function serveResources(
  etcd: Etcd,
  names: readonly string[],
  options: Partial<ConnectOptions> = {},
): Promise<ServedResources> {
  const clock = systemClock;
  const logger = silent;
  const prefix = newPrefix();
  const etcdClient = clientOf(etcd);
  const resources = new Map<string, Cacher>();
  for (const name of names) {
    const storage = new EtcdStorage(etcdClient, { prefix: `${prefix}${name}/` });
    resources.set(name, new Cacher({ storage, clock, logger, name }));
  }
  const listen = { host: "127.0.0.1", port: 0 };
  const server = await startServer({ resources, listen, clock, logger });
  await Promise.all(Array.from(resources.values(), startReady));
  const relay = await Relay.to(server.port);
  const client = connect({ address: `127.0.0.1:${relay.port}`, ...options });
  const direct = connect({ address: `127.0.0.1:${server.port}` });
  onTestFinished(async () => {
    client.close();
    direct.close();
    await server.drain(0);
    for (const cacher of resources.values()) await cacher.close();
    await etcdClient.close();
    await relay.close();
  });
  return { client, relay, direct };
}
