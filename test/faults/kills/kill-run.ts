import { setTimeout as delay } from "node:timers/promises";
import { Message } from "../../foreign/protobuf.ts";
import { linearizable } from "../../guarantees/guarantees.ts";
import { seenEvent } from "../../guarantees/wire-objects.ts";
import { watchersIn } from "../clients.ts";
import { Disturbance } from "../endpoint.ts";
import { Changing, inTime, untilSeen } from "../patience.ts";
import { RecordedReader } from "../recorded-reader.ts";
import type { RecordedWatcher } from "../recorded-watcher.ts";
import type { Seeded } from "../seeded.ts";
import { Era } from "../truth.ts";
import { wrongIn } from "../verdict.ts";
import { Connection, viewOf } from "../wire.ts";
import { Account, type KeptChange } from "./account.ts";
import { type Shared, StoreWriter } from "./store-writer.ts";

/** Each has a folder of its own, of which watchers watch the first two. */
const writers = ["a", "b", "d", "e", "f", "g", "h", "i"];

/** A linearizable read. */
const newest = 1;

/** No server listens there. */
const nowhere = "http://127.0.0.1:1";

/** How often the end of leases is looked for, in milliseconds. */
const expiryMs = 300;

/** The process of an embedded store, and what it has kept. */
export interface KilledStore {
  /** Starts it, with what it has kept. Resolves to its URL when it is ready. */
  start(): Promise<string>;
  /**
   * Kills it while clients write. `acknowledged`: how many writes it has acknowledged so far. `gone` is called when clients must
   * not call it any more.
   */
  kill(acknowledged: () => number, gone: () => void): Promise<void>;
  /** Starts it, and kills it before it is ready. */
  killWhileStarting(): Promise<void>;
  close(): Promise<void>;
}

/** How much was done until now. */
export interface KillTotals {
  kills: number;
  /** Of these, while the store started. */
  whileStarting: number;
  acknowledged: number;
  refused: number;
  /** Writes whose outcome the client has not learned. */
  unknown: number;
  changes: number;
  reads: number;
  /** Delivered to watchers. */
  events: number;
}

/**
 * One embedded store in a process of its own, which is killed (-9) while clients write, read and watch, and started again with
 * the same file. After each kill everything is compared with what the clients know.
 *
 * What a process has written survives its end, whether it is synced or not. A loss of power is the simulation's matter.
 */
export class KillRun {
  readonly totals: KillTotals = {
    ...{ kills: 0, whileStarting: 0, acknowledged: 0, refused: 0, unknown: 0 },
    ...{ changes: 0, reads: 0, events: 0 },
  };
  readonly #random: Seeded;
  readonly #store: KilledStore;
  readonly #shared: Shared = { shown: 1, acknowledged: 0, url: undefined };
  readonly #writers: readonly StoreWriter[];
  readonly #watchers: readonly RecordedWatcher[];
  readonly #reader: RecordedReader;
  readonly #account = new Account();
  readonly #era = new Era(0, 1, []);
  readonly #delivered = new Changing();
  readonly #disturbance = new Disturbance();
  #startedAt = 0;
  /** Every watcher has received everything up to this revision. */
  #level = 0;
  #historyId = "";

