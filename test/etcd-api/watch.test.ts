import { beforeAll, describe, expect, test } from "vitest";
import type { Etcd } from "../etcd/etcd.ts";
import { encode, type Fields, Message } from "../foreign/protobuf.ts";
import { besideEtcdOfFile, revisionOf, watchesServedBy } from "./beside-etcd.ts";
import { type Front, until } from "./front.ts";
import { type RawGrpc, statusOf } from "./raw-grpc.ts";
import { WatchClient, type WatchResponse } from "./watch-client.ts";

const started = besideEtcdOfFile({
  resource: ["a=/a/", "b=/b/"],
  "watch-progress-notify-interval": ["200ms"],
});

let etcd: Etcd;
let front: Front;
let direct: RawGrpc;
let cached: RawGrpc;

beforeAll(async () => {
  ({ etcd, front, direct, cached } = await started());
});

/** Writes through the service, and returns the revision. */
async function put(
  key: string | Buffer,
  value: string | Buffer = "v",
  fields: Fields = {},
): Promise<number> {
  return revisionOf(cached, "/etcdserverpb.KV/Put", encode({ 1: key, 2: value, ...fields }));
}

async function remove(key: string, rangeEnd = ""): Promise<number> {
  return revisionOf(cached, "/etcdserverpb.KV/DeleteRange", encode({ 1: key, 2: rangeEnd }));
}

const servedBy = (what: string): Promise<number> => watchesServedBy(front, what);

/** Runs a script on a stream of etcd and on one of the service. */
async function both(
  script: (client: WatchClient) => Promise<void>,
): Promise<readonly [own: WatchClient, etcds: WatchClient]> {
  const clients = [new WatchClient(cached), new WatchClient(direct)] as const;
  for (const client of clients) {
    await script(client);
    client.close();
  }
  return clients;
}

/** The responses without events, which etcd sends in the order of the requests. */
const answersOf = ({ responses }: WatchClient): readonly WatchResponse[] =>
  responses.filter(({ events }) => events.length === 0);

async function watchersOfEtcd(): Promise<number> {
  const text = await (await fetch(`${etcd.url}/metrics`)).text();
  return Number(/^etcd_debugging_mvcc_watcher_total (\d+)/m.exec(text)?.[1]);
}

