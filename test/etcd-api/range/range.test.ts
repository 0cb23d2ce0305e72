import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Etcd, testWithEtcd } from "../../etcd/etcd.ts";
import { etcdOfFile } from "../../etcd/etcd-of-file.ts";
import { encode, type Fields, Message } from "../../foreign/protobuf.ts";
import fc, { runs } from "../../property.ts";
import { type Front, frontOfFile, metricOf, startFront } from "../front.ts";
import { RawGrpc, type RawResponse, statusOf } from "../raw-grpc.ts";

const etcdOf = etcdOfFile();
const frontOf = frontOfFile(async () =>
  startFront([(await etcdOf()).url], { resource: ["cached=/c/", "rest=/large/"] }),
);

const rangePath = "/etcdserverpb.KV/Range";
const putPath = "/etcdserverpb.KV/Put";

let etcd: Etcd;
let front: Front;
let direct: RawGrpc;
let fronted: RawGrpc;

beforeAll(async () => {
  etcd = await etcdOf();
  front = await frontOf();
  direct = new RawGrpc(etcd.url);
  fronted = new RawGrpc(front.url);
  // The front learns the ids of the cluster from a first response, and its caches have to be filled.
  await servedFromCache(async () => {
    await fronted.unary(rangePath, encode({ 1: "/c/" }));
    await fronted.unary(rangePath, encode({ 1: "/large/" }));
  }, 2);
});

afterAll(() => {
  direct.close();
  fronted.close();
});

/** One character per byte. */
const bytes = (text: string): Buffer => Buffer.from(text, "latin1");

const cachedCount = (): Promise<number> =>
  metricOf(front, "watch_fanout_etcd_api_ranges_total", "cache");

/** Repeats the calls until the cache has served this number of them. */
async function servedFromCache(call: () => Promise<void>, times: number): Promise<void> {
  for (;;) {
    const before = await cachedCount();
    await call();
    if ((await cachedCount()) - before >= times) return;
  }
}

function messageOf(response: RawResponse): Message {
  expect(statusOf(response)).toEqual({ code: "0", message: "" });
  expect(response.body.readUInt32BE(1)).toBe(response.body.length - 5);
  return new Message(response.body.subarray(5));
}

/** The request to both; and the response of the front, which is equal to that of etcd, byte by byte. */
async function compare(request: Fields): Promise<RawResponse> {
  const message = encode(request);
  const [own, other] = await Promise.all([
    fronted.unary(rangePath, message),
    direct.unary(rangePath, message),
  ]);
  expect(statusOf(own)).toEqual(statusOf(other));
  expect(own.body.equals(other.body), describeBoth(own, other)).toBe(true);
  return own;
}

function describeBoth(own: RawResponse, other: RawResponse): string {
  return `${own.body.toString("latin1")} instead of ${other.body.toString("latin1")}`;
}

async function put(
  target: RawGrpc,
  key: Buffer,
  value: string,
  more: Fields = {},
): Promise<number> {
  const message = messageOf(await target.unary(putPath, encode({ 1: key, 2: value, ...more })));
  return Number(new Message(message.bytes(1)).number(3));
}

/** Keys below the prefix, and bounds of ranges: often the prefix itself, parts of characters, and what is no UTF-8. */
const suffix = fc
  .array(fc.constantFrom("a", "b", "/", "\0", "\xff", "\xc3", "\xa9", "\xe2\x98\x83"), {
    maxLength: 3,
  })
  .map((parts) => bytes(parts.join("")));

const write = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({
      do: fc.constant("put" as const),
      key: suffix,
      size: fc.constantFrom(0, 1, 30, 9_000),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("delete" as const), key: suffix }) },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant("delete range" as const), key: suffix, end: suffix }),
  },
);

/** A small number, relative to the newest revision if it is one. */
const recent = fc.option(fc.nat(12), { nil: undefined, freq: 2 });
const flag = fc.boolean();
const request = fc.record({
  key: suffix,
  end: fc.oneof(
    fc.constant("one key" as const),
    fc.constant("prefix" as const),
    fc.constant("all" as const),
    suffix,
  ),
  limit: fc.constantFrom(0, 0, 0, 1, 2, 5),
  revision: recent,
  order: fc.nat(2),
  target: fc.constantFrom(0, 0, 0, 1, 2, 3, 4),
  serializable: flag,
  keysOnly: flag,
  countOnly: fc.constantFrom(false, false, false, true),
  minMod: recent,
  maxMod: recent,
  minCreate: recent,
  maxCreate: recent,
});

type Request = typeof request extends fc.Arbitrary<infer T> ? T : never;

const prefix = bytes("/c/");

function prefixEnd(key: Buffer): Buffer {
  const end = Buffer.from(key);
  for (let i = end.length - 1; i >= 0; i--) {
    if (end[i] === 0xff) continue;
    end.writeUInt8((end[i] ?? 0) + 1, i);
    return end.subarray(0, i + 1);
  }
  return Buffer.of(0);
}

