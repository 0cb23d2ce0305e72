import type { Seeded } from "../faults/seeded.ts";
import { EtcdLeases } from "./etcd-leases.ts";
import {
  applyEntry,
  type Committed,
  type Consensus,
  dropsTombstones,
  type Entry,
  EtcdMember,
} from "./etcd-member.ts";
import { EtcdError, EtcdStore, type TxnResult } from "./etcd-store.ts";
import type { WatchBehaviour } from "./etcd-watch.ts";
import type { Agenda } from "./scheduler.ts";

/** A state that the cluster can be restored to. */
export interface Snapshot {
  readonly store: EtcdStore;
  /** Whether another id is written into the marker key at once. Default: not. */
  readonly isMarked?: boolean;
}

/**
 * The members of the simulated etcd, and what they agree on. Raft itself is not modelled: an entry is agreed on at once if a
 * majority of the members are connected, and each member applies it when it gets there.
 */
export class EtcdCluster implements Consensus {
  readonly members: readonly EtcdMember[];
  /** What a member has that has applied everything. */
  state: EtcdStore;
  /** Whether writes are refused, for lack of space. */
  isFull = false;
  onCommitted: (store: EtcdStore) => void = () => {};
  readonly leases: EtcdLeases;
  #log: Entry[] = [];

  constructor(
    versions: readonly string[],
    agenda: Agenda,
    random: Seeded,
    behaviour: WatchBehaviour,
  ) {
    this.state = new EtcdStore(versions.some(dropsTombstones));
    this.leases = new EtcdLeases(this, agenda);
    this.members = versions.map(
      (version, i) => new EtcdMember(i + 1, version, this, agenda, random.fork(), behaviour),
    );
  }

  get length(): number {
    return this.#log.length;
  }

  entry(index: number): Entry {
    const entry = this.#log[index];
    if (entry === undefined) throw new RangeError(`There is no entry ${index}.`);
    return entry;
  }

  hasQuorum(member: EtcdMember): boolean {
    const connected = this.members.filter(({ isUp, isConnected }) => isUp && isConnected);
    return connected.includes(member) && connected.length * 2 > this.members.length;
  }

  commit(entry: Entry): Committed {
    let result: TxnResult = { revision: this.state.revision, succeeded: true, results: [] };
    let error: EtcdError | undefined;
    const before = this.state.revision;
    try {
      if (this.isFull && takesSpace(entry)) throw noSpace();
      result = applyEntry(this.state, entry);
    } catch (thrown) {
      if (!(thrown instanceof EtcdError)) throw thrown;
      error = thrown;
    }
    if (error === undefined) {
      this.#log.push(entry);
      this.leases.committed(entry);
    }
    if (this.state.revision > before) this.onCommitted(this.state);
    for (const member of this.members) member.notify();
    return { index: this.#log.length, result, error };
  }

  /** Whether most members are connected. */
  get hasLeader(): boolean {
    return this.members.some((member) => this.hasQuorum(member));
  }

  keepAlive(id: number): number {
    return this.leases.keepAlive(id);
  }

  remainingMs(id: number): number | undefined {
    return this.leases.remainingMs(id);
  }

  snapshot(): Snapshot {
    return { store: this.state.copy() };
  }

  /** Puts an older state in the place of all. The members are stopped. */
  restore({ store }: Snapshot): void {
    this.#log = [];
    this.state = store.copy();
    for (const member of this.members) member.reset(store.copy());
    this.leases.restored();
  }
}

function takesSpace(entry: Entry): boolean {
  if (entry.type !== "txn") return entry.type === "grant";
  const { success, failure } = entry.txn;
  return [...success, ...failure].some(({ type }) => type === "put");
}

function noSpace(): EtcdError {
  return new EtcdError(8, "etcdserver: mvcc: database space exceeded");
}
