import { createHash } from "node:crypto";
import type { Clock } from "../../base/clock.ts";
import { headerField } from "../../etcd/wire/response-header.ts";
import type { MemoryStore } from "../../storage/memory/memory-store.ts";

/** The only term: there is one member, which is always the leader. */
export const raftTerm = 1;

/** The embedded store, as the services of etcd's API see it. */
export class ServedStore {
  readonly store: MemoryStore;
  #historyId = "";
  #clusterId = 0n;
  #memberId = 0n;

  constructor(store: MemoryStore) {
    this.store = store;
  }

  get clock(): Clock {
    return this.store.clock;
  }

  /** The newest revision that clients may know of. */
  get revision(): number {
    return this.store.revision;
  }

  /** The oldest revision whose state can be read; 0 before the first compaction. */
  get oldest(): number {
    return this.store.oldest;
  }

  get memberId(): bigint {
    this.#identify();
    return this.#memberId;
  }

  /**
   * The field of a response with its header. A restart changes no id, a restore all: what a client knows of revisions is of no
   * use then, as with another cluster.
   */
  header(revision: number = this.revision): Buffer {
    this.#identify();
    const ids = { clusterId: this.#clusterId, memberId: this.#memberId, raftTerm };
    return headerField(ids, revision);
  }

  #identify(): void {
    const { historyId } = this.store;
    if (historyId === this.#historyId) return;
    this.#historyId = historyId;
    const digest = createHash("sha256").update(historyId).digest();
    this.#clusterId = digest.readBigUInt64BE(0) | 1n;
    this.#memberId = digest.readBigUInt64BE(8) | 1n;
  }
}
