import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { afterAll, expect, test, vi } from "vitest";
import { etcdOfFile } from "../etcd/etcd-of-file.ts";
import { patienceMs } from "../faults/patience.ts";
import { Seeded } from "../faults/seeded.ts";
import { type BareCall, BareGrpc, BareStatus } from "../foreign/bare-grpc.ts";
import { encode, type Fields, Message } from "../foreign/protobuf.ts";
import { EtcdCluster } from "./etcd-cluster.ts";
import { EtcdServer } from "./etcd-server.ts";
import type { Agenda } from "./scheduler.ts";

const etcdOf = etcdOfFile();
const closing: (() => void)[] = [];

afterAll(() => {
  for (const close of closing) close();
});

/** The time of the machine. */
const realTime: Agenda = {
  get time() {
    return performance.now();
  },
  after: (delayMs, _what, run) => {
    const timeout = setTimeout(run, delayMs);
    return { cancel: () => clearTimeout(timeout) };
  },
};

/** The model of etcd, on a real port. */
async function startModel(seed: number): Promise<string> {
  // A slow watch may be cancelled by a compaction that comes before it has caught up.
  const behaviour = { maxBatchRevisions: 2, maxFragmentEvents: 2, slowness: 0 };
  const cluster = new EtcdCluster(["3.6.4"], realTime, new Seeded(seed), behaviour);
  const [member] = cluster.members;
  if (member === undefined) throw new Error("There is no member.");
  const server = new EtcdServer(member, { host: "127.0.0.1", port: 0 });
  const listening = server.start();
  closing.push(() => server.stop());
  await once(listening, "listening");
  return `http://127.0.0.1:${(listening.address() as AddressInfo).port}`;
}

const keys = ["/a", "/a/1", "/a/2", "/a/ÿ", "/b/1", "/c"];
const ends = ["", "", "\0", "/a0", "/b", "/b0", "/"];

const kv = "/etcdserverpb.KV/";
const lease = "/etcdserverpb.Lease/";

/** The ids of leases, and how long each lives in seconds: none ends by itself here. */
const leases = [1, 2, 3];
const leaseTtl = 9_000;

/** A request: its method, and its fields. */
type Request = readonly [method: string, fields: Fields];

function bytes(text: string): Buffer {
  return Buffer.from(text, "latin1");
}

/** Ranges, writes and compactions around the current revision, and leases. */
class Requests {
  readonly #random: Seeded;

  constructor(random: Seeded) {
    this.#random = random;
  }

  any(revision: number): Request {
    const random = this.#random;
    const writes = { put: 5, delete: 2, txn: 3, compact: 0.3 };
    const kind = random.pickWeighted({
      range: 4,
      ...writes,
      grant: 1,
      revoke: 0.5,
      remaining: 0.5,
    });
    const id = random.pick(leases);
    if (kind === "grant") return [`${lease}LeaseGrant`, { 1: leaseTtl, 2: id }];
    if (kind === "revoke") return [`${lease}LeaseRevoke`, { 1: id }];
    if (kind === "remaining") return [`${lease}LeaseTimeToLive`, { 1: id, 2: true }];
    if (kind === "range") return [`${kv}Range`, this.#range(revision)];
    if (kind === "put") return [`${kv}Put`, this.#put()];
    if (kind === "delete") return [`${kv}DeleteRange`, this.#delete()];
    if (kind === "txn") return [`${kv}Txn`, this.#txn(revision)];
    return [`${kv}Compact`, { 1: Math.max(1, revision - random.between(-1, 12)) }];
  }

  creation(revision: number): Fields {
    const random = this.#random;
    const start = random.chance(0.3) ? 0 : Math.max(1, revision + random.between(-15, 3));
    return {
      ...this.#keys(),
      ...{ 3: start || undefined, 6: random.chance(0.5), 8: random.chance(0.5) },
    };
  }

  #keys(): Fields {
    const random = this.#random;
    const end = random.pick(ends);
    return { 1: bytes(random.pick(keys)), 2: end === "" ? undefined : bytes(end) };
  }

  #range(revision: number): Fields {
    const random = this.#random;
    const at = random.chance(0.4) ? Math.max(1, revision + random.between(-10, 2)) : undefined;
    const newer = random.chance(0.2) ? revision - random.between(0, 10) : undefined;
    return {
      ...this.#keys(),
      ...{ 3: random.chance(0.3) ? random.between(1, 3) : undefined, 4: at },
      ...{ 8: random.chance(0.2), 9: random.chance(0.2), 10: newer },
    };
  }

  #put(): Fields {
    const random = this.#random;
    const attached = random.chance(0.3) ? random.pick(leases) : undefined;
    return { 1: bytes(random.pick(keys)), 2: bytes(random.pick(["", "x", "ÿ"])), 3: attached };
  }

  #delete(): Fields {
    return this.#keys();
  }