describe("The answers of a stream are those of etcd", () => {
  test("for ids, duplicates, empty ranges, past and future revisions, and cancellation", async () => {
    const start = await put("/a/answers", "1");
    const [own, etcds] = await both(async (client) => {
      client.create({ 1: "/a/answers", 7: 5 });
      client.create({ 1: "/a/answers", 7: 5 });
      client.create({ 1: "/a/answers", 2: "/a/ansver" });
      client.create({ 1: "/a/answers", 2: "/a/answers" });
      client.create({ 1: "/a/answers" });
      client.create({ 1: "/a/answers", 3: start });
      client.create({ 1: "/a/answers", 7: -7 });
      client.create({ 1: "/a/answers", 3: 2n ** 63n - 1n });
      // Not below a cached prefix: etcd serves these, and the answers to later requests wait for its.
      client.create({ 1: "/c/", 2: "/c0" });
      client.create({ 2: Buffer.of(0) });
      client.create({ 1: "/a/", 2: "/a0" });
      await client.until(() => answersOf(client).length >= 11);
      client.cancel(99);
      client.cancel(5);
      // Of the watch that begins at the last revision: the header has the current one.
      client.cancel(2);
      // No union that is known.
      client.call.send(Buffer.from([0x22, 0x00]));
      client.call.send(Buffer.of());
      client.create({ 1: "/a/answers", 7: 5 });
      await client.until(() => answersOf(client).length >= 14 && client.eventsOf("1").length > 0);
    });
    expect(answersOf(own)).toEqual(answersOf(etcds));
    expect(own.eventsOf("1")).toEqual(etcds.eventsOf("1"));
  });

  test("for fields that are newer than this service, and of other types: etcd serves these watches", async () => {
    const [own, etcds] = await both(async (client) => {
      client.create({ 1: "/a/newer", 8: "not a number" });
      await client.call.response;
    });
    const [mine, theirs] = [own, etcds].map(async ({ call }) => {
      const { code, message } = statusOf(await call.response);
      return { code, message: decodeURIComponent(message) };
    });
    expect(await mine).toEqual(await theirs);
    expect(await mine).toMatchObject({ code: "13", message: expect.stringContaining("Fragment") });
    const client = new WatchClient(cached);
    client.create({ 1: "/a/newer", 99: 1 });
    await client.until(({ length }) => length >= 1);
    expect(await servedBy("etcd")).toBe(1);
    client.close();
    await until(async () => (await servedBy("etcd")) === 0);
  });

  test("for an end that is present and empty: the watch is of one key, other than a Range", async () => {
    const start = await put("/a/end", "1");
    await put("/a/end/next", "2");
    await put("/a/end", "3");
    const [own, etcds] = await both(async (client) => {
      client.create({ 1: "/a/end", 2: "", 3: start });
      await client.until(() => client.eventsOf().length >= 2);
    });
    expect(own.eventsOf()).toEqual(etcds.eventsOf());
    expect(own.eventsOf().map(({ kv }) => kv.value)).toEqual(["1", "3"]);
  });

  test("for a negative start revision (etcd issue 20707)", async () => {
    const client = new WatchClient(cached);
    client.create({ 1: "/a/negative", 3: -1 });
    await client.until(({ length }) => length >= 1);
    expect(client.responses[0]).toMatchObject({
      ...{ id: "-1", created: true, canceled: true },
      reason: "etcdserver: mvcc: required revision has been compacted",
    });
    // Never without a header (etcd issue 21696).
    expect(client.responses[0]?.header.every((field) => field !== "0")).toBe(true);
    client.close();
  });

  test.each([
    ["what is relayed", "/c/compacted"],
    ["what the cache still has", "/a/compacted"],
  ])(
    "for a compacted revision of %s: the revision of the compaction itself is served (etcd issue 19179)",
    async (_what, key) => {
      const first = await put(key, "1");
      const second = await put(key, "2");
      await revisionOf(cached, "/etcdserverpb.KV/Compact", encode({ 1: second }));
      const [own, etcds] = await both(async (client) => {
        client.create({ 1: key, 3: first });
        client.create({ 1: key, 3: second });
        await client.until(({ length }) => length >= 4);
      });
      const sorted = ({ responses }: WatchClient): readonly WatchResponse[] =>
        responses.toSorted((one, other) => Number(one.id) - Number(other.id));
      expect(sorted(own)).toEqual(sorted(etcds));
      expect(own.responses.some(({ compactRevision }) => compactRevision === second)).toBe(true);
      // A retry does not join what has ended (etcd issue 10650).
      const again = new WatchClient(cached);
      again.create({ 1: key, 3: second + 1 });
      await again.until(({ length }) => length >= 1);
      await put(key, "3");
      await again.until(() => again.eventsOf().length === 1);
      again.close();
    },
  );

  test.each([
    ["a put", "put", ["2", "3"]],
    ["a deletion", "remove", ["", "3"]],
  ] as const)(
    "for the previous value of the compacted revision, which etcd does not have any more: %s",
    async (_what, kind, values) => {
      const key = `/a/previous-${kind}`;
      await put(key, "1");
      const revision = await (kind === "put" ? put(key, values[0]) : remove(key));
      await put(key, values[1]);
      const watch = (): Promise<readonly [WatchClient, WatchClient]> =>
        both(async (client) => {
          client.create({ 1: key, 3: revision, 6: true });
          client.create({ 1: key, 3: revision + 1, 6: true });
          client.create({ 1: key, 3: revision });
          await client.until(() =>
            ["0", "1", "2"].every((id) => client.eventsOf(id).length === (id === "1" ? 1 : 2)),
          );
        });
      const [before] = await watch();
      expect(before.eventsOf()[0]?.previous?.value).toBe("1");
      await revisionOf(cached, "/etcdserverpb.KV/Compact", encode({ 1: revision }));
      const [own, etcds] = await watch();
      for (const id of ["0", "1", "2"]) expect(own.eventsOf(id)).toEqual(etcds.eventsOf(id));
      expect(own.eventsOf().map(({ kv, previous }) => [kv.value, previous?.value])).toEqual([
        [values[0], undefined],
        [values[1], kind === "put" ? values[0] : undefined],
      ]);
    },
  );
});

