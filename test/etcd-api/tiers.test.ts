import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect } from "../../src/client/connect.ts";
import { type Etcd, startEtcd } from "../etcd/etcd.ts";
import { inTime } from "../faults/patience.ts";
import { Relay as Network } from "../faults/relay.ts";
import { encode, Message } from "../foreign/protobuf.ts";
import fc, { costlyRuns } from "../property.ts";
import { compareHistories } from "../relay/random-histories.ts";
import { revisionOf, watchesOf } from "./beside-etcd.ts";
import { type Front, metricOf, startFront, startRelay, until, untilReady } from "./front.ts";
import { watchByHttp1 } from "./gateway/http.ts";
import { RawGrpc, statusOf } from "./raw-grpc.ts";
import { expectedOf, ResumingStream, type Wish } from "./resuming-stream.ts";
import { WatchClient } from "./watch-client.ts";

const range = "/etcdserverpb.KV/Range";
const put = "/etcdserverpb.KV/Put";
const remove = "/etcdserverpb.KV/DeleteRange";
const txn = "/etcdserverpb.KV/Txn";
const compact = "/etcdserverpb.KV/Compact";

/** etcd, a root, a relay, and a relay of that, and a client of each. The relay reaches the root over a network. */
class Tiers {
  readonly etcd: Etcd;
  readonly fronts: readonly Front[];
  readonly network: Network;
  readonly clients: readonly RawGrpc[];

  private constructor(etcd: Etcd, fronts: readonly Front[], network: Network) {
    this.etcd = etcd;
    this.fronts = fronts;
    this.network = network;
    this.clients = [etcd, ...fronts].map(({ url }) => new RawGrpc(url));
  }

  /** The event windows are so short that watches also need what only a tier nearer to etcd has, or etcd itself. */
  static async start(resources: readonly string[]): Promise<Tiers> {
    const etcd = await startEtcd();
    const root = await startFront([etcd.url], { resource: resources, ...windowOf(24) });
    const network = await Network.to(Number(new URL(root.url).port));
    const relay = await startRelay([`127.0.0.1:${network.port}`], windowOf(12));
    const leaf = await startRelay([relay.address], windowOf(6));
    const tiers = new Tiers(etcd, [root, relay, leaf], network);
    for (const front of tiers.fronts) await untilReady(front);
    return tiers;
  }

  async stop(): Promise<void> {
    for (const client of this.clients) client.close();
    for (const front of [...this.fronts].reverse()) await front.stop();
    await this.network.close();
    await this.etcd.stop();
  }

  /** Number of watches that fronts do not serve from their caches. */
  async servedByNext(): Promise<number> {
    const counts = await this.metrics("watch_fanout_etcd_api_watches", "etcd");
    return counts.reduce((sum, count) => sum + count, 0);
  }

  /** A metric of each front. */
  metrics(name: string, label: string): Promise<number[]> {
    return Promise.all(this.fronts.map((front) => metricOf(front, name, label)));
  }
}

function windowOf(events: number): Readonly<Record<string, readonly string[]>> {
  return {
    "event-window-max-events": [String(events)],
    "event-window-min-events": ["1"],
    "event-window-age": ["1s"],
  };
}

const bytes = (text: string): Buffer => Buffer.from(text, "latin1");

/** Number of Ranges that etcd has answered. */
async function rangesOf({ url }: Etcd): Promise<number> {
  const text = await (await fetch(`${url}/metrics`)).text();
  const ofRange = /grpc_server_handled_total\{.*OK.*grpc_method="Range".*\} (\d+)/.exec(text);
  return Number(ofRange?.[1]);
}

/** How often the tiers have read the history's id since then, by `performance.now`: each that of two resources every 2 s. */
function historyReads({ fronts }: Tiers, since: number): number {
  return ((performance.now() - since) / 2_000) * fronts.length * 2;
}

/** The revision of the header of a Range's response, and its bytes. */
async function read(client: RawGrpc, request: Buffer) {
  const response = await client.unary(range, request);
  expect(statusOf(response).code).toBe("0");
  const revision = new Message(response.body.subarray(5)).message(1)?.number(3) ?? 0;
  return { revision, hex: response.body.toString("hex") };
}

