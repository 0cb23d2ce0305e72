import { isThorough } from "../thorough.ts";
import { storedRevisions, wrongInCaches } from "./cached-states.ts";
import { ChildReplica } from "./child-replica.ts";
import { subscribersIn, watchersIn } from "./clients.ts";
import { type ClusterOptions, EtcdCluster } from "./etcd-cluster.ts";
import { InProcessReplica } from "./in-process-replica.ts";
import { LibraryClient } from "./library-client.ts";
import { Changing, inTime, patienceMs, untilSeen } from "./patience.ts";
import { rawKeyBelow } from "./raw-keys.ts";
import { RecordedReader } from "./recorded-reader.ts";
import type { RecordedSubscriber } from "./recorded-subscriber.ts";
import type { RecordedWatcher } from "./recorded-watcher.ts";
import { RecordedWriter } from "./recorded-writer.ts";
import { ReorderingProxy } from "./reordering-proxy.ts";
import type { Replica, ReplicaOptions } from "./replica.ts";
import { Seeded } from "./seeded.ts";
import type { Snapshot } from "./snapshot-tool.ts";
import { TierReplica } from "./tier-replica.ts";
import { Truth } from "./truth.ts";
import { wrongIn } from "./verdict.ts";
import { Connection } from "./wire.ts";

export interface WorldOptions {
  readonly cluster?: ClusterOptions;
  /** How many replicas run within this process. Default 2. */
  readonly replicas?: number;
  /** How many are processes of their own. Default 0. */
  readonly children?: number;
  /** How many workers each of these has. Default 1: it serves clients itself. */
  readonly workers?: readonly number[];
  /** How many relays each tier below these has. Each follows all of the tier above it. Default: no tier. */
  readonly tiers?: readonly number[];
  readonly replica?: Pick<ReplicaOptions, "auth" | "historyKey" | "historyEvents" | "bulkPrefix">;
  /**
   * Whether replicas get etcd's responses to watches in any order that etcd may choose. Not for faults that pause members:
   * what reorders the responses also answers keepalive pings. Default: as etcd sends them.
   */
  readonly reorders?: boolean;
  /** The content of etcd before the replicas start, by absolute key. */
  readonly before?: Readonly<Record<string, string>>;
  /** Further preparation of etcd before the replicas start. */
  readonly prepare?: (cluster: EtcdCluster) => Promise<void>;
  /** Why streams may end throughout, besides what is usual. */
  readonly reasons?: readonly string[];
  /** How many write at once. Default 2. */
  readonly writers?: number;
  /** Maximum bytes of filling in a value. Default 200. */
  readonly filling?: number;
  /** Pause after each write of a writer, in milliseconds at most. Default 30, in a thorough run 15. */
  readonly writePauseMs?: number;
  /** Pause after each read, in milliseconds at most. Default 160, in a thorough run 40: each has a connection of its own. */
  readonly readPauseMs?: number;
  /** How often writes go through the service. Default 0.3. */
  readonly throughService?: number;
  /** Number of clients of Subscribe. Default 0. They are not forgotten: not for soaks. */
  readonly subscribers?: number;
}

/** Below which the resource's keys are in etcd. */
export const prefix = "/things/";

/** RevisionMatch: what the cache holds now. */
const anyState = 2;

/** Reasons for which a stream may end at any time. */
const usualReasons = ["UPSTREAM_UNAVAILABLE", "NOT_READY", "DRAINING", "REVISION_TOO_NEW"];

/**
 * etcd, replicas in front of it, and clients of all kinds, all of which write down what they see. Faults
 * are done to it from outside; `settle` ends them and waits until every client has seen the end; `wrong`
 * says which promises were broken meanwhile.
 */
export class World {
  readonly random: Seeded;
  readonly cluster: EtcdCluster;
  readonly truth: Truth;
  readonly replicas: readonly Replica[];
  readonly inProcess: readonly InProcessReplica[];
  readonly children: readonly ChildReplica[];
  /** The relays, those of the first tier first. */
  readonly relays: readonly TierReplica[];
  readonly watchers: readonly RecordedWatcher[];
  readonly subscribers: readonly RecordedSubscriber[];
  readonly writers: readonly RecordedWriter[];
  readonly reader: RecordedReader;
  /** Undefined until the first replica is ready. */
  #library: LibraryClient | undefined;
  /** Why streams may end. */
  readonly reasons: Set<string>;
  /** Changes with each write that has ended. */
  readonly writes: { count: number; readonly changing: Changing };
  /** Whether a write that begins now is sure to find etcd with the alarm NOSPACE, and so is not applied if it is refused. */
  isAlarmed = false;
  /** Changes with each response that any watcher receives. */
  readonly delivered: Changing;
  /** The first of etcd's histories that may still be delivered. */
  oldestEra = 0;
  /** Everything up to this revision had been delivered when it was settled last. */
  level = 0;
  #acknowledged = 0;
  readonly #usualReasons: readonly string[];
  readonly #proxies: readonly ReorderingProxy[];

