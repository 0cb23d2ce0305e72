import { setTimeout as delay } from "node:timers/promises";
import type { Seeded } from "../faults/seeded.ts";
import { encode } from "../foreign/protobuf.ts";
import { EtcdCalls } from "./etcd-calls.ts";
import type { EtcdHistory } from "./etcd-history.ts";

export interface EtcdCallerOptions {
  readonly name: string;
  /** Where etcd's API is served. */
  readonly urls: readonly string[];
  readonly random: Seeded;
  readonly history: EtcdHistory;
  /** The ranges that it reads. */
  readonly keys: readonly string[];
  readonly ends: readonly string[];
  /** The keys that it writes, which no one else does. */
  readonly ownKeys: readonly string[];
  readonly pauseMs: number;
}

interface Write {
  readonly key: string;
  readonly value: string;
  /** Undefined: its outcome is unknown. */
  revision: number | undefined;
}

/** A client of etcd's Range, Put and Txn, one call after the other. Writes down whatever contradicts what etcd promises. */
export class EtcdCaller {
  readonly wrong: string[] = [];
  readonly #options: EtcdCallerOptions;
  readonly #writes: Write[] = [];
  #count = 0;
  /** What every later linearizable read reflects. */
  #floor = 0;
  readonly #calls: EtcdCalls;
  #isOver = true;
  #done: Promise<void> = Promise.resolve();

  constructor(options: EtcdCallerOptions) {
    this.#options = options;
    this.#calls = new EtcdCalls({ ...options, wrong: this.wrong });
  }

  start(): void {
    this.#isOver = false;
    this.#done = this.#run();
  }

  /** Ends it, and compares its writes with the history. */
  async stop(): Promise<void> {
    this.#isOver = true;
    await this.#done;
    this.#calls.close();
    this.#floor = 0;
    for (const write of this.#writes.splice(0)) this.#compare(write);
  }

  async #run(): Promise<void> {
    const { random, pauseMs } = this.#options;
    while (!this.#isOver) {
      await delay(random.between(1, pauseMs));
      if (this.#isOver) return;
      const kind = random.pickWeighted({ read: 3, put: 2, txn: 1 });
      if (kind === "read") await this.#read();
      else await this.#write(kind);
    }
  }

  async #read(): Promise<void> {
    const { random, keys, ends, history } = this.#options;
    const key = random.pick(keys);
    const end = random.pick(ends.filter((one) => one === "" || one === "\0" || one > key));
    const [limit, isSerializable] = [random.pick([0, 0, 1, 3]), random.chance(0.4)];
    const isCount = random.chance(0.1);
    const request = {
      ...{ 1: Buffer.from(key, "latin1"), 2: Buffer.from(end, "latin1") },
      ...{ 3: limit || undefined, 7: isSerializable || undefined, 9: isCount || undefined },
    };
    const floor = this.#floor;
    const response = await this.#calls.unary("/etcdserverpb.KV/Range", encode(request));
    if (response === undefined) return;
    const revision = response.message(1)?.number(3) ?? 0;
    const what = `${this.#options.name} read ${JSON.stringify({ key, end, limit })} at ${revision}`;
    if (revision > history.revision) this.wrong.push(`EtcdRange: ${what}, of the future`);
    if (!isSerializable) {
      if (revision < floor) this.wrong.push(`EtcdRange: ${what}, although ${floor} was known`);
      this.#floor = Math.max(this.#floor, revision);
    }
    const all = history.stateAt({ key, end }, revision);
    const limited = limit > 0 ? all.slice(0, limit) : all;
    const expected = isCount ? [] : limited.map(({ mod, value }) => `${mod} ${value}`);
    const read = response
      .messages(2)
      .map((kv) => `${kv.number(3)} ${kv.bytes(5).toString("latin1")}`);
    const counted = response.number(4);
    if (counted === all.length && read.join() === expected.join()) return;
    const is = `${counted}: ${read} in the place of ${all.length}: ${expected}`;
    this.wrong.push(`EtcdRange: ${what}: ${is}`);
  }

  async #write(kind: "put" | "txn"): Promise<void> {
    const { random, name, ownKeys } = this.#options;
    const write: Write = {
      ...{ key: random.pick(ownKeys), value: `${name} ${this.#count++}` },
      revision: undefined,
    };
    this.#writes.push(write);
    const put = encode({ 1: Buffer.from(write.key, "latin1"), 2: write.value });
    const path = kind === "put" ? "/etcdserverpb.KV/Put" : "/etcdserverpb.KV/Txn";
    const response = await this.#calls.unary(
      path,
      kind === "put" ? put : encode({ 2: encode({ 2: put }) }),
    );
    if (response === undefined) return;
    write.revision = response.message(1)?.number(3) ?? 0;
    this.#floor = Math.max(this.#floor, write.revision);
  }

  #compare({ key, value, revision }: Write): void {
    const applied = this.#options.history.writesOf(key, value);
    const isRight =
      applied.count <= 1 &&
      (revision === undefined || (applied.count === 1 && applied.revision === revision));
    if (isRight) return;
    const was = `${applied.count} times, at ${applied.revision}`;
    this.wrong.push(`EtcdWrite: "${value}", acknowledged at ${revision}, was applied ${was}`);
  }
}
