import { pino } from "pino";
import { hasReason } from "../../src/base/errors.ts";
import type { Cacher } from "../../src/cacher/cacher.ts";
import { wrongInCaches } from "../faults/cached-states.ts";
import { watchersIn } from "../faults/clients.ts";
import { LibraryClient } from "../faults/library-client.ts";
import { Changing } from "../faults/patience.ts";
import { rawKeyBelow } from "../faults/raw-keys.ts";
import { RecordedReader } from "../faults/recorded-reader.ts";
import type { RecordedWatcher } from "../faults/recorded-watcher.ts";
import { RecordedWriter } from "../faults/recorded-writer.ts";
import { Seeded } from "../faults/seeded.ts";
import type { Era } from "../faults/truth.ts";
import { wrongIn } from "../faults/verdict.ts";
import type { WatchRecord } from "../faults/watch-record.ts";
import { reliable } from "../guarantees/latest-state.ts";
import { CoordinatingClients } from "./coordinating-clients.ts";
import { EtcdAccount, JsonMember } from "./etcd-account.ts";
import { EtcdApiClients } from "./etcd-api-clients.ts";
import { EtcdCluster, type Snapshot } from "./etcd-cluster.ts";
import type { EtcdPast } from "./etcd-history.ts";
import { dropsTombstones } from "./etcd-member.ts";
import { EtcdServer } from "./etcd-server.ts";
import type { EtcdStore, Operation } from "./etcd-store.ts";
import { beginFault, type Disturbed, type Fault } from "./faults.ts";
import { Network } from "./network.ts";
import { PartsClients } from "./parts-clients.ts";
import type { Processes } from "./processes.ts";
import { ReadingClients } from "./reading-clients.ts";
import { firstRoot, type ReplicaOptions, SimulatedReplica } from "./replica.ts";
import type { Scenario } from "./scenario.ts";
import type { Scheduler } from "./scheduler.ts";
import type { TraceRecorder } from "./trace-recorder.ts";
import { TransactingClients } from "./transacting-clients.ts";

/** Below which the resource's keys are in etcd. */
const prefix = "/things/";

/** How long anything may take that must come when all faults are over, in milliseconds of simulated time. */
const patienceMs = 180_000;

/** Reasons for which a stream may end at any time. */
const usualReasons = [
  ...["UPSTREAM_UNAVAILABLE", "NOT_READY", "DRAINING", "REVISION_TOO_NEW"],
  // A window of few events.
  ...["SLOW_CONSUMER", "REVISION_TOO_OLD"],
];

/** Holds the id of etcd's history. */
const markerKey = "/watchfanout/history";

/** The beginning of an id of a history that an operator has written. */
const foreignId = "operator-";

const firstWorker = 101;

const memberHost = (i: number): number => 11 + i;

/** What is outside of the processes. */
interface Outside {
  readonly scheduler: Scheduler;
  readonly network: Network;
  readonly processes: Processes;
}

/**
 * etcd, replicas in front of it, relays, and clients of all kinds, which record what they see: those of the tests with real
 * processes (test/faults), on a simulated network.
 */
export class World implements Disturbed {
  readonly network: Network;
  readonly cluster: EtcdCluster;
  readonly servers: readonly EtcdServer[];
  readonly replicas: readonly SimulatedReplica[];
  /** Those that faults are done to. */
  readonly watchers: Disturbed["watchers"];
  readonly reasons = new Set(usualReasons);
  readonly #scenario: Scenario;
  readonly scheduler: Scheduler;
  readonly #random: Seeded;
  readonly #account: EtcdAccount;
  readonly #writers: readonly RecordedWriter[];
  readonly #watchers: readonly RecordedWatcher[];
  readonly #reader: RecordedReader;
  readonly #parts: PartsClients;
  readonly #transacting: TransactingClients;
  readonly #coordinating: CoordinatingClients;
  readonly #delivered = new Changing();
  readonly #writes = { count: 0, changing: new Changing() };
  readonly #members: readonly JsonMember[];
  readonly #errors: string[] = [];
  readonly #apiClients: EtcdApiClients;
  #restores: Promise<void> = Promise.resolve();
  #library: LibraryClient | undefined;
  #acknowledged = 0;
  /** The newest revision that etcd was ever compacted at. */
  #compacted = 0;
  #isOver = false;
  /** Whether etcd was restored without another id. */
  #isUnmarked = false;
  /** How often replicas had started when an id was last written that is not the service's. */
  #startsAtMark = 0;

