import type { Seeded } from "../faults/seeded.ts";
import { EtcdError, EtcdStore, type Txn, type TxnResult } from "./etcd-store.ts";
import { WatchableStore, type WatchBehaviour } from "./etcd-watch.ts";
import type { Agenda } from "./scheduler.ts";

/** What all members agree on, in this order: etcd's raft log. */
export type Entry =
  | { readonly type: "txn"; readonly txn: Txn }
  | { readonly type: "compact"; readonly revision: number }
  /** Of a lease, whose time to live is in seconds. */
  | { readonly type: "grant"; readonly id: number; readonly ttl: number }
  | { readonly type: "revoke"; readonly id: number };

const noChange: TxnResult = { revision: 0, succeeded: true, results: [] };

/** Applies an entry. Throws what etcd does for one that it refuses. */
export function applyEntry(store: EtcdStore, entry: Entry): TxnResult {
  if (entry.type === "txn") return store.txn(entry.txn);
  if (entry.type === "compact") store.compact(entry.revision);
  else if (entry.type === "grant") store.grant(entry.id, entry.ttl);
  else store.revoke(entry.id);
  return { ...noChange, revision: store.revision };
}

/** The outcome of an entry. */
export interface Committed {
  /** How many entries there are with it. */
  readonly index: number;
  readonly result: TxnResult;
  /** Why every member refuses it. */
  readonly error: EtcdError | undefined;
}

/** What a member needs of the others. */
export interface Consensus {
  /** Number of entries. */
  readonly length: number;
  entry(index: number): Entry;
  /** Whether this member reaches most of the others. */
  hasQuorum(member: EtcdMember): boolean;
  commit(entry: Entry): Committed;
  /** The leader prolongs a lease. Returns its time to live in seconds; 0: it does not exist. */
  keepAlive(id: number): number;
  /** How long a lease lives without another call, in milliseconds; undefined: it does not exist. */
  remainingMs(id: number): number | undefined;
}

/** How long a member's clients wait for the others, in milliseconds (etcd's request timeout). */
const requestTimeoutMs = 7_000;

/** How long a member without a leader waits until it ends the streams that require one, in milliseconds. */
const leaderLossMs = 3_000;

/** The first versions of 3.5 that are supported lose the deletions at a compacted revision (etcd issue 18089). */
export function dropsTombstones(version: string): boolean {
  return /^3\.5\.1[345]$/.test(version);
}

const requestTimedOut = (): EtcdError => new EtcdError(14, "etcdserver: request timed out");

interface Waiting {
  /** Runs when the member has applied this many entries. */
  readonly index: number;
  readonly run: () => void;
}

/** A member of the simulated etcd: applies the entries of the cluster at its own pace, and serves what it has applied. */
export class EtcdMember {
  readonly id: number;
  readonly version: string;
  readonly watches: WatchableStore;
  readonly #cluster: Consensus;
  readonly #agenda: Agenda;
  readonly #random: Seeded;
  store: EtcdStore;
  /** How long it takes to apply an entry, in milliseconds: up to twice as much. */
  lagMs = 0.2;
  isUp = true;
  /** Whether it reaches the other members. */
  #isConnected = true;
  #applied = 0;
  #isApplying = false;
  #waiting: Waiting[] = [];
  /** Those of its streams that end when it has no leader. */
  readonly #needLeader = new Set<() => void>();
  /** Changes with each start: what was under way before has no effect. */
  #life = 0;

  constructor(
    id: number,
    version: string,
    cluster: Consensus,
    agenda: Agenda,
    random: Seeded,
    behaviour: WatchBehaviour,
  ) {
    this.id = id;
    this.version = version;
    this.store = new EtcdStore(dropsTombstones(version));
    this.#cluster = cluster;
    this.#agenda = agenda;
    this.#random = random;
    this.watches = new WatchableStore(() => this.store, agenda, random, {
      ...behaviour,
      withholdsProgressBeforeStart: version.startsWith("3.6"),
    });
  }

  get isConnected(): boolean {
    return this.#isConnected;
  }

  /** How many entries it has applied. */
  get applied(): number {
    return this.#applied;
  }

  /** Linearizable reads run once the member has what was agreed when they came. */
  async linearizable<T>(read: (store: EtcdStore) => T): Promise<T> {
    await this.#untilApplied(() => this.#cluster.length);
    return read(this.store);
  }

  /** Resolves when this member has applied it. A rejection does not mean that it will not happen. */
  async propose(entry: Entry): Promise<TxnResult> {
    const life = this.#life;
    await this.#delay(this.lagMs, "propose");
    this.#check(life);
    if (!this.#cluster.hasQuorum(this)) {
      await this.#delay(requestTimeoutMs, "timeout");
      throw requestTimedOut();
    }
    const result = this.#cluster.commit(entry);
    await this.#untilApplied(() => result.index);
    this.#check(life);
    if (result.error !== undefined) throw result.error;
    return result.result;
  }