test("Each tier reads the history of a key as etcd has it.", async () => {
  const tiers = await Tiers.start(["a=/a/"]);
  const clients = tiers.fronts.map(({ address }) => connect({ address }));
  try {
    await compareHistories(tiers.etcd, "/a/", "a", clients);
  } finally {
    for (const client of clients) client.close();
    await tiers.stop();
  }
});

describe("etcd's API at a root, a relay, and a relay of that", () => {
  let tiers: Tiers;

  beforeAll(async () => {
    tiers = await Tiers.start(["a=/a/", "b=/b/"]);
  });

  afterAll(() => tiers?.stop());

  test("gives each client at once what was written through another one, with etcd's header", async () => {
    const { clients } = tiers;
    for (const [at, client] of clients.entries()) {
      const key = `/a/${at}`;
      const revision = await revisionOf(client, put, encode({ 1: key, 2: "v" }));
      const all = await Promise.all(clients.map((each) => read(each, encode({ 1: key }))));
      expect(new Set(all.map(({ hex }) => hex)).size).toBe(1);
      expect(all[0]?.revision).toBe(revision);
    }
    // Each from its cache, but where that takes seconds to be as new as etcd, as on a busy machine.
    await until(async () => {
      await Promise.all(clients.map((each) => read(each, encode({ 1: "/a/0" }))));
      const cached = await tiers.metrics("watch_fanout_etcd_api_ranges_total", "cache");
      return Math.min(...cached) > 0;
    });
  });

  test("serves watches from the cache of each tier, over one watch of etcd for each resource", async () => {
    const { clients, etcd } = tiers;
    const watches = clients.slice(1).map((client) => new WatchClient(client));
    for (const watch of watches) {
      watch.create({ 1: "/a/", 2: "/a0", 6: true });
      await watch.until(([created]) => created?.created === true);
    }
    const write = (value: string) =>
      revisionOf(clients[0] as RawGrpc, put, encode({ 1: "/a/w", 2: value }));
    const first = await write("0");
    for (let i = 1; i < 10; i++) await write(String(i));
    const last = await revisionOf(clients[0] as RawGrpc, remove, encode({ 1: "/a/w" }));
    const truth = new WatchClient(clients[0] as RawGrpc);
    truth.create({ 1: "/a/", 2: "/a0", 3: first, 6: true });
    for (const watch of [truth, ...watches]) await watch.untilProgress(last);
    expect(truth.eventsOf()).toHaveLength(11);
    for (const watch of watches) expect(watch.eventsOf()).toEqual(truth.eventsOf());
    const headers = [truth, ...watches].flatMap(({ responses }) =>
      responses.map(({ header }) => header.join()),
    );
    expect(new Set(headers).size).toBe(1);
    truth.close();
    // A relay's own watch may begin where the cache of the next tier does, and is handed over to it within a second.
    await until(async () => (await watchesOf(etcd)) === 2);
    await until(async () => (await tiers.servedByNext()) === 0);
    for (const watch of watches) watch.close();
  });

  test("serves the JSON gateway at each tier as etcd does, from its cache", async () => {
    const urls = [tiers.etcd, ...tiers.fronts].map(({ url }) => url);
    const post = (url: string, path: string, body: unknown): Promise<Response> =>
      fetch(`${url}/v3/${path}`, { method: "POST", body: JSON.stringify(body) });
    const key = Buffer.from("/a/json").toString("base64");
    const before = await tiers.metrics("watch_fanout_etcd_api_ranges_total", "cache");
    const watches = await Promise.all(
      urls.map((url) => watchByHttp1(url, JSON.stringify({ create_request: { key } }))),
    );
    for (const watch of watches) expect((await watch.next()).result?.created).toBe(true);
    expect((await post(urls.at(-1) ?? "", "kv/put", { key, value: "YQ==" })).status).toBe(200);
    const read = await Promise.all(
      urls.map(async (url) => (await post(url, "kv/range", { key })).json()),
    );
    expect(read[0]).toMatchObject({ kvs: [{ key, value: "YQ==" }] });
    expect(new Set(read.map((each) => JSON.stringify(each))).size).toBe(1);
    const events = await Promise.all(watches.map(async (watch) => (await watch.next()).result));
    for (const each of events) expect(each?.events).toEqual(events[0]?.events);
    // Relays confirm their caches' revision by a read of the tier before.
    await until(async () => {
      const cached = await tiers.metrics("watch_fanout_etcd_api_ranges_total", "cache");
      if (cached.every((count, tier) => count > (before[tier] ?? 0))) return true;
      await Promise.all(urls.map((url) => post(url, "kv/range", { key })));
      return false;
    });
    for (const watch of watches) await watch.cancel();
  });

  test("never answers below what an endpoint has said, also serializable", async () => {
    const { clients } = tiers;
    const uncached = encode({ 1: "/c/1", 2: "v" });
    for (let i = 0; i < 10; i++) {
      for (const client of clients.slice(1)) {
        // Of a key that no cache has: the caches learn of the revision by asking.
        const revision = await revisionOf(client, put, uncached);
        const serializable = encode({ 1: "/a/", 2: "/a0", 7: true });
        expect((await read(client, serializable)).revision).toBeGreaterThanOrEqual(revision);
        const watch = new WatchClient(client);
        watch.create({ 1: "/a/1" });
        await watch.until(({ length }) => length === 1);
        expect(watch.responses[0]?.revision).toBeGreaterThanOrEqual(revision);
        watch.close();
      }
    }
  });

  test("asks etcd once for a linearizable read after a write, at any depth", async () => {
    const { clients, etcd } = tiers;
    const [direct, leaf] = [clients[0] as RawGrpc, clients.at(-1) as RawGrpc];
    const questions: number[] = [];
    const since = performance.now();
    for (let i = 0; i < 21; i++) {
      const revision = await revisionOf(direct, put, encode({ 1: "/c/1", 2: "v" }));
      const before = await rangesOf(etcd);
      expect((await read(leaf, encode({ 1: "/a/1" }))).revision).toBe(revision);
      questions.push((await rangesOf(etcd)) - before);
    }
    // Some have more: those of the history's id, and of tiers that start.
    expect(Math.min(...questions)).toBe(1);
    const all = questions.reduce((sum, count) => sum + count, 0);
    expect(all - historyReads(tiers, since)).toBeLessThan(1.5 * questions.length);
  });

  test("asks etcd nothing for the events that tiers pass on", async () => {
    const { clients, etcd } = tiers;
    const direct = clients[0] as RawGrpc;
    const ranges = () => rangesOf(etcd);
    const [before, since] = [await ranges(), performance.now()];
    for (let i = 0; i < 100; i++) {
      // Revisions of other keys between them: the caches are at a higher one than their last event.
      const keysOfRound = ["/a/q1", "/c/1", "/a/q2", "/a/q3", "/c/2"];
      const written = keysOfRound.map((each) =>
        revisionOf(direct, put, encode({ 1: each, 2: "v" })),
      );
      await Promise.all(written);
    }
    expect((await ranges()) - before - historyReads(tiers, since)).toBeLessThan(20);
  });

  test("passes on what no cache has: leases, transactions, maintenance, and refusals", async () => {
    const { clients } = tiers;
    const bodies = async (path: string, request: Buffer): Promise<Set<string>> => {
      const all = await Promise.all(clients.map((client) => client.unary(path, request)));
      return new Set(all.map((each) => `${statusOf(each).code} ${each.body.toString("hex")}`));
    };
    const nothing = Buffer.of();
    expect((await bodies("/etcdserverpb.Cluster/MemberList", nothing)).size).toBe(1);
    expect((await bodies("/etcdserverpb.Lease/LeaseLeases", nothing)).size).toBe(1);
    expect((await bodies(txn, encode({ 3: encode({ 1: encode({ 1: "/a/1" }) }) }))).size).toBe(1);
    expect(await bodies(put, encode({ 1: "/a/1", 3: 4_711 }))).toEqual(new Set(["5 "]));
    for (const { url } of tiers.fronts) {
      expect(await (await fetch(`${url}/health`)).json()).toMatchObject({ health: "true" });
    }
  });

  test("refuses what etcd has compacted, at each tier", async () => {
    const { clients } = tiers;
    const first = await revisionOf(
      clients[0] as RawGrpc,
      put,
      encode({ 1: "/a/compacted", 2: "1" }),
    );
    const second = await revisionOf(
      clients[0] as RawGrpc,
      put,
      encode({ 1: "/a/compacted", 2: "2" }),
    );
    await revisionOf(clients.at(-1) as RawGrpc, compact, encode({ 1: second }));
    for (const client of clients) {
      const response = await client.unary(range, encode({ 1: "/a/compacted", 4: first }));
      expect(statusOf(response).message).toContain("required revision has been compacted");
      const watch = new WatchClient(client);
      watch.create({ 1: "/a/compacted", 3: first });
      await watch.until((responses) => responses.some(({ canceled }) => canceled));
      expect(watch.responses.at(-1)?.compactRevision).toBe(second);
      watch.close();
    }
  });

  test("delivers each event once to watches that move between etcd and the tiers", async () => {
    const moves = fc.array(step, { minLength: 30, maxLength: 60 });
    await fc.assert(
      fc.asyncProperty(moves, (steps) => expectEachOnce(tiers, steps)),
      { numRuns: costlyRuns(20) },
    );
  });

  test("hands watches from the past over to the caches, between two events and without a gap or repetition", async () => {
    const { clients } = tiers;
    const direct = clients[0] as RawGrpc;
    const write = (value: number): Promise<number> =>
      revisionOf(direct, put, encode({ 1: "/a/handed", 2: String(value) }));
    const first = await write(1);
    let written = 1;
    while (written < 60) await write(++written);
    const watches = clients.slice(1).map((client) => new WatchClient(client));
    for (const watch of watches) watch.create({ 1: "/a/handed", 3: first });
    const expectAll = async (): Promise<void> => {
      const expected = Array.from({ length: written }, (_, i) => i + 1);
      for (const watch of watches) {
        await watch.until(() => Number(watch.eventsOf().at(-1)?.kv.value) >= written);
        expect(watch.eventsOf().map(({ kv }) => Number(kv.value))).toEqual(expected);
      }
    };
    // Whenever it is handed over, its last event is in the cache, and the next ones follow.
    do {
      await expectAll();
      for (let i = 0; i < 2; i++) await write(++written);
    } while ((await tiers.servedByNext()) > 0);
    await expectAll();
    for (const watch of watches) watch.close();
  });

  test("continues watches when etcd is restarted", async () => {
    const { etcd, clients } = tiers;
    const watches = clients.slice(1).map((client) => new WatchClient(client));
    for (const watch of watches) {
      watch.create({ 1: "/a/restart" });
      await watch.until(({ length }) => length === 1);
    }
    await etcd.kill();
    await etcd.start();
    const leaf = clients.at(-1) as RawGrpc;
    let written = "";
    await until(async () => {
      written = statusOf(await leaf.unary(put, encode({ 1: "/a/restart", 2: "v" }))).code;
      return written === "0";
    });
    for (const watch of watches) {
      await watch.until((responses) => responses.some(({ events }) => events.length > 0));
      watch.close();
    }
  });
});

