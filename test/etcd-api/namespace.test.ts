import { expect, onTestFinished, test } from "vitest";
import { methodOf } from "../../src/etcd/client/requests.ts";
import { startEtcd } from "../etcd/etcd.ts";
import { encode } from "../foreign/protobuf.ts";
import fc, { runs } from "../property.ts";
import {
  type Front,
  metricOf,
  startEmbedded,
  startFront,
  startRelay,
  untilReady,
} from "./front.ts";
import { startGrpcProxy } from "./grpc-proxy.ts";
import { RawGrpc, statusOf } from "./raw-grpc.ts";

const prefix = "ns/";

type Json = { readonly [name: string]: unknown };

/** A request to one of these methods of KV. */
interface Operation {
  readonly name: "range" | "put" | "deleteRange" | "txn";
  readonly request: Json;
}

/** Keys that are ordered around each other, and around the ends of namespaces. */
const key = fc
  .constantFrom("", "\0", "a", "a\0", "ab", "b", "ns/", "ns0", "\xff", "\xff\xff")
  .map((text) => Buffer.from(text, "latin1"));
const end = fc
  .constantFrom("", "\0", "a\0", "b", "c", "ns0", "\xff", "\xff\xff\xff")
  .map((text) => Buffer.from(text, "latin1"));

const range: fc.Arbitrary<Json> = fc.record({
  key,
  range_end: end,
  limit: fc.constantFrom(0, 0, 1, 2),
  sort_order: fc.constantFrom("NONE", "ASCEND", "DESCEND"),
  sort_target: fc.constantFrom("KEY", "MOD", "VALUE"),
  keys_only: fc.boolean(),
  count_only: fc.constantFrom(false, false, true),
});
const put: fc.Arbitrary<Json> = fc.record({
  key,
  value: fc.constantFrom("1", "2", "33").map((text) => Buffer.from(text)),
  prev_kv: fc.boolean(),
});
const deletion: fc.Arbitrary<Json> = fc.record({ key, range_end: end, prev_kv: fc.boolean() });
const compare: fc.Arbitrary<Json> = fc.record({
  ...{ key, range_end: end },
  result: fc.constantFrom("EQUAL", "GREATER", "LESS", "NOT_EQUAL"),
  target: fc.constant("VERSION"),
  version: fc.constantFrom(0, 1, 2),
});
const { txn } = fc.letrec<{ txn: Json; operation: Json }>((tie) => ({
  operation: fc.oneof(
    { maxDepth: 2, depthIdentifier: "nested" },
    fc.record({ request_range: range }),
    fc.record({ request_put: put }),
    fc.record({ request_delete_range: deletion }),
    fc.record({ request_txn: tie("txn") }),
  ),
  txn: fc.record({
    compare: fc.array(compare, { maxLength: 2 }),
    success: fc.array(tie("operation"), { maxLength: 3 }),
    failure: fc.array(tie("operation"), { maxLength: 3 }),
  }),
}));
const operation: fc.Arbitrary<Operation> = fc.oneof(
  fc.record({ name: fc.constant("range" as const), request: range }),
  fc.record({ name: fc.constant("put" as const), request: put }),
  fc.record({ name: fc.constant("deleteRange" as const), request: deletion }),
  fc.record({ name: fc.constant("txn" as const), request: txn }),
);

/** What a server answers, without the ids of its cluster. */
async function answerOf(client: RawGrpc, { name, request }: Operation): Promise<unknown> {
  const { path, requestSerialize, responseDeserialize } = methodOf("KV", name);
  const response = await client.unary(path, requestSerialize(request));
  const { code, message } = statusOf(response);
  // grpc-proxy makes UNKNOWN of some codes. The texts are what clients compare.
  if (code !== "0") return { refusal: decodeURIComponent(message) };
  const decoded = responseDeserialize(response.body.subarray(5)) as Json;
  return withoutIds(decoded);
}

/** A message without the fields of headers that differ between clusters. */
function withoutIds(message: unknown): unknown {
  return JSON.parse(JSON.stringify(message), (name, value: unknown) =>
    ["cluster_id", "member_id", "raft_term"].includes(name) ? undefined : value,
  );
}

