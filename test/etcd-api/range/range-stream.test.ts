import { beforeAll, describe, expect, test } from "vitest";
import { encode, type Fields, Message } from "../../foreign/protobuf.ts";
import fc, { runs } from "../../property.ts";
import { type BesideEtcd, besideEtcdOfFile, revisionOf } from "../beside-etcd.ts";
import { metricOf } from "../front.ts";
import { type RawResponse, statusOf } from "../raw-grpc.ts";

const openBeside = besideEtcdOfFile({ resource: ["streamed=/s/"] });
const rangePath = "/etcdserverpb.KV/Range";
const streamPath = "/etcdserverpb.KV/RangeStream";
const putPath = "/etcdserverpb.KV/Put";
const unimplemented = "12";

let beside: BesideEtcd;

beforeAll(async () => {
  beside = await openBeside();
  // The service learns the ids of the cluster from a first response.
  await beside.cached.unary(rangePath, encode({ 1: "/s/" }));
});

function put(key: string, value: string): Promise<number> {
  return revisionOf(beside.direct, putPath, encode({ 1: key, 2: value }));
}

const cachedCount = (): Promise<number> =>
  metricOf(beside.front, "watch_fanout_etcd_api_ranges_total", "cache");

interface Streamed {
  readonly response: RawResponse;
  /** The RangeResponse of each message. */
  readonly parts: readonly Buffer[];
}

async function stream(fields: Fields): Promise<Streamed> {
  const call = beside.cached.open(streamPath);
  call.send(encode(fields));
  call.halfClose();
  const response = await call.response;
  return { response, parts: call.messages.map((message) => new Message(message).bytes(1)) };
}

/** The parts as one RangeResponse: the header, which is the first field of the last part, is before all objects. */
function merged(parts: readonly Buffer[]): Buffer {
  const last = parts.at(-1) ?? Buffer.of();
  const headerField = last.subarray(0, 2 + new Message(last).bytes(1).length);
  return Buffer.concat([headerField, ...parts.slice(0, -1), last.subarray(headerField.length)]);
}

/** The response of etcd to the same Range. */
async function rangeOf(fields: Fields): Promise<RawResponse> {
  return beside.direct.unary(rangePath, encode(fields));
}

const flag = fc.boolean();
const request = fc.record({
  key: fc.constantFrom("/s/", "/s/1", "/s/2", "/s/none"),
  end: fc.constantFrom(undefined, "/s/2", "/s/3", "/s0"),
  limit: fc.constantFrom(0, 0, 1, 3, 100),
  ago: fc.option(fc.nat(8), { nil: undefined, freq: 2 }),
  ...{ serializable: flag, keysOnly: flag, countOnly: flag },
});

describe("A RangeStream from the cache", () => {
  test("is etcd's own Range in parts, for any requests", async () => {
    const before = await cachedCount();
    let newest = 0;
    let served = 0;
    for (let i = 0; i < 20; i++) newest = await put(`/s/${i % 4}`, "v".repeat(i * 400));
    await fc.assert(
      fc.asyncProperty(request, fc.nat(3), async (asked, written) => {
        newest = await put(`/s/${written}`, `${newest}`);
        // So that a serializable read is of this state.
        await beside.cached.unary(rangePath, encode({ 1: "/s/" }));
        const { key, end, limit, ago, serializable, keysOnly, countOnly } = asked;
        const fields = {
          ...{ 1: key, 2: end, 3: limit, 4: ago === undefined ? undefined : newest - ago },
          ...{ 7: serializable, 8: keysOnly, 9: countOnly },
        };
        const [{ response, parts }, range] = await Promise.all([stream(fields), rangeOf(fields)]);
        // An empty range is etcd's to answer, and one before 3.7 has no RangeStream.
        if (end !== undefined && end <= key) {
          expect([unimplemented, "0"]).toContain(statusOf(response).code);
          return;
        }
        expect(statusOf(response)).toEqual({ code: "0", message: "" });
        served++;
        expect(merged(parts).toString("latin1")).toBe(range.body.subarray(5).toString("latin1"));
      }),
      { numRuns: runs(120) },
    );
    expect(served).toBeGreaterThan(10);
    expect((await cachedCount()) - before).toBeGreaterThanOrEqual(served);
  });

  test("has several messages if it is large, of one state, and the last one has the header", async () => {
    const value = "x".repeat(30_000);
    for (let i = 0; i < 100; i++) await put(`/s/large/${i}`, value);
    await put("/s/large/50", "x".repeat(1_000_000));
    const whole = { 1: "/s/large/", 2: "/s/large0" };
    const range = await rangeOf(whole);
    const slow = beside.cached.open(streamPath);
    slow.stream.pause();
    slow.send(encode(whole));
    slow.halfClose();
    await new Promise((resolve) => slow.stream.once("response", resolve));
    await put("/s/large/99", "changed meanwhile");
    slow.stream.resume();
    expect(statusOf(await slow.response).code).toBe("0");
    const parts = slow.messages.map((message) => new Message(message).bytes(1));
    expect(parts.length).toBeGreaterThan(10);
    // A piece, and the object that exceeds it.
    for (const part of parts) expect(part.length).toBeLessThan(1_300_000);
    const fields = parts.map((part) => {
      const message = new Message(part);
      return [message.bytes(1).length > 0, message.number(3), message.number(4)];
    });
    expect(fields.slice(0, -1)).toEqual(fields.slice(0, -1).map(() => [false, 0, 0]));
    expect(fields.at(-1)).toEqual([true, 0, 100]);
    expect(merged(parts).equals(range.body.subarray(5))).toBe(true);
  });
});

describe("A RangeStream is relayed", () => {
  test.each<[string, Fields]>([
    ["of a key that no resource has", { 1: "/other" }],
    ["that is sorted", { 1: "/s/", 2: "/s0", 5: 2 }],
    ["that is sorted by the version", { 1: "/s/", 2: "/s0", 6: 1 }],
    ["of objects after a revision", { 1: "/s/", 2: "/s0", 10: 1 }],
    ["of a future revision", { 1: "/s/", 4: 1_000_000_000 }],
  ])("%s", async (_, fields) => {
    const before = await cachedCount();
    const own = await stream(fields);
    const call = beside.direct.open(streamPath);
    call.send(encode(fields));
    call.halfClose();
    expect(statusOf(own.response)).toEqual(statusOf(await call.response));
    expect(await cachedCount()).toBe(before);
  });
});
