import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { EtcdCluster } from "../../faults/etcd-cluster.ts";
import { untilSeen } from "../../faults/patience.ts";
import { encode, Message } from "../../foreign/protobuf.ts";
import { rounds } from "../../thorough.ts";
import { type Front, metricOf, startFront, untilReady } from "../front.ts";
import { RawGrpc, type RawResponse, statusOf } from "../raw-grpc.ts";
import { WatchClient } from "../watch-client.ts";

const putPath = "/etcdserverpb.KV/Put";
const rangePath = "/etcdserverpb.KV/Range";
const all = { 1: Buffer.of(0), 2: Buffer.of(0) };

/** The pause of a client between two calls, in milliseconds: without one, the load takes the CPU that the members need. */
const pauseMs = 5;

/** What etcd answers a write at a member that is removed meanwhile, and at one that has had no leader for some seconds. */
const endsOfWrites: ReadonlySet<string> = new Set(["raft: stopped", "context deadline exceeded"]);

let cluster: EtcdCluster;

beforeAll(async () => {
  cluster = await EtcdCluster.start({ size: 3 });
});

afterAll(() => cluster?.stop());

function headerOf({ body }: RawResponse): { readonly member: string; readonly revision: number } {
  const header = new Message(body.subarray(5)).message(1);
  return {
    member: String(BigInt.asUintN(64, header?.integer(2) ?? 0n)),
    revision: Number(header?.number(3) ?? 0),
  };
}

/** Resolves when the condition is true. Rejects after a minute. */
async function until(condition: () => Promise<boolean> | boolean): Promise<void> {
  await untilSeen(String(condition), async () => ((await condition()) ? true : undefined));
}

/** Makes calls, and checks each answer against those that clients have had before it was asked. */
class Load {
  readonly #client: RawGrpc;
  readonly #failed: string[] = [];
  readonly members = new Map<string, number>();
  #floor = 0;
  #isOver = false;
  writes = 0;
  #running: Promise<void>[] = [];

  constructor(url: string) {
    this.#client = new RawGrpc(url);
    // Also if the test fails: calls of a connection that is closed end at once, and would leave no time for anything else.
    onTestFinished(async () => void (await this.end()));
  }

  start(): void {
    for (const key of ["/c/1", "/c/2"]) this.#run(() => this.#put(key));
    // Outside of the cache.
    for (const serializable of [false, true]) this.#run(() => this.#read("/u/1", serializable));
    this.#run(() => this.#read("/c/1", true));
  }

  /** Ends it, and returns what has failed though it must not. Idempotent. */
  async end(): Promise<readonly string[]> {
    this.#isOver = true;
    await Promise.all(this.#running);
    this.#client.close();
    return this.#failed;
  }

  #run(call: () => Promise<void>): void {
    const repeat = async (): Promise<void> => {
      while (!this.#isOver) {
        await call();
        await delay(pauseMs);
      }
    };
    this.#running.push(repeat());
  }

  async #put(key: string): Promise<void> {
    const floor = this.#floor;
    const response = await this.#client.unary(putPath, encode({ 1: key, 2: `${this.writes}` }));
    // A write is not repeated by itself.
    const { code, message } = statusOf(response);
    if (code === "14" || endsOfWrites.has(message)) return;
    this.writes++;
    const { member } = this.#check("a put", response, floor);
    this.members.set(member, (this.members.get(member) ?? 0) + 1);
  }

  async #read(key: string, serializable: boolean): Promise<void> {
    const floor = this.#floor;
    const response = await this.#client.unary(rangePath, encode({ 1: key, 7: serializable }));
    this.#check(`a read of ${key}, serializable: ${serializable}`, response, floor);
  }

  #check(what: string, response: RawResponse, floor: number): ReturnType<typeof headerOf> {
    const { code, message } = statusOf(response);
    if (code !== "0") {
      this.#failed.push(`${what}: ${code} ${message}`);
      return { member: "", revision: 0 };
    }
    const header = headerOf(response);
    if (header.revision < floor)
      this.#failed.push(`${what}: revision ${header.revision} after ${floor}`);
    this.#floor = Math.max(this.#floor, header.revision);
    return header;
  }
}

/** The revisions of the events of a watch of all keys below /c/. */
function revisionsOf(watch: WatchClient): number[] {
  return watch.eventsOf().map(({ kv }) => Number(kv.mod));
}

function watchFrom(client: RawGrpc, revision: number): WatchClient {
  const watch = new WatchClient(client);
  watch.create({ 1: "/c/", 2: "/c0", 3: revision });
  return watch;
}

async function startedFront(
  urls: readonly string[],
  flags: Readonly<Record<string, readonly string[]>> = {},
): Promise<Front> {
  const front = await startFront(urls, { resource: ["c=/c/"], ...flags });
  await untilReady(front);
  return front;
}

