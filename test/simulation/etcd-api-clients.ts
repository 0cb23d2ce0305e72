import { rawKeyBelow, rawKeys } from "../faults/raw-keys.ts";
import { Seeded } from "../faults/seeded.ts";
import { endOf } from "./etcd-account.ts";
import { EtcdCaller } from "./etcd-caller.ts";
import type { EtcdCluster } from "./etcd-cluster.ts";
import { EtcdHistory } from "./etcd-history.ts";
import { EtcdLeaseholder } from "./etcd-leaseholder.ts";
import { dropsTombstones } from "./etcd-member.ts";
import { EtcdWatcher } from "./etcd-watcher.ts";
import type { Scenario } from "./scenario.ts";

/** All clients of etcd's API in a world, and the history that they are judged by. */
export class EtcdApiClients {
  readonly history: EtcdHistory;
  readonly #watchers: readonly EtcdWatcher[];
  readonly #callers: readonly EtcdCaller[];
  readonly #leaseholders: readonly EtcdLeaseholder[];
  #areRunning = false;

  /** `urls`: of the replicas that serve etcd's API. */
  constructor(scenario: Scenario, cluster: EtcdCluster, prefix: string, urls: readonly string[]) {
    const { seed, members, etcdWatchers, etcdCallers, leaseholders, writePauseMs } = scenario;
    const random = new Seeded(seed ^ 0xe7cd);
    this.history = new EtcdHistory(cluster);
    const raw = rawKeys.map((_, i) => rawKeyBelow(prefix, i).toString("latin1"));
    const others = ["/others/a", "/others/b", "/other"];
    const own = [...others, ...raw];
    const common = {
      urls,
      history: this.history,
      keys: [...own, prefix, `${prefix}b`, "/", "\0"],
      ends: ["", "", `${prefix}b`, endOf(prefix), "/u", "\0", "\xff"],
    };
    this.#watchers = Array.from(
      { length: etcdWatchers },
      (_, i) =>
        new EtcdWatcher({
          ...{ ...common, name: `etcd client ${i}`, random: random.fork() },
          dropsTombstones: members.some(dropsTombstones),
        }),
    );
    this.#callers = Array.from(
      { length: etcdCallers },
      (_, i) =>
        new EtcdCaller({
          ...{ ...common, name: `etcd caller ${i}`, random: random.fork() },
          ...{ ownKeys: own, pauseMs: writePauseMs * 2 },
        }),
    );
    const leasing = new Seeded(seed ^ 0x1ea5e);
    this.#leaseholders = Array.from({ length: leaseholders }, (_, i) => {
      const name = `leaseholder ${i}`;
      const pauseMs = writePauseMs * 4;
      return new EtcdLeaseholder({ name, urls, cluster, prefix, pauseMs, random: leasing.fork() });
    });
  }

  /** What contradicts etcd's promises, so far. */
  get wrong(): string[] {
    const all = [...this.#watchers, ...this.#callers, ...this.#leaseholders];
    return all.flatMap(({ wrong }) => wrong);
  }

  start(): void {
    if (this.#areRunning) return;
    this.#areRunning = true;
    for (const client of [...this.#watchers, ...this.#callers]) client.start();
  }

  startLeases(): void {
    for (const leaseholder of this.#leaseholders) leaseholder.start();
  }

  /** No object is attached to a lease any more. Those that are still end with their leases. */
  async stopLeases(): Promise<void> {
    await Promise.all(this.#leaseholders.map((leaseholder) => leaseholder.stop()));
  }

  /** No call is under way any more, and none begins. */
  async stopCalls(): Promise<void> {
    await Promise.all(this.#callers.map((caller) => caller.stop()));
  }

  /** Ends all, and compares what they got with the history. */
  async stop(): Promise<void> {
    this.#areRunning = false;
    await this.stopCalls();
    await Promise.all(this.#watchers.map((watcher) => watcher.stop()));
  }

  /** The watches that do not have everything up to this revision. */
  behind(revision: number): string[] {
    return this.#watchers.flatMap((watcher) => watcher.behind(revision));
  }
}