describe("A cached watch", () => {
  test("delivers the events of keys that are not text, of the prefix itself, and of open ends", async () => {
    const keys = [
      "/a/",
      "/a/z",
      Buffer.from("2f612fff00fe", "hex"),
      Buffer.from("2f612fc3", "hex"),
    ];
    const clients = [new WatchClient(cached), new WatchClient(direct)];
    for (const client of clients) {
      client.create({ 1: "/a/", 2: "/a0" });
      client.create({ 1: keys[2], 6: true });
      client.create({ 1: Buffer.from("2f612fc3", "hex"), 2: "/a0" });
      client.create({ 1: "/a/z", 2: "/a/z\0" });
      await client.until(({ length }) => length >= 4);
    }
    // Those of the tests before are closed by then.
    await until(async () => (await servedBy("cache")) === 4);
    for (const key of keys) await put(key, Buffer.from("00ff", "hex"));
    for (const key of keys) await put(key, "2");
    const end = await remove("/a/", "/a0");
    for (const client of clients) await client.untilProgress(end);
    const [own, etcds] = clients as [WatchClient, WatchClient];
    for (const id of ["0", "1", "2", "3"]) expect(own.eventsOf(id)).toEqual(etcds.eventsOf(id));
    expect(own.eventsOf("0").length).toBeGreaterThanOrEqual(12);
    for (const client of clients) client.close();
  });

  test("has the lease of a key, and its expiry", async () => {
    const granted = await cached.unary("/etcdserverpb.Lease/LeaseGrant", encode({ 1: 1 }));
    const lease = new Message(granted.body.subarray(5)).integer(2);
    const client = new WatchClient(cached);
    client.create({ 1: "/a/lease" });
    await client.until(({ length }) => length >= 1);
    await put("/a/lease", "1", { 3: lease });
    await client.until(() => client.eventsOf().length === 2);
    const [event, expiry] = client.eventsOf();
    expect(event?.kv.lease).toBe(String(lease));
    expect(expiry).toMatchObject({ type: "DELETE", kv: { create: "0", lease: "0", value: "" } });
    client.close();
  });

  test("is one watch at etcd, however many clients have it (etcd issue 9839)", async () => {
    // One for each resource.
    await until(async () => (await watchersOfEtcd()) === 2);
    const clients = Array.from({ length: 40 }, () => new WatchClient(cached));
    for (const client of clients) {
      for (let i = 0; i < 5; i++) client.create({ 1: "/a/many", 6: i === 4 });
      await client.until(({ length }) => length >= 5);
    }
    expect(await watchersOfEtcd()).toBe(2);
    await put("/a/many", "1");
    for (const client of clients) await client.until(({ length }) => length >= 10);
    for (const client of clients) client.close();
    await until(async () => (await servedBy("cache")) === 0);
  });

  test("of a client that has half-closed the stream continues (etcd issues 18230, 18011, 13909)", async () => {
    const client = new WatchClient(cached);
    client.create({ 1: "/a/half" });
    client.call.halfClose();
    await client.until(({ length }) => length >= 1);
    await put("/a/half");
    await client.until(() => client.eventsOf().length === 1);
    client.close();
  });

  test("is fragmented as etcd does it, where the client asks for that", async () => {
    const value = Buffer.alloc(400_000, "x");
    const keys = Array.from({ length: 7 }, (_, i) => `/b/large${i}`);
    const clients = [new WatchClient(cached), new WatchClient(direct)];
    for (const key of keys) await put(key, value);
    for (const client of clients) {
      client.create({ 1: "/b/large", 2: "/b/largf", 6: true, 8: true });
      client.create({ 1: "/b/large", 2: "/b/largf", 6: true });
      await client.until(({ length }) => length >= 2);
    }
    await remove("/b/large", "/b/largf");
    const shapes = [];
    for (const client of clients) {
      await client.until(() => ["0", "1"].every((id) => client.eventsOf(id).length === 7));
      shapes.push(
        ["0", "1"].map((id) =>
          client.responses
            .filter((each) => each.id === id && each.events.length > 0)
            .map(({ fragment, events }) => [fragment, events]),
        ),
      );
      client.close();
    }
    expect(shapes[0]).toEqual(shapes[1]);
    expect(shapes[0]?.[0]?.map(([fragment]) => fragment)).toEqual([true, false]);
  });
});

