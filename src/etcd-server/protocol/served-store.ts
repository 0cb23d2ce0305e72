import { createHash } from "node:crypto";
import type { Clock } from "../../base/clock.ts";
import { headerField } from "../../etcd/wire/response-header.ts";
import type { MemoryStore } from "../../storage/memory/memory-store.ts";

/** The only term: there is one member, which is always the leader. */
export const raftTerm = 1;

/** The embedded store, as the services of etcd's API see it. */
export class ServedStore {
  readonly store: MemoryStore;
  #compacted = 0;
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

  /**
   * The revision of the last compaction, the oldest whose state can be read; 0 before the first. The store has one more, of
   * those that it compacts by itself too: so after a restart this is the same.
   */
  get compacted(): number {
    const { oldest } = this.store;
    const ofStore = oldest === 0 ? 0 : Math.min(oldest + 1, this.revision);
    return Math.max(this.#compacted, ofStore);
  }

  /**
   * Compacts at a revision above `compacted` that is not a future one. The store keeps one revision more than etcd's clients can
   * read, as they may watch from the revision of the compaction.
   */
  async compact(revision: number): Promise<void> {
    if (revision - 1 > this.store.oldest) await this.store.compact(revision - 1);
    this.#compacted = Math.max(this.#compacted, revision);
  }

  get memberId(): bigint {
    this.#identify();
    return this.#memberId;
  }

  /**
   * The field of a response with its header. A restart changes no id, a restore all: what a client knows of revisions does not
   * hold then, as with another cluster.
   */
  header(revision: number = this.revision): Buffer {
    this.#identify();
    const ids = { clusterId: this.#clusterId, memberId: this.#memberId, raftTerm };
    return headerField(ids, revision);
  }

  /** A response with its header and these fields. */
  response(...fields: readonly Buffer[]): Buffer {
    return Buffer.concat([this.header(), ...fields]);
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