test("A relay of all keys costs etcd no watch, though the key of the history is among them", async () => {
  const tiers = await Tiers.start(["all="]);
  try {
    const { etcd, clients } = tiers;
    const leaf = clients.at(-1) as RawGrpc;
    const watch = new WatchClient(leaf);
    watch.create({ 1: "any" });
    await watch.until(({ length }) => length === 1);
    const revision = await revisionOf(leaf, put, encode({ 1: "any", 2: "v" }));
    await watch.untilProgress(revision);
    expect(watch.eventsOf()).toHaveLength(1);
    await until(async () => (await watchesOf(etcd)) === 1);
    await until(async () => (await tiers.servedByNext()) === 0);
    // What clients ask for has the key of the history.
    const history = new WatchClient(leaf);
    history.create({ 1: Buffer.of(0), 2: Buffer.of(0), 3: 1 });
    await history.until(() => history.eventsOf().length > 0);
    expect(history.eventsOf().map(({ kv }) => kv.key)).toContain("/watchfanout/history");
    for (const each of [watch, history]) each.close();
  } finally {
    await tiers.stop();
  }
});

type Step =
  | {
      readonly kind: "write";
      readonly keys: readonly string[];
      readonly isRemoval: boolean;
      readonly at: number;
    }
  | { readonly kind: "move"; readonly stream: number; readonly to: number }
  | { readonly kind: "progress"; readonly stream: number }
  /** Of the connections between the root and its relay. Writes through relays would have no outcome meanwhile. */
  | { readonly kind: "cut" }
  | {
      readonly kind: "create";
      readonly stream: number;
      readonly back: number;
      readonly wish: Omit<Wish, "start">;
    };