  /** Asks the leader. */
  async keepAlive(id: number): Promise<number> {
    return this.#ofLeader(() => this.#cluster.keepAlive(id));
  }

  async remainingMs(id: number): Promise<number | undefined> {
    return this.#ofLeader(() => this.#cluster.remainingMs(id));
  }

  async #ofLeader<T>(read: () => T): Promise<T> {
    const life = this.#life;
    await this.#delay(this.lagMs, "asks the leader");
    this.#check(life);
    if (!this.#cluster.hasQuorum(this)) {
      await this.#delay(requestTimeoutMs, "timeout");
      throw requestTimedOut();
    }
    return read();
  }

  /** New entries are there. */
  notify(): void {
    if (this.#isApplying || !this.isUp || !this.#isConnected) return;
    if (this.#applied >= this.#cluster.length) return;
    this.#isApplying = true;
    const life = this.#life;
    this.#agenda.after(this.lagMs * 2 * this.#random.next(), `member ${this.id} applies`, () => {
      if (life !== this.#life) return;
      this.#isApplying = false;
      if (!this.isUp || !this.#isConnected) return;
      // A snapshot may have brought all entries meanwhile.
      if (this.#applied >= this.#cluster.length) return;
      this.#apply(this.#cluster.entry(this.#applied));
      this.notify();
    });
  }

  /** Takes the state of another member in the place of the entries between, as raft's snapshots do. */
  installSnapshot(from: EtcdMember): void {
    if (from.#applied <= this.#applied) return;
    this.store = from.store.copy();
    this.#applied = from.#applied;
    this.watches.restored();
    this.#runWaiting();
  }

  /** Loses, or finds, the other members. */
  connect(isConnected: boolean): void {
    this.#isConnected = isConnected;
    if (isConnected) {
      this.#life++;
      this.#isApplying = false;
      this.notify();
      return;
    }
    const life = this.#life;
    this.#agenda.after(leaderLossMs, `member ${this.id} has no leader`, () => {
      if (life !== this.#life || this.#isConnected) return;
      for (const end of [...this.#needLeader]) end();
    });
  }

  /** `end` is called when there is no leader. Returns the function that removes it. */
  requireLeader(end: () => void): () => void {
    this.#needLeader.add(end);
    return () => this.#needLeader.delete(end);
  }

  /** The process ends. Its connections are closed by the caller. */
  stop(): void {
    this.isUp = false;
    this.#life++;
    this.#isApplying = false;
    this.#waiting = [];
    this.watches.clear();
    this.#needLeader.clear();
  }

  start(): void {
    this.isUp = true;
    this.notify();
  }

  /** Starts with this state, and no entries. */
  reset(store: EtcdStore): void {
    this.store = store;
    this.#applied = 0;
  }

  #apply(entry: Entry): void {
    const before = this.store.revision;
    try {
      applyEntry(this.store, entry);
    } catch {
      // Every member refuses it. The result for its client is that of the cluster.
    }
    this.#applied++;
    if (this.store.revision > before) this.watches.changed(this.store.revision);
    this.#runWaiting();
  }

  #runWaiting(): void {
    const ready = this.#waiting.filter(({ index }) => index <= this.#applied);
    if (ready.length === 0) return;
    this.#waiting = this.#waiting.filter(({ index }) => index > this.#applied);
    for (const { run } of ready) run();
  }

  async #untilApplied(index: () => number): Promise<void> {
    const life = this.#life;
    await this.#delay(this.lagMs, "read index");
    this.#check(life);
    const needed = index();
    if (!this.#cluster.hasQuorum(this)) {
      await this.#delay(requestTimeoutMs, "timeout");
      throw requestTimedOut();
    }
    if (this.#applied < needed) {
      await new Promise<void>((resolve, reject) => {
        const late = this.#agenda.after(requestTimeoutMs, "timeout", () =>
          reject(requestTimedOut()),
        );
        const run = (): void => {
          late.cancel();
          resolve();
        };
        this.#waiting.push({ index: needed, run });
      });
    }
    this.#check(life);
  }

  /** Whatever it answers now would come from another process. */
  #check(life: number): void {
    if (!this.isUp) throw new EtcdError(14, "etcdserver: server stopped");
    if (life !== this.#life && !this.#isConnected) throw requestTimedOut();
  }

  #delay(ms: number, what: string): Promise<void> {
    return new Promise((resolve) => {
      this.#agenda.after(ms * (1 + this.#random.next()), `member ${this.id}: ${what}`, resolve);
    });
  }
}