test("Calls are spread over three members, which are killed and restarted, and no read fails, no event is lost or repeated, and no revision goes back", async ({
  onTestFinished,
}) => {
  const front = await startedFront(cluster.members.map(({ url }) => url));
  onTestFinished(() => front.stop());
  const client = new RawGrpc(front.url);
  onTestFinished(() => client.close());
  const from = (await cluster.revision()) + 1;
  const watch = watchFrom(client, from);
  const load = new Load(front.url);
  load.start();
  // Until all are connected, those that are get all calls.
  await until(() => load.members.size === 3);
  // That they go to each in turn is tested without other calls in between, which take turns too.
  const atFirst = new Map(load.members);
  await until(() =>
    [...load.members].every(([id, writes]) => writes >= (atFirst.get(id) ?? 0) + 20),
  );
  for (const member of cluster.members.slice(0, rounds(3, 2))) {
    await cluster.kill(member);
    const killedAt = load.writes;
    await until(() => load.writes >= killedAt + 30);
    await cluster.heal();
    const before = load.members.get(member.id) ?? 0;
    // It is used again.
    await until(() => (load.members.get(member.id) ?? 0) >= before + 5);
  }
  expect(await load.end()).toEqual([]);

  const [member] = cluster.members;
  const direct = new RawGrpc(member?.url ?? "");
  onTestFinished(() => direct.close());
  let last = 0;
  await until(async () => {
    const put = await client.unary(putPath, encode({ 1: "/c/last", 2: "" }));
    if (statusOf(put).code === "0") last = headerOf(put).revision;
    return last > 0;
  });
  const truth = watchFrom(direct, from);
  // A write whose answer was lost with a member may be applied later.
  await until(() => {
    const [one = 0, other = 0] = [truth, watch].map((each) => revisionsOf(each).at(-1));
    return one >= last && one === other;
  });
  expect(revisionsOf(watch)).toEqual(revisionsOf(truth));
  expect(await metricOf(front, "watch_fanout_etcd_api_watches", "cache")).toBe(1);
});

test("A member without a leader is left out", async ({ onTestFinished }) => {
  const front = await startedFront(cluster.members.map(({ url }) => url));
  onTestFinished(() => front.stop());
  const load = new Load(front.url);
  load.start();
  await until(() => load.members.size === 3);
  const cutOff = await cluster.leader();
  cluster.cutOff(cutOff);
  await until(async () => (await cutOff.status()).leader === "0");
  const before = load.members.get(cutOff.id);
  const { writes } = load;
  await until(() => load.writes >= writes + 30);
  expect(load.members.get(cutOff.id)).toBe(before);
  await cluster.heal();
  await until(() => (load.members.get(cutOff.id) ?? 0) > (before ?? 0));
  expect(await load.end()).toEqual([]);
});

test("A member that hangs delays the calls that it has, and gets no further ones", async ({
  onTestFinished,
}) => {
  const front = await startedFront(cluster.members.map(({ url }) => url));
  onTestFinished(() => front.stop());
  const load = new Load(front.url);
  load.start();
  await until(() => load.members.size === 3);
  const leader = await cluster.leader();
  // The first is asked for what needs one member, and the leader for everything.
  const hung = cluster.members.find((member, i) => i > 0 && member !== leader) ?? leader;
  await cluster.pause(hung);
  onTestFinished(() => cluster.heal());
  // Calls that are made one after another, each of which would be at the hung one sooner or later.
  const client = new RawGrpc(front.url);
  onTestFinished(() => client.close());
  let late = 0;
  for (let i = 0; i < rounds(60, 30); i++) {
    const startedAt = performance.now();
    const response = await client.unary(rangePath, encode({ 1: "/u/1" }));
    expect(statusOf(response).code).toBe("0");
    if (performance.now() - startedAt > 5_000) late++;
  }
  expect(late).toBeLessThanOrEqual(1);
  await cluster.heal();
  const before = load.members.get(hung.id) ?? 0;
  await until(() => (load.members.get(hung.id) ?? 0) > before);
  expect(await load.end()).toEqual([]);
});

test("The members are asked for at an interval: those that are added get calls, one that is removed gets none", async ({
  onTestFinished,
}) => {
  const [one, , removed] = cluster.members;
  if (one === undefined || removed === undefined) throw new Error("There are three members.");
  const front = await startedFront([one.url], { "etcd-endpoints-sync-interval": ["200ms"] });
  onTestFinished(() => front.stop());
  const client = new RawGrpc(front.url);
  onTestFinished(() => client.close());
  const watch = watchFrom(client, (await cluster.revision()) + 1);
  const load = new Load(front.url);
  load.start();
  await until(() => load.members.size === 3);
  await one.call("cluster/member/remove", { ID: removed.id });
  await until(async () => {
    const { members } = await one.call("cluster/member/list", {});
    return (members as readonly object[]).length === 2;
  });
  const writes = load.writes;
  await until(() => load.writes >= writes + 60);
  const of = load.members.get(removed.id);
  const later = load.writes;
  await until(() => load.writes >= later + 30);
  expect(load.members.get(removed.id)).toBe(of);
  expect(await load.end()).toEqual([]);
  const counted = await client.unary(rangePath, encode({ ...all, 9: true }));
  const { revision } = headerOf(counted);
  const last = headerOf(await client.unary(putPath, encode({ 1: "/c/last", 2: "" }))).revision;
  expect(last).toBe(revision + 1);
  await until(() => revisionsOf(watch).at(-1) === last);
  expect(new Set(revisionsOf(watch)).size).toBe(revisionsOf(watch).length);
});