describe("A watch that etcd serves", () => {
  test("has whole revisions in each response, however many etcd sends at once", async () => {
    const value = Buffer.alloc(400_000, "x");
    const keys = Array.from({ length: 7 }, (_, i) => `/c/large${i}`);
    const first = await put("/c/large0", value);
    for (const key of keys) await put(key, value);
    const last = await remove("/c/large", "/c/largf");
    const [own, etcds] = await both(async (client) => {
      client.create({ 1: "/c/large", 2: "/c/largf", 3: first, 6: true });
      client.create({ 1: "/c/large", 2: "/c/largf", 3: first, 6: true, 8: true });
      await client.until(() => ["0", "1"].every((id) => client.eventsOf(id).length === 15));
    });
    for (const id of ["0", "1"]) expect(own.eventsOf(id)).toEqual(etcds.eventsOf(id));
    const sizes = ({ responses }: WatchClient, id: string) =>
      responses
        .filter((each) => each.id === id && each.events.length > 0)
        .map(({ fragment, events }) => [fragment, events.length]);
    expect(sizes(own, "1")).toEqual(sizes(etcds, "1"));
    // etcd would send all in one message, as large as it is.
    expect(sizes(etcds, "0")).toEqual([[false, 15]]);
    expect(sizes(own, "0").length).toBeGreaterThan(1);
    const ending = own.responses.filter(({ id, events }) => id === "0" && events.length > 0).at(-1);
    expect(ending?.events.filter(({ kv }) => kv.mod === String(last))).toHaveLength(7);
  });
});

describe("Progress", () => {
  test("on request is of a revision up to which everything was sent (etcd issues 19710, 15339)", async () => {
    const client = new WatchClient(cached, { hasleader: "true" });
    client.requestProgress();
    for (const key of ["/a/progress", "/b/progress", "/c/progress"]) client.create({ 1: key });
    await client.until(({ length }) => length >= 3);
    await put("/b/progress");
    const revision = await put("/elsewhere");
    // Directly, so that the service does not know the revision.
    const put2 = await direct.unary("/etcdserverpb.KV/Put", encode({ 1: "/elsewhere" }));
    expect(statusOf(put2).code).toBe("0");
    await client.untilProgress(revision + 1);
    const last = client.responses.at(-1);
    expect(last).toMatchObject({ id: "-1", created: false, canceled: false, events: [] });
    expect(client.eventsOf("1")).toHaveLength(1);
    client.close();
  });

  test("on request comes also under a load of writes to other keys, which the cache does not see", async () => {
    const client = new WatchClient(cached);
    client.create({ 1: "/a/loaded" });
    await client.until(({ length }) => length >= 1);
    let isLoaded = true;
    const writing = (async () => {
      while (isLoaded) await put("/elsewhere");
    })();
    client.requestProgress();
    await client.until((responses) => responses.at(-1)?.id === "-1");
    isLoaded = false;
    await writing;
    client.close();
  });

  test("is not sent while a watch begins later (etcd issue 20221)", async () => {
    const revision = await put("/a/later");
    const client = new WatchClient(cached);
    client.create({ 1: "/a/later", 3: revision + 3, 4: true });
    await client.until(({ length }) => length >= 1);
    client.requestProgress();
    await put("/a/later", "2");
    await put("/a/later", "3");
    await put("/a/later", "4");
    await client.until(() => client.eventsOf().length > 0);
    expect(
      client.responses.slice(0, 2).map(({ events }) => events.map(({ kv }) => kv.value)),
    ).toEqual([[], ["4"]]);
    await client.untilProgress(revision + 3);
    client.close();
  });

  test("is sent at intervals to watches that asked for it, also to those that filter all events", async () => {
    const client = new WatchClient(cached);
    client.create({ 1: "/a/quiet", 4: true, 5: [0, 1] });
    client.create({ 1: "/a/quiet" });
    await client.until(({ length }) => length >= 2);
    const revision = await put("/a/quiet");
    await client.until((responses) =>
      responses.some((each) => each.id === "0" && each.revision >= revision),
    );
    expect(client.eventsOf("0")).toEqual([]);
    expect(client.eventsOf("1")).toHaveLength(1);
    expect(answersOf(client).filter(({ id, created }) => id === "1" && !created)).toEqual([]);
    client.close();
  });
});