  constructor(
    scenario: Scenario,
    { scheduler, network, processes }: Outside,
    logLevel: string,
    recorder?: TraceRecorder,
  ) {
    const random = new Seeded(scenario.seed ^ 0x5eed);
    this.#scenario = scenario;
    this.scheduler = scheduler;
    this.#random = random;
    if (mayLoseHistory(scenario)) this.reasons.add("HISTORY_LOST");
    // All clients are one caller: some wait too long for their turn if the reads of others are held.
    if (scenario.hasDeepReads) this.reasons.add("RESUME_LIMITED");
    this.network = network;
    this.cluster = new EtcdCluster(scenario.members, scheduler, random.fork(), scenario.etcd);
    this.servers = this.cluster.members.map(
      (member, i) =>
        new EtcdServer(member, { host: Network.address(0, memberHost(i)), port: 2_379 }),
    );
    this.#account = new EtcdAccount(this.cluster, prefix);
    recorder?.follow(this.cluster, this.#account);
    const logger = pino(
      // Reading the clock would let time pass.
      { level: logLevel, base: null, timestamp: false },
      { write: (line: string) => this.#logged(line) },
    );
    this.replicas = replicasOf(scenario, { network, processes, logger, recorder });
    const apiUrls = this.replicas.flatMap(({ relay, hasEtcdApi }) => (hasEtcdApi ? relay.url : []));
    this.#apiClients = new EtcdApiClients(scenario, this.cluster, prefix, apiUrls);
    const endpoints = this.replicas;
    this.#members = this.cluster.members.map(
      (member) => new JsonMember(member, scheduler, random.fork()),
    );
    const members = this.#members;
    const written = {
      get healthy() {
        return members.filter(({ isHealthy }) => isHealthy);
      },
    };
    const newestEra = (): number => this.#account.era.index;
    const eras = { era: () => 0, newestEra, acknowledged: () => this.#floor };
    this.#writers = Array.from({ length: scenario.writers }, (_, i) => {
      const options = { throughService: 0.4, filling: 200, pauseMs: scenario.writePauseMs };
      return new RecordedWriter(
        {
          ...{ name: `w${i}`, cluster: written, prefix, endpoints, ...options },
          ...{ random: random.fork(), era: newestEra },
          trace: recorder && ((name, step) => recorder.written(name, step)),
        },
        { changed: () => this.#wrote() },
      );
    });
    const all = watchersIn({
      ...{ endpoints, ...eras, random: random.fork() },
      ...{ writes: this.#writes, delivered: this.#delivered },
      trace: recorder && ((name, step) => recorder.watched(name, step)),
    });
    this.#watchers = all.filter((_, i) => scenario.watchers.includes(i));
    if (recorder !== undefined) recorder.watchers = this.#watchers;
    const around = { endpoints, ...eras, writes: this.#writes, delivered: this.#delivered };
    const { seed, parts, reading, transacting, coordinating } = scenario;
    this.#transacting = new TransactingClients(seed, transacting, { endpoints, newestEra });
    const { cluster } = this;
    this.#coordinating = new CoordinatingClients(seed, coordinating, { endpoints, cluster });
    const compacted = (): number => this.#compacted;
    const readers = new ReadingClients(seed, reading, around, compacted);
    this.#parts = new PartsClients(seed, parts, around, readers);
    this.watchers = [...this.#watchers, ...this.#parts.disturbed];
    this.#reader = new RecordedReader({
      ...{ endpoints, ...eras, random: random.fork(), pauseMs: 200 },
      trace: recorder && ((step) => recorder.read(step)),
    });
  }

  /** Runs the scenario. Resolves to all that was wrong. */
  async live(): Promise<string[]> {
    const { durationMs, faults, hasReader, hasLibrary } = this.#scenario;
    for (const server of this.servers) server.start();
    await this.#pause(1);
    await Promise.all(this.replicas.map((replica) => replica.start()));
    await this.#untilReady();
    this.#startWrites();
    for (const watcher of this.#watchers) watcher.start();
    this.#parts.start();
    if (hasReader) this.#reader.start();
    this.#apiClients.start();
    if (hasLibrary) {
      const { librarySubscribes } = this.#scenario.reading;
      this.#library = new LibraryClient(this.replicas, this.#random.fork(), {
        subscribes: librarySubscribes,
      });
    }
    const disturbing = faults.map((fault) => this.#disturb(fault));
    await this.#pause(durationMs);
    this.#isOver = true;
    await Promise.all(disturbing);
    const wrong = await this.#verdict();
    await this.#close();
    return wrong;
  }

  compact(by: number): void {
    const { revision, compacted } = this.cluster.state;
    const least = Math.max(compacted + 1, revision - 40);
    this.compactAt(least + Math.floor(by * (revision - least)));
  }

  compactAt(at: number): void {
    const { revision, compacted } = this.cluster.state;
    if (at <= compacted || at > revision) return;
    const { members, keepsNewest } = this.#scenario;
    if (at === revision && keepsNewest && members.some(dropsTombstones)) return;
    this.reasons.add("HISTORY_LOST");
    this.#apiClients.history.compactions.add(at);
    this.#compacted = Math.max(this.#compacted, at);
    this.cluster.commit({ type: "compact", revision: at });
  }

  snapshot(isMarked: boolean): () => Promise<void> {
    const snapshot = {
      isMarked,
      ...{ ...this.cluster.snapshot(), era: this.#account.era },
      past: this.#apiClients.history.past(),
    };
    return () => {
      this.#restores = this.#restores.then(() => this.#restore(snapshot));
      return this.#restores;
    };
  }

  changeRawKey(index: number, isDelete: boolean): void {
    const key = rawKeyBelow(prefix, index).toString("latin1");
    const operation = isDelete
      ? ({ type: "delete", key } as const)
      : ({ type: "put", key, value: "" } as const);
    this.#commit(operation);
  }

  #commit(operation: Operation): void {
    const txn = { compare: [], success: [operation], failure: [] };
    this.cluster.commit({ type: "txn", txn });
  }

  /**
   * Puts etcd back to the snapshot, without another id once every replica has come further: one that has not can't know that.
   * No client writes until every replica has found it, so that no client receives two histories as one. Nor to before an id
   * that is not the service's, once a replica has started since, which can't know that the snapshot's was replaced.
   */
  async #restore(snapshot: WorldSnapshot): Promise<void> {
    const { isMarked } = snapshot;
    const { revision } = snapshot.store;
    await this.#holdWrites();
    if (!isMarked) await this.#healReplicas();
    const { revision: before } = this.cluster.state;
    if (before <= revision + 1) return;
    if (!isMarked && this.#mayTakeBack(snapshot)) return;
    if (!isMarked) {
      this.#isUnmarked = true;
      await this.#until("every replica to be beyond the snapshot", () =>
        this.#caches.every((cacher) => (cacher?.stats().revision ?? 0) > revision),
      );
    }
    this.reasons.add("HISTORY_CHANGED");
    await this.#apiClients.stop();
    this.#acknowledged = 0;
    this.scheduler.trace(`etcd is restored to ${revision}`);
    for (const server of this.servers) server.stop();
    this.#account.beginEra(revision, snapshot.era);
    this.cluster.restore(snapshot);
    this.#apiClients.history.restore(snapshot.past);
    if (isMarked) this.#mark(before);
    for (const server of this.servers) server.start();
    await this.#until("every replica to have found the other history", () => this.#haveFound());
    if (this.#isOver) return;
    this.#startWrites();
    this.#apiClients.start();
  }

  /** Writes another id, and so much that every revision that a replica may ask for is one of this history as well. */
  #mark(beyond: number): void {
    const value = `${foreignId}${this.#account.era.index}`;
    const { isFull } = this.cluster;
    // An operator makes room first.
    this.cluster.isFull = false;
    this.#commit({ type: "put", key: markerKey, value });
    this.#startsAtMark = this.#starts;
    while (this.cluster.state.revision < beyond + 3) this.#writeOther();
    this.cluster.isFull = isFull;
  }

  get #starts(): number {
    return this.replicas.reduce((sum, { starts }) => sum + starts, 0);
  }

