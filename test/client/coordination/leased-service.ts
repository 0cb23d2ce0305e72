import { onTestFinished } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { Cacher } from "../../../src/cacher/cacher.ts";
import { type Client, connect } from "../../../src/client/connect.ts";
import { type RunningServer, startServer } from "../../../src/server/server.ts";
import { EtcdStorage } from "../../../src/storage/etcd/etcd-storage.ts";
import { EtcdStore } from "../../../src/storage/etcd/etcd-store.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import { MemoryStore } from "../../../src/storage/memory/memory-store.ts";
import type { Storage } from "../../../src/storage/storage.ts";
import type { Store } from "../../../src/storage/store.ts";
import { startReady } from "../../cacher/ready.ts";
import { CuttingProxy } from "../../etcd/cutting-proxy.ts";
import type { Etcd } from "../../etcd/etcd.ts";
import { clientOf, newPrefix, silent } from "../../storage/etcd/source.ts";
import { openOnFile } from "../../storage/memory/store-on-file.ts";
import { keptOpen } from "../kept-open.ts";

/** Opens the store of the resource `locks` for one replica. */
type OpenStore = () => { readonly store: Store; readonly storage: Storage };

/** A service of the resource `locks` with leases, of one replica or more, which end after the test. */
export class LeasedService {
  readonly #open: OpenStore;
  readonly #replicas: RunningServer[] = [];

  private constructor(open: OpenStore) {
    this.#open = open;
  }

  static onEtcd(etcd: Etcd): LeasedService {
    const prefix = newPrefix();
    return new LeasedService(() => {
      const client = clientOf(etcd);
      const store = new EtcdStore(client, { prefixes: new Map([["locks", prefix]]) });
      onTestFinished(async () => {
        await store.close();
        await client.close();
      });
      return { store, storage: new EtcdStorage(client, { prefix }) };
    });
  }

  static embedded(): LeasedService {
    return LeasedService.#inProcess(new MemoryStore({ clock: systemClock }));
  }

  static async onFile(): Promise<LeasedService> {
    const { store, close } = await openOnFile();
    onTestFinished(close);
    return LeasedService.#inProcess(store);
  }

  static #inProcess(store: MemoryStore): LeasedService {
    const storage = new MemoryStorage({ store, resource: "locks" });
    onTestFinished(async () => {
      await storage.close();
      await store.close();
    });
    return new LeasedService(() => ({ store, storage: keptOpen(storage) }));
  }

  /** Starts a replica, and returns its address. */
  async start(): Promise<string> {
    const { store, storage } = this.#open();
    const [clock, logger, name] = [systemClock, silent, "locks"];
    const cacher = new Cacher({ storage, clock, logger, name });
    await startReady(cacher);
    const listen = { host: "127.0.0.1", port: 0 };
    const resources = new Map([[name, cacher]]);
    const server = await startServer({ resources, store, listen, clock, logger });
    this.#replicas.push(server);
    onTestFinished(async () => {
      await server.drain(0);
      await cacher.close();
    });
    return `127.0.0.1:${server.port}`;
  }

  /** Ends all connections of a replica at once, and accepts none. */
  async kill(index: number): Promise<void> {
    await this.#replicas[index]?.drain(0);
  }
}

/** A client that is closed after the test. */
export function openClient(address: string | readonly string[]): Client {
  const client = connect({ address });
  onTestFinished(() => client.close());
  return client;
}

/** A client whose network a test can cut. */
export async function cuttableClient(address: string): Promise<[Client, CuttingProxy]> {
  const proxy = await CuttingProxy.to(`http://${address}`);
  onTestFinished(() => proxy.close().catch(() => {}));
  return [openClient(new URL(proxy.url).host), proxy];
}
