import { rawKeyBelow, rawKeys } from "../faults/raw-keys.ts";
import { Seeded } from "../faults/seeded.ts";
import { endOf } from "./etcd-account.ts";
import { EtcdCaller } from "./etcd-caller.ts";
import type { EtcdCluster } from "./etcd-cluster.ts";
import { EtcdHistory } from "./etcd-history.ts";
import { dropsTombstones } from "./etcd-member.ts";
import { EtcdWatcher } from "./etcd-watcher.ts";
import { rootUrl } from "./replica.ts";
import type { Scenario } from "./scenario.ts";

/** All clients of etcd's API in a world, and the history that they are judged by. */
export class EtcdApiClients {
  readonly history: EtcdHistory;
  readonly #watchers: readonly EtcdWatcher[];
  readonly #callers: readonly EtcdCaller[];
  #areRunning = false;

  constructor(scenario: Scenario, cluster: EtcdCluster, prefix: string) {
    const { seed, roots, members, etcdWatchers, etcdCallers, writePauseMs } = scenario;
    const random = new Seeded(seed ^ 0xe7cd);
    this.history = new EtcdHistory(cluster);
    const raw = rawKeys.map((_, i) => rawKeyBelow(prefix, i).toString("latin1"));
    const others = ["/others/a", "/others/b", "/other"];
    const own = [...others, ...raw];
    const common = {
      urls: Array.from({ length: roots }, (_, i) => rootUrl(i)),
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
  }

  /** What contradicts etcd's promises, so far. */
  get wrong(): string[] {
    return [...this.#watchers, ...this.#callers].flatMap(({ wrong }) => wrong);
  }

  start(): void {
    if (this.#areRunning) return;
    this.#areRunning = true;
    for (const client of [...this.#watchers, ...this.#callers]) client.start();
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