/** As latin1: any bytes. */
const keys = ["/a/", "/a/1", "/a/2", "/a/2/3", "/a/\u00ff", "/b/1", "/c/1"];
const ends = ["", "/a0", "/a/2", "/a/3", "/b0", "/c0"];
const stream = fc.integer({ min: 0, max: 2 });
const endpoint = fc.integer({ min: 0, max: 3 });
const key = fc.constantFrom(...keys);
const wish = fc
  .record({
    key,
    end: fc.constantFrom(...ends),
    filters: fc.subarray([0, 1]),
    previous: fc.boolean(),
  })
  .map((made) => (made.end !== "" && made.end <= made.key ? { ...made, end: "" } : made));
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant("write"),
      keys: fc.uniqueArray(key, { minLength: 1, maxLength: 3 }),
      isRemoval: fc.boolean(),
      at: fc.integer({ min: 0, max: 1 }),
    }),
  },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("move"), stream, to: endpoint }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("progress"), stream }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("cut") }) },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant("create"),
      stream,
      back: fc.integer({ min: 0, max: 40 }),
      wish,
    }),
  },
);

async function expectEachOnce({ clients, network }: Tiers, steps: readonly Step[]): Promise<void> {
  const direct = clients[0] as RawGrpc;
  const streams = [1, 2, 3].map((at) => new ResumingStream(clients[at] as RawGrpc));
  const first = await revisionOf(direct, put, encode({ 1: "/d", 2: "" }));
  let revision = first;
  for (const each of steps) {
    if (each.kind === "move") streams[each.stream]?.moveTo(clients[each.to] as RawGrpc);
    else if (each.kind === "cut") {
      // More of them would only make the relay wait longer before it connects again.
      if (each === steps.find(({ kind }) => kind === "cut")) network.cut();
    } else if (each.kind === "progress") streams[each.stream]?.requestProgress();
    else if (each.kind === "create") {
      const start = each.back === 0 ? 0 : Math.max(first, revision - each.back);
      streams[each.stream]?.create({ ...each.wish, start });
    } else {
      const operations = each.keys.map((written) =>
        each.isRemoval
          ? encode({ 3: encode({ 1: bytes(written) }) })
          : encode({ 2: encode({ 1: bytes(written), 2: String(revision) }) }),
      );
      revision = await revisionOf(clients[each.at] as RawGrpc, txn, encode({ 2: operations }));
    }
  }
  const asking = setInterval(() => {
    for (const each of streams) each.requestProgress();
  }, 50);
  const truth = new WatchClient(direct);
  try {
    // So that also those that begin now have their events.
    await until(() => streams.every(({ watches }) => watches.every(({ id }) => id !== undefined)));
    const last = await revisionOf(direct, put, encode({ 1: "/d", 2: "" }));
    const isDone = (): boolean =>
      streams.every(({ watches }) => watches.every(({ next }) => next > last));
    await inTime(() => "all watches to have progress", until(isDone));
    truth.create({ 1: Buffer.of(0), 2: Buffer.of(0), 3: first, 6: true });
    await truth.until(() => Number(truth.eventsOf().at(-1)?.kv.mod ?? 0) >= last);
    for (const { watches, wrong } of streams) {
      expect(wrong).toEqual([]);
      for (const watch of watches) {
        expect(watch.events, JSON.stringify(watch.wish)).toEqual(
          expectedOf(watch, truth.eventsOf()),
        );
      }
    }
  } finally {
    clearInterval(asking);
    for (const each of [truth, ...streams]) each.close();
  }
}
