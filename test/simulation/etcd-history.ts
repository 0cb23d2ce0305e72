import type { Event, Kv } from "../etcd-api/watch-client.ts";
import type { EtcdCluster } from "./etcd-cluster.ts";
import { includes, type Keys, type KeyValue } from "./etcd-store.ts";

/** A state of the history that it can be put back to. */
export interface EtcdPast {
  readonly events: readonly Event[];
  readonly revision: number;
  readonly compactions: ReadonlySet<number>;
}

/** Everything that happened in the simulated etcd, of all keys: what clients of its API are judged by. No compaction shortens it. */
export class EtcdHistory {
  #events: Event[] = [];
  /** The current revision. */
  revision = 1;
  /** All revisions that were compacted. */
  readonly compactions = new Set<number>();
  readonly #newest = new Map<string, Kv>();

  /** Follows the cluster, beside what follows it already. */
  constructor(cluster: EtcdCluster) {
    const others = cluster.onCommitted;
    cluster.onCommitted = (store) => {
      others(store);
      const { revision: at } = store;
      this.revision = at;
      for (const { key, kv, revision } of cluster.state.eventsOf(everything, at, at)) {
        const now = kv === undefined ? deleted(key, revision) : kvOf(kv);
        const previous = this.#newest.get(key);
        this.#events.push({ type: kv === undefined ? "DELETE" : "PUT", kv: now, previous });
        if (kv === undefined) this.#newest.delete(key);
        else this.#newest.set(key, now);
      }
    };
  }

  /** The changes of keys from one revision on, before another, in order. */
  between(keys: Keys, from: number, before: number): Event[] {
    return this.#events.filter(({ kv }) => {
      const revision = Number(kv.mod);
      return revision >= from && revision < before && includes(keys, kv.key);
    });
  }

  /** What was below the keys at a revision, by the keys' bytes. */
  stateAt(keys: Keys, revision: number): Kv[] {
    const state = new Map<string, Kv>();
    for (const { type, kv } of this.between(keys, 0, revision + 1)) {
      if (type === "PUT") state.set(kv.key, kv);
      else state.delete(kv.key);
    }
    return [...state.values()].sort((one, other) => (one.key < other.key ? -1 : 1));
  }

  /** How often a value was written to a key, and where last. */
  writesOf(key: string, value: string): { readonly count: number; readonly revision: number } {
    const found = this.#events.filter(({ kv }) => kv.key === key && kv.value === value);
    return { count: found.length, revision: Number(found.at(-1)?.kv.mod ?? 0) };
  }

  past(): EtcdPast {
    const compactions = new Set(this.compactions);
    return { events: [...this.#events], revision: this.revision, compactions };
  }

  restore({ events, revision, compactions }: EtcdPast): void {
    this.#events = [...events];
    this.revision = revision;
    this.compactions.clear();
    for (const at of compactions) this.compactions.add(at);
    this.#newest.clear();
    for (const { type, kv } of events) {
      if (type === "PUT") this.#newest.set(kv.key, kv);
      else this.#newest.delete(kv.key);
    }
  }
}

const everything = { key: "", end: "\0" };

function kvOf({ key, value, createRevision, modRevision, version, lease }: KeyValue): Kv {
  return {
    ...{ key, value, create: String(createRevision), mod: String(modRevision) },
    ...{ version: String(version), lease: String(lease) },
  };
}

function deleted(key: string, revision: number): Kv {
  return { key, value: "", create: "0", mod: String(revision), version: "0", lease: "0" };
}
