import { connect } from "../../src/client/connect.ts";
import { EtcdCluster } from "../faults/etcd-cluster.ts";
import { Changing, inTime, untilSeen } from "../faults/patience.ts";
import type { Relay } from "../faults/relay.ts";
import { Seeded } from "../faults/seeded.ts";
import { TierReplica } from "../faults/tier-replica.ts";
import { resource } from "../faults/wire.ts";
import { etcdCaller } from "./etcd-client.ts";
import { type History, HistoryRecorder, type Outcome } from "./history.ts";
import { leaseCaller } from "./lease-client.ts";
import { LeasingClient } from "./leasing-client.ts";
import { LockingClient } from "./locking-client.ts";
import { type Door, RandomClient, type Workload } from "./random-client.ts";
import { RootReplica } from "./root-replica.ts";
import { serviceCaller } from "./service-client.ts";
import { SingleWrites } from "./single-writes.ts";
import { transactCaller } from "./transact-client.ts";
import { Transactions } from "./transactions.ts";

/** Below which all keys are in etcd. */
const prefix = "/things/";

const things = [{ name: resource, prefix }];

/** The names and prefixes of the resources that clients call. */
const resourcesOf = {
  "single writes": things,
  transactions: ["a", "b"].map((name) => ({ name, prefix: `${prefix}${name}/` })),
  leases: things,
  locks: things,
};

export type WorkloadName = keyof typeof resourcesOf;

const clientCount = 5;

/** Numbers of workers; 1: the root serves clients itself. */
const workersOfRoots = [1, 2];

/** Three members of etcd, two roots, one of them with workers, a relay of both, and clients of each of them, which are all that write. */
export class System {
  readonly cluster: EtcdCluster;
  readonly roots: readonly RootReplica[];
  readonly relay: TierReplica;
  readonly random: Seeded;
  readonly #workload: WorkloadName;
  /** How many calls of each door had a response. */
  readonly answered = new Map<string, number>();
  readonly #recorder = new HistoryRecorder();
  readonly #changing = new Changing();
  #completed = 0;
  #clients: readonly { stop(): Promise<void> }[] = [];
  #revision = 0;

  private constructor(
    cluster: EtcdCluster,
    roots: readonly RootReplica[],
    relay: TierReplica,
    random: Seeded,
    workload: WorkloadName,
  ) {
    this.#workload = workload;
    this.cluster = cluster;
    this.roots = roots;
    this.relay = relay;
    this.random = random;
  }

  /** Everything runs, and clients call. */
  static async open(seed: number, workload: WorkloadName): Promise<System> {
    const cluster = await EtcdCluster.start({ size: 3 });
    const etcd = cluster.members.map(({ clientPort }) => clientPort);
    const resources = resourcesOf[workload];
    const roots = await Promise.all(
      workersOfRoots.map((workers, i) => RootReplica.create(`root ${i}`, etcd, resources, workers)),
    );
    const relay = await TierReplica.create(
      "relay",
      roots,
      resources.map(({ name }) => name),
    );
    const system = new System(cluster, roots, relay, new Seeded(seed), workload);
    try {
      // A relay starts when what it follows is there.
      await Promise.all(roots.map((root) => root.start()));
      await relay.start();
      // The service has written its marker key, and writes nothing more of its own.
      system.#revision = await cluster.revision();
      system.#start();
    } catch (error) {
      await system.close();
      throw error;
    }
    return system;
  }

  /** The connections that a fault can concern: of clients, between tiers, and to etcd. */
  get networks(): readonly Relay[] {
    return [...this.roots, this.relay].flatMap(({ relay, upstream }) => [relay, ...upstream]);
  }

  /** Resolves when so many more calls have had a response. */
  async afterCalls(count: number): Promise<void> {
    const until = this.#completed + count;
    const reached = this.#changing.until(() => this.#completed >= until);
    await inTime(() => `${count} calls to be answered`, reached);
  }

  /** Ends all faults and all calls. The history ends with what etcd has then. */
  async history(): Promise<History> {
    await this.cluster.heal();
    for (const replica of [...this.roots, this.relay]) await replica.heal();
    await Promise.all(this.#clients.map((client) => client.stop()));
    const input = { range: { key: "", isPrefix: true } };
    const etcd = this.#etcd();
    await untilSeen("the state of etcd", async () => {
      const read = (): ReturnType<Door["caller"]> => etcd.caller(etcd.url(), input);
      const outcome = await this.#recorder.record(clientCount, input, read);
      return typeof outcome === "object" ? true : undefined;
    });
    return { revision: this.#revision, operations: this.#recorder.operations };
  }

  async close(): Promise<void> {
    await Promise.all(this.#clients.map((client) => client.stop()));
    await this.relay.stop();
    await Promise.all(this.roots.map((root) => root.stop()));
    await this.cluster.stop();
  }

  #start(): void {
    const doors = this.#doors();
    const called = (door: Door, outcome: Outcome): void => {
      if (typeof outcome !== "object") return;
      this.answered.set(door.name, (this.answered.get(door.name) ?? 0) + 1);
      this.#completed++;
      this.#changing.changed();
    };
    this.#clients = Array.from({ length: clientCount }, (_, id) => {
      const [recorder, random] = [this.#recorder, this.random.fork()];
      if (this.#workload === "locks") {
        const replicas = [...this.roots, this.relay];
        const addresses = replicas.map(({ relay }) => new URL(relay.url).host);
        const client = connect({ address: random.pick(addresses) });
        return new LockingClient(id, client, random, recorder, () => {
          this.#completed++;
          this.#changing.changed();
        });
      }
      if (this.#workload === "leases") {
        const own = doors.filter(({ caller }) => caller === doors[0]?.caller);
        return new LeasingClient(id, own, random, recorder, called);
      }
      const workload: Workload =
        this.#workload === "transactions"
          ? new Transactions(id, random.fork())
          : new SingleWrites(id, random.fork());
      return new RandomClient(id, doors, random, recorder, workload, called);
    });
  }

  #doors(): readonly Door[] {
    const own = {
      "single writes": { caller: serviceCaller(resource), isTransactional: false },
      transactions: { caller: transactCaller, isTransactional: true, hasRequestIds: true },
      leases: { caller: leaseCaller(resource), isTransactional: false },
      locks: { caller: serviceCaller(resource), isTransactional: false },
    }[this.#workload];
    const { name, relay } = this.relay;
    const roots = this.roots.map((root) => ({
      ...{ name: root.name, url: () => root.relay.url, isOpen: () => root.isServing, ...own },
    }));
    const etcdApi = roots.map((root) => ({
      ...{ ...root, name: `etcd's API of ${root.name}` },
      ...{ caller: etcdCaller(prefix), isTransactional: true, hasRequestIds: false },
    }));
    return [...roots, { name, url: () => relay.url, ...own }, ...etcdApi, this.#etcd()];
  }

  /** Whichever member is healthy: writes past the service, which its caches must not miss. */
  #etcd(): Door {
    const url = (): string => {
      const { healthy, members } = this.cluster;
      return this.random.pick(healthy.length > 0 ? healthy : members).url;
    };
    return { name: "etcd", url, caller: etcdCaller(prefix), isTransactional: true };
  }
}