  /** Whether a replica may take the id that a restore would bring back for a new one. */
  #mayTakeBack({ store }: WorldSnapshot): boolean {
    const isForeign = this.#historyId?.startsWith(foreignId) === true;
    return isForeign && idIn(store) !== this.#historyId && this.#starts > this.#startsAtMark;
  }

  get #historyId(): string | undefined {
    return idIn(this.cluster.state);
  }

  /** Whether every replica is in the newest history. Those that are not connect again, and learn of it. */
  #haveFound(): boolean {
    const historyId = this.#historyId;
    const { revision } = this.cluster.state;
    const isMissing = (cacher: Cacher | undefined): boolean =>
      (cacher?.stats().revision ?? Infinity) > revision || cacher?.currentHistoryId !== historyId;
    const missing = this.replicas.filter(({ caches }) => caches.some(isMissing));
    for (const { upstream } of missing) {
      for (const link of upstream) if (this.#random.chance(0.002)) this.network.cut(link);
    }
    return missing.length === 0;
  }

  async #disturb(fault: Fault): Promise<void> {
    await this.#pause(fault.atMs);
    if (this.#isOver) return;
    this.scheduler.trace(`fault ${fault.kind} begins`);
    const end = await beginFault(this, fault);
    await this.#pause(fault.forMs);
    this.scheduler.trace(`fault ${fault.kind} ends`);
    await end();
  }

  /** Ends all faults, writes to every key, and waits until every watcher has that. */
  async #verdict(): Promise<string[]> {
    await this.#holdWrites();
    for (const watcher of [...this.#watchers, ...this.#parts.disturbed]) watcher.hurry(true);
    this.cluster.isFull = false;
    await this.#healReplicas();
    await this.#untilReady();
    const level = await this.#lastWrite();
    for (const watcher of this.watchers) watcher.comeBack();
    const quiet = await this.#behind(level);
    await this.#reader.stop();
    await this.#parts.stopReading();
    const late = await this.#apiBehind();
    await this.#apiClients.stop();
    const stored = this.#account.stored();
    const inLibrary = (await this.#library?.wrong(stored, this.#account.eras)) ?? [];
    const observed = {
      ...{ truth: this.#account, watchers: this.#records, writers: this.#writers },
      ...{ reader: this.#reads, reasons: this.reasons, level },
      areRestoresMarked: !this.#isUnmarked,
      lastRevisions: this.#account.eras.map(({ revision }) => revision),
    };
    return [
      ...[...quiet, ...wrongIn(observed), ...inLibrary, ...(await this.#wrongInCaches())],
      ...this.#wrongInStates(),
      ...this.#internalErrors(),
      ...[...late, ...this.#apiClients.wrong, ...this.#parts.wrong(this.#account.eras)],
      ...this.#transacting.wrong(this.#account.eras),
      ...this.#coordinating.wrong(this.#account.era),
      ...this.#errors,
    ];
  }

  /** What the clients of watches have received, each of its own. */
  get #records(): readonly WatchRecord[] {
    return [...this.#watchers, ...this.#parts.records];
  }

  get #reads() {
    const readers = [this.#reader, ...this.#parts.readers];
    return {
      reads: readers.flatMap(({ reads }) => reads),
      failed: readers.flatMap(({ failed }) => failed),
      histories: this.#parts.histories,
    };
  }

  /** LATEST_STATE: what a client has at each resume point, also behind changes that its replica has missed. */
  #wrongInStates(): string[] {
    return this.#records.flatMap((watcher) => {
      if (!watcher.continuesAfterLoss) return [];
      return watcher.sequences.flatMap((recorded) => {
        const { fromEra, toEra } = recorded;
        const eras = this.#account.eras.slice(fromEra, toEra + 1);
        const wrong = eras.map((era) => reliable(watcher.sequenceOf(recorded), era.changes));
        if (wrong.some(({ length }) => length === 0)) return [];
        return (wrong[0] ?? []).map((what) => `${watcher.name}: Reliable: ${what}`);
      });
    });
  }

  /** Errors that only a defect explains: of calls, and caches that differ from etcd. */
  #logged(line: string): void {
    this.scheduler.note(`log ${line.trimEnd()}`);
    const { level, msg, err } = JSON.parse(line) as LogLine;
    if (level < errorLevel || expectedErrors.has(msg)) return;
    this.#errors.push(`Logged: ${msg}: ${err?.message}`);
  }

  /** No fault explains them. */
  #internalErrors(): string[] {
    return this.#writers.flatMap(({ writes }) =>
      writes.flatMap(({ id, reason }) => (reason === "INTERNAL" ? [`Internal: ${id} failed`] : [])),
    );
  }

  async #wrongInCaches(): Promise<string[]> {
    const inProcess = this.replicas.flatMap(({ name, cacher, isRelay }) =>
      cacher === undefined || isRelay ? [] : [{ name, cacher }],
    );
    const [cluster] = this.#members;
    if (cluster === undefined) return [];
    // A root may wait until it connects to etcd again, after a fault that had cut it off.
    for (let waited = 0; ; waited += 100) {
      try {
        return await wrongInCaches({ cluster, inProcess }, prefix);
      } catch (error) {
        if (!hasReason(error, "UPSTREAM_UNAVAILABLE") || waited > patienceMs) throw error;
        await this.#pause(100);
      }
    }
  }

  /** Resolves when no write is under way any more, and none begins. No lease ends meanwhile. */
  async #holdWrites(): Promise<void> {
    this.cluster.leases.isHeld = true;
    await Promise.all([
      ...this.#writers.map((writer) => writer.stop()),
      this.#transacting.stop(),
      this.#coordinating.stop(),
      this.#apiClients.stopLeases(),
    ]);
  }

  #startWrites(): void {
    this.cluster.leases.isHeld = false;
    for (const writer of this.#writers) writer.start();
    this.#transacting.start();
    this.#coordinating.start();
    this.#apiClients.startLeases();
  }

  async #healReplicas(): Promise<void> {
    await Promise.all(this.replicas.map((replica) => replica.heal()));
  }

  /** Revisions acknowledged now mean nothing to clients that may still receive an older history. */
  get #floor(): number {
    return this.#account.era.index === 0 ? this.#acknowledged : 0;
  }

  async #lastWrite(): Promise<number> {
    const [writer] = this.#writers;
    if (writer === undefined) throw new Error("No writer runs.");
    for (let attempts = 1; ; attempts++) {
      try {
        return await writer.writeAll();
      } catch (error) {
        if (attempts === 20) throw error;
        await this.#pause(1_000);
      }
    }
  }

  async #behind(level: number): Promise<string[]> {
    const watchers = [...this.#watchers, ...this.#parts.watchers];
    const isThere = (watcher: RecordedWatcher): boolean =>
      watcher.isAt(level, this.#account.era.index, this.#historyId);
    const subscribers = (): string[] =>
      this.#parts.subscribers.flatMap((subscriber) =>
        subscriber.behind(level, this.#account.era.index, this.#historyId),
      );
    try {
      await this.#until("", () => watchers.every(isThere) && subscribers().length === 0);
      return [];
    } catch {
      const behind = watchers
        .filter((watcher) => !isThere(watcher))
        .map((watcher) => {
          const last = JSON.stringify(watcher.ends.at(-1) ?? null);
          const is = `${watcher.place} is at ${watcher.level}`;
          return `Honest: ${is} and did not receive ${level} within ${patienceMs} ms; its last stream ended with ${last}`;
        });
      return [
        ...behind,
        ...subscribers().map((what) => `Honest: ${what}, within ${patienceMs} ms`),
      ];
    }
  }

  /**
   * Watches of etcd's API that do not get everything although all faults are over. As at etcd, there is no progress of a watch
   * that begins at the next revision until that is written.
   */
  async #apiBehind(): Promise<string[]> {
    await this.#apiClients.stopCalls();
    const { revision } = this.cluster.state;
    const behind = (): string[] => this.#apiClients.behind(revision);
    let looks = 0;
    try {
      await this.#until("", () => {
        if (behind().length === 0) return true;
        if (looks++ % 100 === 0) this.#writeOther();
        return false;
      });
      return [];
    } catch {
      return behind().map((what) => `Honest: ${what} within ${patienceMs} ms`);
    }
  }

  /** Writes a key that is no object. */
  #writeOther(): void {
    this.#commit({ type: "put", key: "/other", value: "" });
  }

  async #close(): Promise<void> {
    await Promise.all([...this.#watchers, this.#reader].map((client) => client.stop()));
    await this.#parts.stop();
    await this.#library?.close();
    await Promise.all(this.replicas.map((replica) => replica.stop()));
    this.cluster.leases.stop();
    for (const server of this.servers) server.stop();
  }

  #wrote(): void {
    this.#writes.count++;
    for (const writer of this.#writers) {
      const { outcome, revision = 0, fromEra, toEra } = writer.writes.at(-1) ?? {};
      const isOfNow = fromEra === this.#account.era.index && toEra === fromEra;
      if (outcome === "acknowledged" && isOfNow)
        this.#acknowledged = Math.max(this.#acknowledged, revision);
    }
    this.#writes.changing.changed();
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      this.scheduler.after(ms, "pause", resolve);
    });
  }

  #untilReady(): Promise<void> {
    return this.#until("every replica to be ready", () =>
      this.#caches.every((cacher) => cacher?.ready === true),
    );
  }

  /** Those of all processes; undefined for one that does not run. */
  get #caches(): readonly (Cacher | undefined)[] {
    return this.replicas.flatMap(({ caches }) => caches);
  }

  async #until(what: string, reached: () => boolean): Promise<void> {
    for (let waited = 0; !reached(); waited += 10) {
      if (waited > patienceMs) throw new Error(`Waited ${patienceMs} ms for ${what}.`);
      await this.#pause(10);
    }
  }
}