function fieldsOf(asked: Request, newest: number): Fields {
  const key = Buffer.concat([prefix, asked.key]);
  const { end } = asked;
  const rangeEnd =
    end === "one key"
      ? undefined
      : end === "prefix"
        ? prefixEnd(key)
        : end === "all"
          ? prefixEnd(prefix)
          : Buffer.concat([prefix, end]);
  const at = (ago: number | undefined): number | undefined =>
    ago === undefined ? undefined : Math.max(1, newest - ago);
  return {
    ...{ 1: key, 2: rangeEnd, 3: asked.limit, 4: at(asked.revision) },
    ...{ 5: asked.order, 6: asked.target, 7: asked.serializable, 8: asked.keysOnly },
    ...{ 9: asked.countOnly, 10: at(asked.minMod), 11: at(asked.maxMod) },
    ...{ 12: at(asked.minCreate), 13: at(asked.maxCreate) },
  };
}

/** By what a KeyValue is sorted: its field, by sort target. */
const sortedBy = [1, 4, 2, 3, 5];

function fieldOf(keyValue: Buffer, number: number): string {
  const message = new Message(keyValue);
  return number === 1 || number === 5
    ? message.bytes(number).toString("latin1")
    : String(message.number(number));
}

/** Equal objects by the sort target may come in any order, and any of them is left out by the limit. */
async function compareSorted(fields: Fields, target: number, keysOnly: boolean): Promise<void> {
  const message = encode(fields);
  const [own, other] = await Promise.all([
    fronted.unary(rangePath, message),
    direct.unary(rangePath, message),
  ]);
  expect(statusOf(own)).toEqual(statusOf(other));
  if (statusOf(other).code !== "0") return;
  const [mine, theirs] = [messageOf(own), messageOf(other)];
  expect(mine.bytes(1)).toEqual(theirs.bytes(1));
  for (const number of [3, 4]) expect(mine.number(number)).toBe(theirs.number(number));
  const values = (of: Message): string[] =>
    of.all(2).map((kv) => fieldOf(kv, sortedBy[target] ?? 1));
  if (target !== 4 || !keysOnly) expect(values(mine)).toEqual(values(theirs));
  if (mine.number(3) !== 0) return;
  const sorted = (of: Message): string[] =>
    of
      .all(2)
      .map((kv) => kv.toString("latin1"))
      .sort();
  expect(sorted(mine)).toEqual(sorted(theirs));
}