  constructor(random: Seeded, store: KilledStore) {
    this.#random = random;
    this.#store = store;
    this.#writers = writers.map((name) => new StoreWriter(name, random.fork(), this.#shared));
    const shared = this.#shared;
    const endpoint = {
      name: "the store",
      get relay() {
        return { url: shared.url ?? nowhere };
      },
      isWell: true,
      onDisturbed: (listener: () => void) => this.#disturbance.on(listener),
    };
    const surroundings = {
      ...{ endpoints: [endpoint], delivered: this.#delivered },
      ...{ era: () => 0, newestEra: () => 0, acknowledged: () => this.#shared.shown },
      writes: { count: 0, changing: new Changing() },
    };
    this.#watchers = watchersIn({ ...surroundings, random: random.fork() });
    this.#reader = new RecordedReader({ ...surroundings, random: random.fork(), pauseMs: 20 });
  }

  /** Starts the store for the first time, and its clients. */
  async open(): Promise<void> {
    await this.#start();
    for (const watcher of this.#watchers) watcher.start();
  }

  /** Kills the store under load, starts it again, and resolves to what is wrong. */
  async kill(): Promise<string[]> {
    for (const watcher of this.#watchers) watcher.hurry(false);
    this.#reader.start();
    const writing = Promise.all(this.#writers.map((writer) => writer.run()));
    const acknowledged = (): number => this.#shared.acknowledged;
    await this.#store.kill(acknowledged, () => {
      this.#shared.url = undefined;
    });
    this.totals.kills++;
    await writing;
    while (this.#random.chance(0.15)) {
      await this.#store.killWhileStarting();
      this.totals.kills++;
      this.totals.whileStarting++;
    }
    await this.#start();
    return this.#check();
  }

  /** Resolves when all leases have ended that end by themselves, to what is wrong. */
  async expire(): Promise<string[]> {
    const wrong: string[] = [];
    await untilSeen("the leases to end", async () => {
      await delay(expiryMs);
      wrong.push(...(await this.#check()));
      return this.#account.expiring.length === 0 || wrong.length > 0 ? true : undefined;
    });
    return wrong;
  }

  async close(): Promise<void> {
    await this.#store.close();
    this.#shared.url = undefined;
    await this.#reader.stop();
    await Promise.all(this.#watchers.map((watcher) => watcher.stop()));
    for (const writer of this.#writers) writer.close();
  }

  async #start(): Promise<void> {
    this.#startedAt = performance.now();
    this.#shared.url = await this.#store.start();
  }

  /** Waits until all clients have what is there, compares it, and forgets it. */
  async #check(): Promise<string[]> {
    await this.#reader.stop();
    const wrong: string[] = [];
    await Promise.all(this.#writers.map((writer) => writer.checkLease(this.#startedAt)));
    // At once: those of several writers are one commit.
    await Promise.all(this.#writers.map((writer) => writer.repeat()));
    wrong.push(...(await this.#wrongWatchers()));
    const connection = new Connection(this.#shared.url ?? nowhere);
    try {
      wrong.push(...(await this.#compare(connection)));
    } finally {
      connection.close();
    }
    return wrong;
  }

  /** Every watcher has received what was written last. */
  async #wrongWatchers(): Promise<string[]> {
    const [writer] = this.#writers;
    await writer?.mark(["a/1", "b/1", "all/1"], "web", "n1");
    const { shown } = this.#shared;
    this.#level = shown;
    await writer?.mark(["all/2"], "db", "n2");
    for (const watcher of this.#watchers) watcher.hurry(true);
    const behind = (): readonly RecordedWatcher[] =>
      this.#watchers.filter(({ level }) => level < shown);
    const all = this.#delivered.until(() => behind().length === 0);
    try {
      await inTime(() => "all watchers", all);
      return [];
    } catch {
      return behind().map(
        ({ place, level, ends }) =>
          `Honest: ${place} is at ${level}, behind ${shown}, after ${JSON.stringify(ends.at(-1))}`,
      );
    }
  }

  async #compare(connection: Connection): Promise<string[]> {
    const changes: KeptChange[] = [];
    const highest = (): number => Math.max(...this.#watchers.map(({ level }) => level));
    for (let isRead = false; !isRead; ) {
      const seen = Math.max(highest(), this.#shared.shown);
      const { revision } = await connection.list({}, newest, 0);
      if (this.#era.revision < revision) changes.push(...(await this.#changes(revision)));
      // Leases end meanwhile: no watcher may have seen more than is compared, unless it is lost.
      isRead = highest() <= this.#era.revision || seen > revision;
    }
    const { revision } = this.#era;
    const { shown } = this.#shared;
    const operations = this.#writers.flatMap((writer) => writer.operations.splice(0));
    const checked = { revision, shown, readAt: performance.now() };
    const wrong = this.#account.check(changes, operations, checked);
    wrong.push(...this.#writers.flatMap((writer) => writer.wrong.splice(0)));
    const observed = {
      ...{ truth: { era: this.#era, eras: [this.#era] }, watchers: this.#watchers, writers: [] },
      ...{ reader: this.#reader, reasons: new Set<string>() },
      ...{ level: this.#level, lastRevisions: [revision] },
    };
    wrong.push(...wrongIn(observed));
    this.#count(changes, operations);
    this.#forget();
    wrong.push(...(await this.#wrongState(connection, revision)));
    return wrong;
  }

  /** All changes up to at least `target`, in whole revisions, as the store has them now. */
  async #changes(target: number): Promise<KeptChange[]> {
    const era = this.#era;
    const connection = new Connection(this.#shared.url ?? nowhere);
    const changes: KeptChange[] = [];
    const from = { afterRevision: era.revision, historyId: this.#historyId };
    try {
      for await (const bytes of connection.watch({ includePrevious: true }, from)) {
        const response = new Message(bytes);
        if (response.has(4)) this.#named(response.text(4));
        for (const event of response.messages(2)) {
          const { type, object, previous } = seenEvent(event);
          const after = type === "DELETED" ? undefined : object;
          const lease = after && event.message(2)?.integer(6);
          const change = { revision: object.modRevision, key: object.key, before: previous, after };
          changes.push({ ...change, lease: lease ?? 0n });
          era.add(change.revision, change.key, after);
        }
        if (!response.has(1)) continue;
        era.revision = response.number(1);
        if (era.revision >= target) break;
      }
    } finally {
      connection.close();
    }
    return changes;
  }

  #named(historyId: string): void {
    if (this.#historyId === "") this.#historyId = historyId;
    if (historyId === "" || historyId === this.#historyId) return;
    throw new Error(`The history ${this.#historyId} has become ${historyId}.`);
  }

  /** What is read from the store's state is what its changes lead to. */
  async #wrongState(connection: Connection, revision: number): Promise<string[]> {
    const exact = 4;
    const read = await connection.list({}, exact, revision);
    this.#named(read.historyId);
    return linearizable({ ...read, view: viewOf({}), notBefore: revision }, this.#era.changes);
  }

  #count(
    changes: readonly KeptChange[],
    operations: readonly { readonly outcome: string }[],
  ): void {
    const { totals } = this;
    totals.changes += changes.length;
    totals.reads += this.#reader.reads.length;
    totals.events = this.#watchers.reduce((sum, { events }) => sum + events, 0);
    for (const { outcome } of operations) {
      if (outcome === "acknowledged" || outcome === "refused") totals[outcome]++;
      else totals.unknown++;
    }
  }

  #forget(): void {
    for (const watcher of this.#watchers) watcher.forget();
    this.#reader.forget();
    this.#era.forgetBefore(Math.min(...this.#watchers.map(({ level }) => level)));
  }
}