/** A relay may need more than is in the window of a replica that was started meanwhile. */
function mayLoseHistory({ windowEvents, tiers, faults }: Scenario): boolean {
  const isReplaced = faults.some(({ kind }) => kind.startsWith("replica"));
  return tiers.length > 0 && (windowEvents < 1_000 || isReplaced);
}

function replicasOf(
  scenario: Scenario,
  given: Pick<ReplicaOptions, "network" | "processes" | "logger" | "recorder">,
): SimulatedReplica[] {
  const { roots, tiers, members, windowEvents, hasDeepReads } = scenario;
  const { dispatchIntervalMs, relaysEtcdApi, reading } = scenario;
  const compresses = reading.accepts !== undefined;
  const of = { prefix, windowEvents, hasDeepReads, dispatchIntervalMs, relaysEtcdApi, compresses };
  const common = { ...given, ...of };
  const random = new Seeded(scenario.seed ^ 0x3a91);
  let host = firstRoot;
  let above = members.map((_, i) => memberHost(i));
  return [roots, ...tiers].flatMap((count, tier) => {
    const follows = above;
    const hosts = Array.from({ length: count }, () => host++);
    above = hosts;
    return hosts.map((own, i) => {
      const isRelay = tier > 0;
      const name = isRelay ? `relay ${tier}.${i}` : `root ${i}`;
      const count = isRelay ? 0 : scenario.workers;
      const workers = Array.from({ length: count }, (_, j) => firstWorker + 10 * i + j);
      const keeps = scenario.keepsCaches === true ? random.fork() : undefined;
      const keeping = { name, host: own, follows, isRelay, workers, keeps };
      return new SimulatedReplica({ ...common, ...keeping });
    });
  });
}

/** What is logged as an error, and a fault explains. */
const expectedErrors: ReadonlySet<string> = new Set([
  "the store is full and refuses writes",
  "a worker has ended",
  "a worker does not respond; it is replaced",
]);

/** The level of pino's lines for errors. */
const errorLevel = 50;

interface LogLine {
  readonly level: number;
  readonly msg: string;
  readonly err?: { readonly message: string };
}

/** A state of etcd, and the history that it is of. */
interface WorldSnapshot extends Snapshot {
  readonly isMarked: boolean;
  readonly era: Era;
  readonly past: EtcdPast;
}

/** In the marker key. */
function idIn(store: EtcdStore): string | undefined {
  return store.range({ key: markerKey }).kvs[0]?.value;
}