describe("A Range from the cache", () => {
  test("is etcd's own, for any requests about any keys", async () => {
    let newest = await put(direct, prefix, "first");
    const before = await cachedCount();
    const input = [
      fc.array(write, { maxLength: 12, size: "max" }),
      fc.array(request, { minLength: 1, maxLength: 16, size: "max" }),
      fc.nat(9),
    ] as const;
    await fc.assert(
      fc.asyncProperty(...input, async (writes, requests, compaction) => {
        for (const one of writes) {
          const key = Buffer.concat([prefix, one.key]);
          if (one.do === "put") {
            newest = await put(direct, key, "v".repeat(one.size));
          } else {
            const end = one.do === "delete" ? undefined : Buffer.concat([prefix, one.end]);
            await direct.unary("/etcdserverpb.KV/DeleteRange", encode({ 1: key, 2: end }));
          }
        }
        newest = await put(direct, Buffer.concat([prefix, bytes("last")]), "");
        if (compaction === 0) {
          await direct.unary("/etcdserverpb.KV/Compact", encode({ 1: newest - 3 }));
        }
        // So that serializable reads are of this state.
        await fronted.unary(rangePath, encode({ 1: prefix }));
        for (const asked of requests) {
          const fields = fieldsOf(asked, newest);
          if (asked.target === 0) await compare(fields);
          else await compareSorted(fields, asked.target, asked.keysOnly);
        }
      }),
      { numRuns: runs(160) },
    );
    expect((await cachedCount()) - before).toBeGreaterThan(100);
  });

  test("has a binary key that ListWatchService leaves out, and the prefix itself", async () => {
    await put(direct, bytes("/c/\xff\xfe"), "binary");
    await put(direct, prefix, "prefix");
    const count = await cachedCount();
    for (const key of ["/c/\xff\xfe", "/c/"]) {
      const [found] = messageOf(await compare({ 1: bytes(key) })).all(2);
      expect(fieldOf(found ?? Buffer.of(), 1)).toBe(key);
    }
    expect(await cachedCount()).toBe(count + 2);
    const list = await fronted.unary(
      "/watchfanout.v1.ListWatchService/List",
      encode({ 1: "cached" }),
    );
    const keys = messageOf(list)
      .all(2)
      .map((item) => fieldOf(item, 1));
    expect(keys).not.toContain("");
    expect(keys).toContain("last");
    expect(keys.every((key) => Buffer.from(key, "latin1").toString().isWellFormed())).toBe(true);
  });

  test("reads a write of the same client at once, linearizable or not", async () => {
    for (let i = 0; i < 30; i++) {
      const revision = await put(fronted, bytes(`/c/own-${i % 3}`), String(i));
      const message = encode({ 1: `/c/own-${i % 3}`, 7: i % 2 === 0 });
      const answer = messageOf(await fronted.unary(rangePath, message));
      expect(fieldOf(answer.bytes(2), 5)).toBe(String(i));
      expect(Number(new Message(answer.bytes(1)).number(3))).toBeGreaterThanOrEqual(revision);
    }
  });

  testWithEtcd("metrics")(
    "costs etcd no read of the keys, and a serializable one next to nothing",
    async () => {
      const ranges = async (): Promise<number> => {
        const text = await (await fetch(`${etcd.url}/metrics`)).text();
        return Number(/^etcd_mvcc_range_total (\S+)/m.exec(text)?.[1]);
      };
      const relayed = (): Promise<number> =>
        metricOf(front, "watch_fanout_etcd_api_ranges_total", "etcd");
      const message = encode({ 1: prefix, 2: "/c0", 7: true });
      const before = [await ranges(), await relayed()] as const;
      for (let i = 0; i < 200; i++) messageOf(await fronted.unary(rangePath, message));
      expect(await relayed()).toBe(before[1]);
      // Those of the history's id, of the front's own rights, and of this test's writes.
      expect((await ranges()) - before[0]).toBeLessThan(150);
    },
  );

  test("is one message of any size, which a slow client gets piece by piece", async () => {
    const value = "x".repeat(60_000);
    for (let i = 0; i < 100; i++) {
      await put(direct, bytes(`/large/${i}`), value, i === 50 ? { 2: "x".repeat(1_000_000) } : {});
    }
    const count = await cachedCount();
    const whole = { 1: "/large/", 2: "/large0" };
    expect((await compare(whole)).body.length).toBeGreaterThan(6_000_000);
    await compare({ ...whole, 5: 2 });
    await compare({ ...whole, 8: true });
    expect(await cachedCount()).toBe(count + 3);
    // Its client does not read for a while, and cancels another in the middle.
    const slow = fronted.open(rangePath);
    slow.stream.pause();
    slow.send(encode(whole));
    slow.halfClose();
    const cancelled = fronted.open(rangePath);
    cancelled.stream.pause();
    cancelled.send(encode(whole));
    await compare({ 1: "/large/1" });
    cancelled.stream.close(8);
    await cancelled.response;
    await put(direct, bytes("/large/1"), "changed meanwhile");
    slow.stream.resume();
    const before = messageOf(await slow.response);
    expect(before.all(2)).toHaveLength(100);
    expect(new Set(before.all(2).map((kv) => fieldOf(kv, 5).slice(0, 1)))).toEqual(new Set(["x"]));
  });
});

describe("A Range is relayed, and etcd's answer", () => {
  const cases: readonly (readonly [string, Fields])[] = [
    ["with an unknown field", { 1: "/c/a", 99: 1 }],
    ["of keys beyond the resource", { 1: "/c/", 2: "/d" }],
    ["of all keys", { 1: "\0", 2: "\0" }],
    ["of an empty range", { 1: "/c/b", 2: "/c/a" }],
    ["without a key", { 2: "/c/a" }],
    ["with an end that is present and empty", { 1: "/c/a", 2: "" }],
    ["with an end of one byte, then one that is empty", { 1: "/c/a", 2: ["\0", ""] }],
    ["with an unknown order", { 1: "/c/a", 5: 9 }],
    ["of a future revision", { 1: "/c/a", 4: 1_000_000_000 }],
    ["of a compacted revision", { 1: "/c/a", 4: 1 }],
    ["with a negative limit", { 1: "/c/a", 2: "/c/c", 3: -1 }],
  ];

  test.each(cases)("%s", async (_, fields) => {
    const count = await cachedCount();
    await compare(fields);
    expect(await cachedCount()).toBe(count);
  });

  test("in two parts, or of a size that no key has", async () => {
    const message = encode({ 1: `/c/${"k".repeat(200_000)}` });
    const [own, other] = await Promise.all([
      fronted.unary(rangePath, message),
      direct.unary(rangePath, message),
    ]);
    expect(own.body).toEqual(other.body);
    const call = fronted.open(rangePath);
    const framed = Buffer.concat([Buffer.of(0, 0, 0, 0, 6), encode({ 1: "/c/a" })]);
    call.stream.write(framed.subarray(0, 7));
    await compare({ 1: "/c/a" });
    call.stream.end(framed.subarray(7));
    expect(messageOf(await call.response).all(1)).toHaveLength(1);
  });
});