/** The events of a watch from revision 2 on, which caches have, up to that of a key with the value "end". */
async function eventsOf(client: RawGrpc, watched: Json): Promise<unknown> {
  const { path, requestSerialize, responseDeserialize } = methodOf("Watch", "watch");
  const call = client.open(path);
  const create = { ...watched, start_revision: 2, prev_kv: true };
  call.send(requestSerialize({ create_request: create }));
  const events: { kv: { value: unknown } }[] = [];
  const end = JSON.stringify(Buffer.from("end"));
  for (let count = 1; JSON.stringify(events.at(-1)?.kv.value) !== end; count++) {
    const message = (await call.untilMessages(count))[count - 1] as Buffer;
    const response = responseDeserialize(message) as { events: typeof events; canceled: boolean };
    if (response.canceled) throw new Error("the watch was canceled");
    events.push(...response.events);
  }
  call.cancel();
  return withoutIds(events);
}

const connect = (url: string): RawGrpc => {
  const client = new RawGrpc(url);
  onTestFinished(() => client.close());
  return client;
};

async function startCached(etcdUrl: string): Promise<Front> {
  const front = await startFront([etcdUrl], {
    "etcd-api-namespace": [prefix],
    "etcd-history-create": ["off"],
    resource: [`all=${prefix}`],
  });
  onTestFinished(() => front.stop());
  return front;
}

test("a namespace answers random requests as the real etcd grpc-proxy does", async () => {
  const [etcd, other] = [await startEtcd(), await startEtcd()];
  onTestFinished(() => etcd.stop());
  onTestFinished(() => other.stop());
  const cached = await startCached(etcd.url);
  const plain = await startFront([etcd.url], { "etcd-api-namespace": [prefix] });
  onTestFinished(() => plain.stop());
  const relay = await startRelay([cached.address]);
  onTestFinished(() => relay.stop());
  await untilReady(cached);
  await untilReady(relay);
  const reference = connect(await startGrpcProxy(other, `--namespace=${prefix}`));
  const fronts = [cached, plain, relay].map(({ url }) => connect(url));
  const [first] = fronts as [RawGrpc];
  // Keys around the namespace, which none of them may show.
  for (const url of [etcd.url, other.url]) {
    const direct = connect(url);
    for (const outside of ["a", "ns", "ns.", "ns0", "ns0a"]) {
      await direct.unary("/etcdserverpb.KV/Put", encode({ 1: outside, 2: "outside" }));
    }
  }
  const seen = new Set<string>();
  let turn = 0;
  await fc.assert(
    fc.asyncProperty(operation, async (asked) => {
      const expected = await answerOf(reference, asked);
      const writer = fronts[turn++ % fronts.length] ?? first;
      if (asked.name === "range") {
        const answers = await Promise.all(fronts.map((front) => answerOf(front, asked)));
        for (const answer of answers) expect(answer).toEqual(expected);
      } else {
        expect(await answerOf(writer, asked)).toEqual(expected);
      }
      seen.add(`${asked.name} ${"refusal" in (expected as Json) ? "refused" : "answered"}`);
    }),
    { numRuns: runs(800), endOnFailure: true },
  );
  expect([...seen].sort()).toEqual(
    ["deleteRange", "put", "range", "txn"].flatMap((name) => [
      `${name} answered`,
      `${name} refused`,
    ]),
  );
  // All keys of both, as etcd has them.
  const everything: Operation = {
    name: "range",
    request: { key: Buffer.of(0), range_end: Buffer.of(0) },
  };
  expect(await answerOf(connect(etcd.url), everything)).toEqual(
    await answerOf(connect(other.url), everything),
  );
  const watched = [
    ...[
      ["", ""],
      ["", "\0"],
      ["\0", "\0"],
      ["a", ""],
      ["a", "b"],
      ["a", "\xff"],
      ["ns/", "\0"],
    ],
  ].map(([from = "", to = ""]) => ({
    key: Buffer.from(from, "latin1"),
    range_end: Buffer.from(to, "latin1"),
  }));
  for (const client of [reference, first]) {
    const success = ["\0", "", "a", "ns/"].map((name) => ({
      request_put: { key: Buffer.from(name, "latin1"), value: Buffer.from("end") },
    }));
    await answerOf(client, { name: "txn", request: { success: [] } });
    for (const operation of success)
      await answerOf(client, { name: "txn", request: { success: [operation] } });
  }
  for (const range of watched) {
    const expected = await eventsOf(reference, range);
    for (const front of fronts) expect(await eventsOf(front, range)).toEqual(expected);
  }
  for (const front of [cached, relay]) {
    expect(await metricOf(front, "watch_fanout_etcd_api_ranges_total", "cache")).toBeGreaterThan(
      10,
    );
  }
});

