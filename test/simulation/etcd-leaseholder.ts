import { setTimeout as delay } from "node:timers/promises";
import { apps, nodes, keys as objectKeys } from "../faults/recorded-writer.ts";
import type { Seeded } from "../faults/seeded.ts";
import type { Thing } from "../faults/wire.ts";
import { encode, Message } from "../foreign/protobuf.ts";
import { EtcdCalls } from "./etcd-calls.ts";
import type { EtcdCluster } from "./etcd-cluster.ts";

const lease = "/etcdserverpb.Lease/";

/** Times to live, in seconds: the shortest that etcd grants, so that leases end while clients watch. */
const ttls = [2, 2, 3];

/** How far keepalives are apart, in milliseconds at most: the later ones may come when the lease is over. */
const keepAlivePauseMs = 2_500;

export interface EtcdLeaseholderOptions {
  readonly name: string;
  /** Where etcd's API is served. */
  readonly urls: readonly string[];
  readonly random: Seeded;
  readonly cluster: EtcdCluster;
  /** Below which the resource's keys are in etcd. */
  readonly prefix: string;
  readonly pauseMs: number;
}

/**
 * A client of etcd's leases: grants one, attaches objects to it, keeps it alive for a while, and revokes it, or is silent until
 * it ends, which deletes the objects that are still attached. Writes down what etcd does not have although it was acknowledged.
 */
export class EtcdLeaseholder {
  readonly wrong: string[] = [];
  readonly #options: EtcdLeaseholderOptions;
  readonly #calls: EtcdCalls;
  #granted = 0;
  #isOver = true;
  #done: Promise<void> = Promise.resolve();

  constructor(options: EtcdLeaseholderOptions) {
    this.#options = options;
    this.#calls = new EtcdCalls({ ...options, wrong: this.wrong });
  }

  /** No effect while it runs. */
  start(): void {
    if (!this.#isOver) return;
    this.#isOver = false;
    this.#done = this.#run();
  }

  /** No call is under way any more, and none begins. */
  async stop(): Promise<void> {
    this.#isOver = true;
    await this.#done;
    this.#calls.close();
  }

  async #run(): Promise<void> {
    const { random, pauseMs } = this.#options;
    while (!this.#isOver) {
      await delay(random.between(1, pauseMs));
      if (!this.#isOver) await this.#hold(random.between(1, 2 ** 31), random.pick(ttls));
    }
  }

  async #hold(id: number, ttl: number): Promise<void> {
    const { random } = this.#options;
    const begun = this.#now;
    const granted = await this.#calls.unary(`${lease}LeaseGrant`, encode({ 1: ttl, 2: id }));
    if (granted === undefined) return;
    this.#granted++;
    this.#mustLive(id, begun + ttl * 1_000, "granted");
    for (let puts = random.between(1, 3); puts > 0 && !this.#isOver; puts--) await this.#put(id);
    for (let times = random.pick([0, 1, 3]); times > 0 && !this.#isOver; times--) {
      await delay(random.between(1, keepAlivePauseMs));
      if (this.#isOver || !(await this.#keepAlive(id, ttl))) break;
    }
    if (this.#isOver || random.chance(0.6)) return;
    if (random.chance(0.5)) await this.#ask(id, ttl);
    const revoked = await this.#calls.unary(`${lease}LeaseRevoke`, encode({ 1: id }));
    const { state } = this.#options.cluster;
    if (revoked === undefined || !state.leases.has(id)) return;
    this.wrong.push(`EtcdLease: ${id} exists, although its revocation was acknowledged`);
  }

  async #put(id: number): Promise<void> {
    const { random, prefix, name } = this.#options;
    const thing: Thing = {
      metadata: { labels: { app: random.pick(apps) } },
      spec: { node: random.pick(nodes) },
      ...{ write: `${name}, ${this.#granted}`, filling: "" },
    };
    const key = prefix + random.pick(objectKeys);
    const put = encode({ 1: Buffer.from(key), 2: JSON.stringify(thing), 3: id });
    await this.#calls.unary("/etcdserverpb.KV/Put", put);
  }

  /** Returns whether the lease lives on. */
  async #keepAlive(id: number, ttl: number): Promise<boolean> {
    const begun = this.#now;
    const call = this.#calls.grpc.open(`${lease}LeaseKeepAlive`);
    call.send(encode({ 1: id }));
    const messages = await this.#calls.within(() => call.untilMessages(1));
    call.cancel();
    const [bytes] = messages ?? [];
    if (bytes === undefined) {
      this.#calls.close();
      return false;
    }
    const said = new Message(bytes);
    const remaining = said.number(3);
    if (said.number(2) !== id || (remaining !== 0 && remaining !== ttl)) {
      this.wrong.push(`EtcdLease: ${id} of ${ttl} s got ${said.number(2)} of ${remaining} s`);
    }
    const { leases } = this.#options.cluster.state;
    if (remaining > 0) this.#mustLive(id, begun + ttl * 1_000, "kept alive");
    else if (leases.has(id)) this.wrong.push(`EtcdLease: ${id} exists, and was said not to`);
    return remaining > 0;
  }

  async #ask(id: number, ttl: number): Promise<void> {
    const request = encode({ 1: id, 2: true });
    const said = await this.#calls.unary(`${lease}LeaseTimeToLive`, request);
    if (said === undefined) return;
    // Of one that is over, and that etcd has not removed yet, it says as well how long it was.
    const [left, granted] = [said.number(3), said.number(4)];
    const isRight = granted === ttl || (left === -1 && granted === 0);
    if (!isRight) this.wrong.push(`EtcdLease: ${id} of ${ttl} s has ${said.number(4)} s`);
  }

  #mustLive(id: number, untilMs: number, what: string): void {
    const { state } = this.#options.cluster;
    if (state.leases.has(id) || this.#now >= untilMs) return;
    this.wrong.push(`EtcdLease: ${id} does not exist, although it was ${what}`);
  }

  get #now(): number {
    return performance.now();
  }
}