  private constructor(
    cluster: EtcdCluster,
    proxies: readonly ReorderingProxy[],
    inProcess: readonly InProcessReplica[],
    children: readonly ChildReplica[],
    relays: readonly TierReplica[],
    random: Seeded,
    options: WorldOptions,
  ) {
    this.random = random;
    this.#usualReasons = [...usualReasons, ...(options.reasons ?? [])];
    this.reasons = new Set(this.#usualReasons);
    this.cluster = cluster;
    this.#proxies = proxies;
    this.inProcess = inProcess;
    this.children = children;
    this.relays = relays;
    this.replicas = [...inProcess, ...children, ...relays];
    this.truth = new Truth(cluster, prefix);
    const writeEnds = new Changing();
    this.writes = { count: 0, changing: writeEnds };
    this.delivered = new Changing();
    const endpoints = this.replicas;
    const common = { endpoints, era: () => this.oldestEra, acknowledged: () => this.#floor() };
    const {
      throughService = 0.3,
      filling = 200,
      writePauseMs: pauseMs = isThorough ? 15 : 30,
    } = options;
    this.writers = Array.from({ length: options.writers ?? 2 }, (_, i) => {
      const name = `w${i}`;
      return new RecordedWriter(
        {
          ...{ name, cluster, prefix, endpoints, throughService, filling, pauseMs },
          random: random.fork(),
          era: () => this.truth.era.index,
          isAlarmed: () => this.isAlarmed,
        },
        { changed: () => this.#wrote() },
      );
    });
    this.watchers = watchersIn({
      ...common,
      newestEra: () => this.truth.era.index,
      random: random.fork(),
      writes: this.writes,
      delivered: this.delivered,
    });
    this.subscribers = subscribersIn(options.subscribers ?? 0, {
      ...{ ...common, newestEra: () => this.truth.era.index, random: random.fork() },
      onProgress: () => this.delivered.changed(),
    });
    this.reader = new RecordedReader({
      ...{ ...common, newestEra: () => this.truth.era.index },
      ...{ random: random.fork(), pauseMs: options.readPauseMs ?? (isThorough ? 40 : 160) },
    });
  }

  /** Everything runs, every watcher has received something, and writes are in progress. */
  static async open(seed: number, options: WorldOptions = {}): Promise<World> {
    const random = new Seeded(seed);
    const cluster = await EtcdCluster.start(options.cluster);
    const reordering = options.reorders ? cluster.members : [];
    const proxies = await Promise.all(
      reordering.map(({ url }) => ReorderingProxy.to(url, random.fork())),
    );
    const etcd = proxies.length > 0 ? proxies.map(({ port }) => port) : clientPortsOf(cluster);
    for (const [key, value] of Object.entries(options.before ?? {})) {
      const base64 = (text: string): string => Buffer.from(text).toString("base64");
      await cluster.call("kv/put", { key: base64(key), value: base64(value) });
    }
    await options.prepare?.(cluster);
    const of = (name: string): ReplicaOptions => ({ name, prefix, etcd, ...options.replica });
    const inProcess: InProcessReplica[] = [];
    const children: ChildReplica[] = [];
    for (let i = 0; i < (options.replicas ?? 2); i++) {
      inProcess.push(await InProcessReplica.create(of(`replica ${i}`)));
    }
    for (let i = 0; i < (options.children ?? 0); i++) {
      const workers = options.workers?.[i];
      children.push(await ChildReplica.create({ ...of(`child ${i}`), workers }));
    }
    const relays: TierReplica[] = [];
    let above: readonly Replica[] = [...inProcess, ...children];
    for (const [tier, count] of (options.tiers ?? []).entries()) {
      const follows = above;
      const names = Array.from({ length: count }, (_, i) => `relay ${tier + 1}.${i}`);
      above = await Promise.all(names.map((name) => TierReplica.create(name, follows)));
      relays.push(...(above as readonly TierReplica[]));
    }
    const world = new World(cluster, proxies, inProcess, children, relays, random, options);
    try {
      await Promise.all(world.replicas.map((replica) => replica.start()));
      world.truth.start();
      world.goOn();
      world.reader.start();
      for (const client of [...world.watchers, ...world.subscribers]) client.start();
      world.#library = new LibraryClient(world.replicas, random.fork(), {
        readPauseMs: options.readPauseMs ?? (isThorough ? 50 : 160),
      });
      await world.until("every watcher to have begun", () =>
        world.watchers.every(({ level }) => level > 0),
      );
    } catch (error) {
      await world.close();
      throw error;
    }
    return world;
  }

  /** Number of watches of all clients. */
  get watches(): number {
    const shared = this.subscribers.flatMap(({ watches }) => watches);
    return this.watchers.length + shared.length + (this.#library?.size ?? 0);
  }

  /** How often all watches of a Subscribe stream have had progress: those of the library's client, and of all others. */
  get progress(): { readonly library: number; readonly others: number } {
    const others = this.subscribers.reduce((sum, { answers }) => sum + answers, 0);
    return { library: this.#library?.cuts ?? 0, others };
  }

  /** Another client of a replica, closed by the caller; `window`: bytes that one call may have on its way. */
  connectionTo(replica: Replica | undefined, window?: number): Connection {
    if (replica === undefined) throw new Error("There is no such replica.");
    return new Connection(replica.relay.url, window);
  }

  /** Resolves when this many more writes have ended, successfully or not. */
  async afterWrites(count: number): Promise<void> {
    const until = this.writes.count + count;
    const reached = this.writes.changing.until(() => this.writes.count >= until);
    await inTime(() => `${count} writes to end`, reached);
  }

  /** Resolves when the condition holds; it is checked whenever a watcher receives something. */
  async until(what: string, reached: () => boolean): Promise<void> {
    await inTime(() => what, this.delivered.until(reached));
  }

  /** Resolves when no write is under way any more, and none begins. */
  async holdWrites(): Promise<void> {
    await Promise.all(this.writers.map((writer) => writer.stop()));
    // Some read only while something is written.
    for (const watcher of this.watchers) watcher.hurry(true);
  }

  /** Writes continue. */
  goOn(): void {
    for (const watcher of this.watchers) watcher.hurry(false);
    for (const writer of this.writers) writer.start();
  }

  /** Puts or deletes a raw key. Resolves when it is the last change that every replica has; writers pause until `goOn`. */
  async endWithRawKey(index: number, isDelete: boolean): Promise<void> {
    await this.holdWrites();
    const key = rawKeyBelow(prefix, index).toString("base64");
    const put = await this.cluster.call("kv/put", { key, value: "" });
    const last = isDelete ? await this.cluster.call("kv/deleterange", { key }) : put;
    const { revision } = last["header"] as { readonly revision: string };
    await this.untilReplicasBeyond(Number(revision) - 1);
  }

  /** Saves what etcd holds, between writes. */
  async snapshot(): Promise<Snapshot> {
    await this.holdWrites();
    const snapshot = await this.cluster.snapshot();
    this.goOn();
    return snapshot;
  }

  /** Restores etcd from a snapshot. Writers pause until `goOn`. */
  async restore(snapshot: Snapshot): Promise<void> {
    // Each replica's event window begins at its list.
    this.reasons.add("HISTORY_CHANGED").add("REVISION_TOO_OLD");
    await this.holdWrites();
    await this.truth.through(await this.cluster.revision());
    await this.truth.stop();
    this.truth.beginEra(snapshot.revision);
    this.#acknowledged = 0;
    await this.cluster.restore(snapshot);
    this.truth.start();
  }

  /** Resolves when every replica has come further than this revision: those that have not can't know a restore. */
  async untilReplicasBeyond(revision: number): Promise<void> {
    await untilSeen(`every replica to be beyond ${revision}`, async () => {
      for (const replica of this.replicas) {
        const connection = this.connectionTo(replica);
        const listed = await connection.list({}, anyState, 0).finally(() => connection.close());
        if (listed.revision <= revision) return undefined;
      }
      return true;
    });
  }

  /**
   * After a restore, while no client writes: resolves when every replica, or each of those given, is within the
   * new history and names it as etcd does. One that was not beyond the snapshot continues in the new history, and
   * learns that it is one when it connects to etcd again: which it is made to do.
   */
  async untilReplicasFound(among: readonly Replica[] = this.replicas): Promise<void> {
    await untilSeen("every replica to have found the other history", async () => {
      const [id, revision] = [await this.#historyId(), await this.cluster.revision()];
      const missing: Replica[] = [];
      for (const replica of among) {
        const connection = this.connectionTo(replica);
        const listed = await connection.list({}, anyState, 0).finally(() => connection.close());
        if (listed.revision > revision) return undefined;
        if (listed.historyId !== id) missing.push(replica);
      }
      for (const { upstream } of missing) for (const relay of upstream) relay.cut();
      return missing.length === 0 ? true : undefined;
    });
  }

  /** The current value in etcd. */
  async #historyId(): Promise<string> {
    const key = Buffer.from("/watchfanout/history").toString("base64");
    const { kvs = [] } = await this.cluster.call("kv/range", { key });
    const [kv] = kvs as readonly { readonly value: string }[];
    return kv === undefined ? "" : Buffer.from(kv.value, "base64").toString();
  }

  /** Compacts etcd up to its own revision, after all of it has been taken down. */
  async compact(): Promise<number> {
    const revision = await this.cluster.revision();
    await this.truth.through(revision);
    await this.cluster.compact(revision);
    return revision;
  }

  /**
   * Ends all faults, writes to every key again, and waits until every watcher has received that.
   * Returns what is wrong: a client that does not receive it is silent.
   */
  async settle(): Promise<string[]> {
    await this.cluster.heal();
    await Promise.all(this.replicas.map((replica) => replica.heal()));
    await this.holdWrites();
    const level = await this.#lastWrite();
    await this.truth.through(level);
    this.level = level;
    const era = this.truth.era.index;
    const isThere = (watcher: RecordedWatcher): boolean => watcher.isAt(level, era);
    const quiet: string[] = [];
    const behind = (): string[] =>
      this.subscribers.flatMap((subscriber) => subscriber.behind(level, era));
    for (const subscriber of this.subscribers) subscriber.hurry(true);
    try {
      await this.until(
        "every watcher to receive the last write",
        () => this.watchers.every(isThere) && behind().length === 0,
      );
    } catch {
      quiet.push(...behind().map((what) => `Honest: ${what} within ${patienceMs} ms`));
      for (const watcher of this.watchers.filter((one) => !isThere(one))) {
        const last = JSON.stringify(watcher.ends.at(-1) ?? null);
        quiet.push(
          `Honest: ${watcher.place} is at ${watcher.level} and did not receive ${level} within ` +
            `${patienceMs} ms; its last stream ended with ${last}`,
        );
      }
    }
    return quiet;
  }

  /** Settles, and says all that was wrong since the beginning or since `forget`. */
  async wrong(): Promise<string[]> {
    const quiet = await this.settle();
    await this.reader.stop();
    const stored = await storedRevisions(this.cluster, prefix);
    const inLibrary = (await this.#library?.wrong(stored, this.truth.eras)) ?? [];
    const inCaches = await wrongInCaches(this, prefix);
    const { truth, writers, reader, reasons, level } = this;
    const records = this.subscribers.flatMap(({ watches }) => watches);
    const watchers = [...this.watchers, ...records];
    const observed = { truth, watchers, writers, reader, reasons, level };
    const inStreams = this.subscribers.flatMap(({ wrong }) => wrong);
    const wrong = [...quiet, ...wrongIn(observed), ...inStreams, ...inCaches, ...inLibrary];
    this.reader.start();
    return wrong;
  }

  /** After a clean verdict: continues from here, and forgets the past. */
  forget(): void {
    this.oldestEra = this.truth.era.index;
    for (const watcher of this.watchers) watcher.forget();
    for (const writer of this.writers) writer.writes.splice(0);
    this.reader.forget();
    this.#library?.forget();
    const lowest = Math.min(...this.watchers.map(({ level }) => level));
    this.truth.era.forgetBefore(lowest);
    for (const era of this.truth.eras) if (era !== this.truth.era) era.changes = [];
    this.reasons.clear();
    for (const reason of this.#usualReasons) this.reasons.add(reason);
  }

  async close(): Promise<void> {
    const clients = [...this.watchers, ...this.subscribers, this.reader];
    await Promise.all(clients.map((client) => client.stop()));
    // A fault may delay what they wait for; the end of that fault releases it.
    await this.#library?.close();
    const writersStopped = this.holdWrites();
    await Promise.all(this.replicas.map((replica) => replica.stop()));
    await writersStopped;
    await this.truth.stop();
    await Promise.all(this.#proxies.map((proxy) => proxy.close()));
    await this.cluster.stop();
  }

  /** Revisions acknowledged now mean nothing to clients that may still receive an older history. */
  #floor(): number {
    return this.oldestEra === this.truth.era.index ? this.#acknowledged : 0;
  }

  #wrote(): void {
    this.writes.count++;
    for (const writer of this.writers) {
      const { outcome, revision = 0, fromEra, toEra } = writer.writes.at(-1) ?? {};
      const isOfNow = fromEra === this.truth.era.index && toEra === fromEra;
      if (outcome !== "acknowledged" || !isOfNow) continue;
      this.#acknowledged = Math.max(this.#acknowledged, revision);
    }
    this.writes.changing.changed();
  }

  async #lastWrite(): Promise<number> {
    const [writer] = this.writers;
    if (writer === undefined) throw new Error("No writer runs.");
    return untilSeen("the last write", () => writer.writeAll());
  }
}

function clientPortsOf({ members }: EtcdCluster): readonly number[] {
  return members.map(({ clientPort }) => clientPort);
}