  #txn(revision: number): Fields {
    const random = this.#random;
    const compare = random.chance(0.6) ? [encode(this.#compare(revision))] : [];
    return { 1: compare, 2: this.#operations(revision), 3: this.#operations(revision) };
  }

  #compare(revision: number): Fields {
    const random = this.#random;
    const target = random.between(0, 3);
    const than = {
      0: { 4: random.between(0, 3) },
      1: { 5: random.pick([0, revision, revision - 1]) },
      2: { 6: random.pick([0, revision, revision - 1]) },
      3: { 7: bytes(random.pick(["", "x"])) },
    }[target];
    return { 1: random.between(0, 3), 2: target, 3: bytes(random.pick(keys)), ...than };
  }

  /** No key twice, which etcd refuses. */
  #operations(revision: number): Buffer[] {
    const random = this.#random;
    const touched = keys.filter(() => random.chance(0.3));
    const operations = touched.map((key): Fields => {
      if (random.chance(0.7)) return { 2: encode({ 1: bytes(key), 2: bytes("t") }) };
      return { 3: encode({ 1: bytes(key) }) };
    });
    if (random.chance(0.3))
      operations.push({ 1: encode({ ...this.#range(revision), 4: undefined }) });
    return operations.map(encode);
  }
}

interface Side {
  readonly grpc: BareGrpc;
  readonly watches: Watch[];
}

/** What the fields of a message are, without the header, which names the cluster. */
function contentOf(message: Message): unknown {
  return {
    revision: message.message(1)?.number(3),
    kvs: message.all(2).map(String),
    more: message.has(3) ? String(message.integer(3)) : "",
    count: message.has(4) ? message.number(4) : 0,
  };
}

function contentOfTxn(message: Message): unknown {
  return {
    revision: message.message(1)?.number(3),
    succeeded: message.number(2),
    responses: message.messages(3).map((response) => {
      const kind = [1, 2, 3].find((one) => response.has(one)) ?? 0;
      const own = response.message(kind);
      const kvs = kind === 1 && own !== undefined ? contentOf(own) : own?.number(2);
      return { kind, kvs: kind === 1 ? { ...(kvs as object), revision: 0 } : kvs };
    }),
  };
}

async function outcomeOf({ grpc }: Side, [method, fields]: Request): Promise<unknown> {
  try {
    const response = await grpc.unary(method, encode(fields));
    if (method === `${kv}Txn`) return contentOfTxn(response);
    if (method === `${kv}Range`) return contentOf(response);
    if (method === `${kv}Compact`) return "compacted";
    if (method === `${lease}LeaseTimeToLive`) {
      // It has lived for a moment, or is unknown.
      const isAlive = response.number(3) > leaseTtl - 300;
      const keysOf = response.all(5).map(String).sort();
      return { isAlive, unknown: response.number(3) === -1, ttl: response.number(4), keysOf };
    }
    return {
      revision: response.message(1)?.number(3),
      deleted: method === `${kv}DeleteRange` ? response.number(2) : 0,
    };
  } catch (error) {
    if (!(error instanceof BareStatus)) throw error;
    return { code: error.code, message: error.message };
  }
}

/** A watch on a stream of its own, and all that it delivers. */
class Watch {
  readonly creation: Fields;
  readonly events: string[] = [];
  cancelled: string | undefined;
  #isCreated = false;
  #progress = 0;
  readonly #start: number;
  readonly #call: BareCall;

  constructor({ grpc }: Side, creation: Fields) {
    this.creation = creation;
    this.#start = Number(creation[3] ?? 0);
    this.#call = grpc.open("/etcdserverpb.Watch/Watch");
    this.#call.send(encode({ 1: encode(creation) }));
    this.#call.consume(
      (message) => this.#take(new Message(message)),
      () => {},
    );
  }

  requestProgress(): void {
    this.#call.send(encode({ 3: Buffer.of() }));
  }

  /** Whether it has everything up to a revision. One from a later revision on reports no progress before that. */
  isSynced(revision: number): boolean {
    if (this.cancelled !== undefined) return true;
    return this.#isCreated && (this.#start > revision || this.#progress >= revision);
  }

  #take(response: Message): void {
    const revision = response.message(1)?.number(3) ?? 0;
    if (response.number(4) === 1) this.cancelled = `compacted ${response.number(5)}`;
    if (response.number(3) === 1) this.#isCreated = true;
    if (response.integer(2) === -1n) this.#progress = Math.max(this.#progress, revision);
    for (const event of response.messages(11)) {
      const of = (field: number): string => event.bytes(field).toString("latin1");
      this.events.push(`${event.number(1)} ${of(2)} ${of(3)}`);
    }
  }
}

test("The model answers, and delivers to watches, what the real etcd does.", async () => {
  const seed = Number(process.env["PROPERTY_SEED"] ?? 1) || 1;
  const random = new Seeded(seed);
  const requests = new Requests(random.fork());
  const urls = [(await etcdOf()).url, await startModel(seed)];
  const sides = urls.map((url): Side => ({ grpc: new BareGrpc(url), watches: [] }));
  closing.push(() => {
    for (const { grpc } of sides) grpc.close();
  });
  let revision = 1;
  for (let i = 0; i < 1_500; i++) {
    if (random.chance(0.05)) {
      const creation = requests.creation(revision);
      const created = sides.map((side) => {
        const watch = new Watch(side, creation);
        side.watches.push(watch);
        return watch;
      });
      // What follows would find it before or behind its start.
      await allSynced(created, revision);
    }
    const request = requests.any(revision);
    const [real, modelled] = await Promise.all(sides.map((side) => outcomeOf(side, request)));
    expect(modelled, `request ${i} ${JSON.stringify(request)} at ${revision}`).toEqual(real);
    revision = (real as { revision?: number }).revision ?? revision;
  }
  await allSynced(
    sides.flatMap(({ watches }) => watches),
    revision,
  );
  const [real, modelled] = sides.map(({ watches }) => watches);
  for (const [i, { creation, cancelled, events }] of real?.entries() ?? []) {
    const found = modelled?.[i];
    expect(
      { cancelled: found?.cancelled, events: found?.events },
      JSON.stringify(creation),
    ).toEqual({
      cancelled,
      events,
    });
  }
  expect(real?.flatMap(({ events }) => events).length).toBeGreaterThan(500);
}, 240_000);

async function allSynced(watches: readonly Watch[], revision: number): Promise<void> {
  await Promise.all(
    watches.map((watch) =>
      vi.waitFor(
        () => {
          if (watch.isSynced(revision)) return;
          watch.requestProgress();
          throw new Error("A watch is not synced.");
        },
        { timeout: patienceMs, interval: 20 },
      ),
    ),
  );
}