test("a namespace of the embedded store is served from a cache, without a resource that is named", async () => {
  const front = await startEmbedded({ "etcd-api-namespace": [prefix] });
  onTestFinished(() => front.stop());
  await untilReady(front);
  const client = connect(front.url);
  await client.unary("/etcdserverpb.KV/Put", encode({ 1: "a", 2: "1" }));
  const { path, responseDeserialize } = methodOf("KV", "range");
  const { body } = await client.unary(path, encode({ 1: "a", 2: "b" }));
  expect(responseDeserialize(body.subarray(5))).toMatchObject({
    kvs: [{ key: Buffer.from("a"), value: Buffer.from("1") }],
  });
  expect(await metricOf(front, "watch_fanout_etcd_api_ranges_total", "cache")).toBe(1);
});

test("a namespace of the embedded store is not left by fields of other types than their protos say", async () => {
  const front = await startEmbedded({ "etcd-api-namespace": [prefix] });
  onTestFinished(() => front.stop());
  const client = connect(front.url);
  // A decoder that knows fields by their numbers alone finds the key "h\x01", without the prefix.
  const key = Buffer.from("08026801", "hex");
  for (const before of [encode({ 2: "1" }), encode({ 1: "a" })]) {
    const request = Buffer.concat([before, key]);
    expect(statusOf(await client.unary("/etcdserverpb.KV/Put", request)).code).not.toBe("0");
  }
});

test("a namespace is not left by requests that another decoder reads otherwise", async () => {
  const etcd = await startEtcd();
  onTestFinished(() => etcd.stop());
  const direct = connect(etcd.url);
  for (const name of ["ns/a", "ns/b", "ns0", "z"])
    await direct.unary("/etcdserverpb.KV/Put", encode({ 1: name, 2: name }));
  const front = await startFront([etcd.url], { "etcd-api-namespace": [prefix] });
  onTestFinished(() => front.stop());
  const client = connect(front.url);
  const keysOf = async (request: string): Promise<unknown> => {
    const { path, responseDeserialize } = methodOf("KV", "range");
    const response = await client.unary(path, Buffer.from(request, "hex"));
    const { kvs } = responseDeserialize(response.body.subarray(5)) as { kvs: { key: Buffer }[] };
    return kvs.map((object) => object.key.toString());
  };
  // An empty range end means one key, also behind another end; and of several keys the last one counts.
  expect(await keysOf("0a01611200")).toEqual(["a"]);
  expect(await keysOf("0a016112017a1200")).toEqual(["a"]);
  expect(await keysOf("0a01780a0161120100")).toEqual(["a", "b"]);
  // A tag of several bytes where one would do.
  expect(await keysOf("8a0001619200017a")).toEqual(["a", "b"]);
  const refusalOf = async (path: string, request: Buffer, metadata = {}): Promise<unknown> => {
    const call = client.open(path, metadata);
    const isCompressed = "grpc-encoding" in metadata;
    call.stream.end(
      Buffer.concat([Buffer.of(isCompressed ? 1 : 0, 0, 0, 0, request.length), request]),
    );
    return statusOf(await call.response);
  };
  expect(await refusalOf("/etcdserverpb.KV/New", encode({ 1: "a" }))).toMatchObject({ code: "12" });
  const gzip = { "grpc-encoding": "gzip" };
  expect(await refusalOf("/etcdserverpb.KV/Range", Buffer.from("aaaa"), gzip)).toMatchObject({
    code: "12",
    message: expect.stringContaining("Decompressor"),
  });
  expect(await refusalOf("/etcdserverpb.KV/Range", Buffer.from("0a7f61", "hex"))).toMatchObject({
    code: "13",
  });
  // Deeper than any transaction of a client.
  let nested = encode({ 2: encode({ 1: encode({ 1: "a" }) }) });
  for (let depth = 0; depth < 40; depth++) nested = encode({ 2: encode({ 4: nested }) });
  expect(await refusalOf("/etcdserverpb.KV/Txn", nested)).toMatchObject({ code: "13" });
});

