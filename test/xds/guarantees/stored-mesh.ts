import type { Operation } from "../../../src/client/calls/transaction.ts";
import type { Client } from "../../../src/client/client.ts";
import { versionAt } from "../../../src/xds/stored-types.ts";
import { anyOf, contentOf } from "../discovery-client.ts";
import { type FollowedType, idOf, type ResourceId, type StoredHistory } from "./stored-history.ts";

/** The messages of the types. */
export const messages: Readonly<Record<FollowedType, string>> = {
  cds: "envoy.config.cluster.v3.Cluster",
  eds: "envoy.config.endpoint.v3.ClusterLoadAssignment",
  lds: "envoy.config.listener.v3.Listener",
  rds: "envoy.config.route.v3.RouteConfiguration",
};

/** A change of one key. */
export type Entry =
  | { readonly type: "cds" | "lds"; readonly name: string; readonly isDeleted: boolean }
  | {
      readonly type: "rds";
      readonly name: string;
      readonly isDeleted: boolean;
      readonly to: string;
    }
  | {
      readonly type: "eds";
      readonly name: string;
      readonly instance: string;
      readonly port: number;
    };

/** The size of a large value: more than a client that does not read takes from the network, in characters. */
const largeSize = 70_000;

/** What was written: stored resources, whose routes are to clusters that exist, and instances. Written by one writer. */
export class StoredMesh {
  readonly history: StoredHistory;
  readonly #client: Client;
  /** By route, its cluster. */
  readonly #routes = new Map<string, string>();
  /** By service and instance, its address. */
  readonly #instances = new Map<string, Map<string, string>>();
  #number = 0;

  constructor(client: Client, history: StoredHistory) {
    this.#client = client;
    this.history = history;
  }

  /** Writes all in one transaction. */
  async write(entries: readonly Entry[], isLarge: boolean): Promise<void> {
    const values = new Map<string, Buffer | undefined>();
    const changes = new Map<ResourceId, string | undefined>();
    const put = (type: Exclude<FollowedType, "eds">, name: string, more: object): void => {
      const value = anyOf(messages[type], { name, ...more });
      values.set(`${type} ${name}`, value);
      changes.set(idOf(type, name), contentOf(value).toString("latin1"));
    };
    for (const entry of entries) {
      const { type, name } = entry;
      if (type === "eds") this.#writeInstance(entry, values, changes);
      else if (entry.isDeleted) {
        if (type === "rds") this.#routes.delete(name);
        values.set(`${type} ${name}`, undefined);
        changes.set(idOf(type, name), undefined);
      } else if (type === "rds") {
        this.#routes.set(name, entry.to);
        put(type, name, this.#routeTo(entry.to));
      } else put(type, name, this.#marked(type, isLarge));
    }
    for (const cluster of new Set(this.#routes.values())) {
      const id = idOf("cds", cluster);
      const stored = changes.has(id) ? changes.get(id) : this.history.last.get(id);
      if (stored === undefined) put("cds", cluster, this.#marked("cds", isLarge));
    }
    const operations = [...values].map(([path, value]): Operation => {
      const [resource = "", key = ""] = path.split(" ");
      return value === undefined
        ? { type: "delete", resource, key }
        : { type: "put", resource, key, value };
    });
    // Clients may have it before the writer knows.
    this.history.write(changes);
    const { revision, historyId } = await this.#client.transaction({ operations });
    this.history.written(changes.values(), versionAt(revision, historyId, Buffer.alloc(0)));
  }

  #writeInstance(
    { name, instance, port }: Extract<Entry, { type: "eds" }>,
    values: Map<string, Buffer | undefined>,
    changes: Map<ResourceId, string | undefined>,
  ): void {
    const instances = this.#instances.get(name) ?? new Map<string, string>();
    this.#instances.set(name, instances);
    const address = `10.0.0.${instance}`;
    if (port === 0) instances.delete(instance);
    else instances.set(instance, `${address}:${port}`);
    const value = port === 0 ? undefined : Buffer.from(JSON.stringify({ address, port }));
    values.set(`eds ${name}/${instance}`, value);
    const sorted = [...instances].sort(([a], [b]) => (a < b ? -1 : 1));
    const content = sorted.map(([, at]) => at).join();
    changes.set(idOf("eds", name), content === "" ? undefined : content);
  }

  /** No two values of a type are equal. */
  #marked(type: "cds" | "lds", isLarge: boolean): object {
    const mark = `${"x".repeat(isLarge ? largeSize : 0)}${++this.#number}`;
    return type === "cds" ? { alt_stat_name: mark } : { stat_prefix: mark };
  }

  #routeTo(cluster: string): object {
    const routes = [{ match: { prefix: "/" }, route: { cluster } }];
    return { virtual_hosts: [{ name: `${++this.#number}`, domains: ["*"], routes }] };
  }
}
