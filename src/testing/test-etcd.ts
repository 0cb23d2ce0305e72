import { randomUUID } from "node:crypto";
import type { Logger } from "pino";
import { systemClock } from "../base/clock.ts";
import { EtcdClient } from "../etcd/client/etcd-client.ts";
import { EtcdStorage } from "../storage/etcd/etcd-storage.ts";
import type { Storage } from "../storage/storage.ts";

/** A real etcd as the store of a test service, below a prefix that no other one has. */
export class TestEtcd {
  readonly #etcd: EtcdClient;
  readonly #prefix = `/watch-fanout-test/${randomUUID()}/`;

  /** `endpoint` is such as "http://127.0.0.1:2379". */
  constructor(endpoint: string, logger: Logger) {
    this.#etcd = new EtcdClient({ endpoints: [endpoint], clock: systemClock, logger });
  }

  /** Opens a resource, until the storage is closed. */
  open(resource: string): Storage {
    return new EtcdStorage(this.#etcd, {
      prefix: `${this.#prefix}${encodeURIComponent(resource)}/`,
    });
  }

  /** Deletes everything below the prefix. Rejects if etcd can't be reached. */
  async close(): Promise<void> {
    const whole = new EtcdStorage(this.#etcd, { prefix: this.#prefix });
    const at = { match: "LINEARIZABLE" } as const;
    try {
      const { items } = await whole.list({ prefix: "", limit: 0, at, keysOnly: true });
      await Promise.all(items.map(({ key }) => whole.delete({ key })));
    } finally {
      await this.#etcd.close();
    }
  }
}