test("a request of very many keys is refused before its translation delays other calls", async () => {
  const etcd = await startEtcd();
  onTestFinished(() => etcd.stop());
  const front = await startFront([etcd.url], { "etcd-api-namespace": [prefix] });
  onTestFinished(() => front.stop());
  const client = connect(front.url);
  const comparing = async (count: number): Promise<readonly string[]> => {
    const request = Buffer.alloc(2 * count, Buffer.from("0a00", "hex"));
    const { code, message } = statusOf(await client.unary("/etcdserverpb.KV/Txn", request));
    return [code, decodeURIComponent(message)];
  };
  expect(await comparing(1)).toEqual(["0", ""]);
  expect(await comparing(10_000)).toEqual(["3", expect.stringContaining("too many operations")]);
  expect(await comparing(100_000)).toEqual(["13", expect.stringContaining("too many keys")]);
  // Fields that are passed on as they are don't count.
  const unknown = Buffer.alloc(200_000, Buffer.from("6801", "hex"));
  const put = Buffer.concat([encode({ 1: "a", 2: "1" }), unknown]);
  expect(statusOf(await client.unary("/etcdserverpb.KV/Put", put)).code).toBe("0");
});

test("a watch with very many keys, of which the last one counts, is refused before it is served", async () => {
  const etcd = await startEtcd();
  onTestFinished(() => etcd.stop());
  const front = await startCached(etcd.url);
  await untilReady(front);
  const client = connect(front.url);
  const watching = (keys: number) => {
    const call = client.open("/etcdserverpb.Watch/Watch");
    const create = Buffer.alloc(3 * keys, Buffer.from("0a0161", "hex"));
    call.send(encode({ 1: create }));
    return call;
  };
  const accepted = watching(100);
  expect(await accepted.untilMessages(1)).toHaveLength(1);
  accepted.cancel();
  const refused = statusOf(await watching(40_000).response);
  expect(refused).toMatchObject({ code: "13", message: expect.stringContaining("keys") });
});

test("a namespace has the keys of leases, the JSON gateway, and etcd's locks outside of it", async () => {
  const etcd = await startEtcd();
  onTestFinished(() => etcd.stop());
  const front = await startCached(etcd.url);
  await untilReady(front);
  const [client, direct] = [connect(front.url), connect(etcd.url)];
  const lease = { 1: 60, 2: 77 };
  await client.unary("/etcdserverpb.Lease/LeaseGrant", encode(lease));
  const put = "/etcdserverpb.KV/Put";
  await client.unary(put, encode({ 1: "a", 2: "1", 3: 77 }));
  await direct.unary(put, encode({ 1: "outside", 2: "1", 3: 77 }));
  const request = encode({ 1: 77, 2: true });
  const ttl = await client.unary("/etcdserverpb.Lease/LeaseTimeToLive", request);
  const { responseDeserialize } = methodOf("Lease", "leaseTimeToLive");
  expect(responseDeserialize(ttl.body.subarray(5))).toMatchObject({ keys: [Buffer.from("a")] });
  const lock = "/v3lockpb.Lock/Lock";
  expect(statusOf(await client.unary(lock, encode({ 1: "lock", 2: 77 }))).code).toBe("0");
  const locks = await direct.unary("/etcdserverpb.KV/Range", encode({ 1: "lock/", 2: "lock0" }));
  expect(methodOf("KV", "range").responseDeserialize(locks.body.subarray(5))).toMatchObject({
    count: "1",
  });
  // "a" up to "b", from the cache and by a transaction, which etcd answers.
  const asked = { key: "YQ==", range_end: "Yg==" };
  const post = async (path: string, body: unknown): Promise<unknown> => {
    const response = await fetch(`${front.url}${path}`, {
      method: "POST",
      body: JSON.stringify(body),
    });
    return response.json();
  };
  const found = { kvs: [{ key: "YQ==", value: "MQ==", lease: "77" }] };
  expect(await post("/v3/kv/range", asked)).toMatchObject(found);
  expect(await post("/v3/kv/txn", { success: [{ request_range: asked }] })).toMatchObject({
    responses: [{ response_range: found }],
  });
});
