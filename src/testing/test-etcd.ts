import { randomUUID } from "node:crypto";
import type { Logger } from "pino";
import { systemClock } from "../base/clock.ts";
import { EtcdClient } from "../etcd/client/etcd-client.ts";
import { EtcdStorage } from "../storage/etcd/etcd-storage.ts";
import { EtcdStore } from "../storage/etcd/etcd-store.ts";
import type { Storage } from "../storage/storage.ts";

/** A real etcd as the store of a test service, below a prefix that no other one has. */
export class TestEtcd {
  /** What the resources share. */
  readonly shared: EtcdStore;
  readonly #etcd: EtcdClient;
  readonly #prefixes: ReadonlyMap<string, string>;

  /** `endpoint` is such as "http://127.0.0.1:2379". */
  constructor(endpoint: string, resources: readonly string[], logger: Logger) {
    this.#etcd = new EtcdClient({ endpoints: [endpoint], clock: systemClock, logger });
    const prefix = `/watch-fanout-test/${randomUUID()}/`;
    this.#prefixes = new Map(
      resources.map((name) => [name, `${prefix}${encodeURIComponent(name)}/`]),
    );
    this.shared = new EtcdStore(this.#etcd, { prefixes: this.#prefixes });
  }

  /** Opens a resource, until the storage is closed. */
  open(resource: string): Storage {
    return new EtcdStorage(this.#etcd, { prefix: this.#prefixes.get(resource) ?? "" });
  }

  /** Deletes all objects, at most 10,000 of each resource. Rejects if etcd can't be reached. */
  async close(): Promise<void> {
    try {
      for (const resource of this.#prefixes.keys()) {
        await this.shared.deletePrefix({ resource, prefix: "" });
      }
    } finally {
      await this.#etcd.close();
    }
  }
}
