import { pino } from "pino";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { LastHeader } from "../../src/etcd-api/contract/response-header.ts";
import { CallMaintenance } from "../../src/etcd-api/relay/call-maintenance.ts";
import { Upstream } from "../../src/etcd-api/upstream/upstream.ts";
import { MessageSplitter } from "../../src/etcd-api/watch/message-splitter.ts";
import { WatchService } from "../../src/etcd-api/watch/watch-service.ts";
import { etcdOfFile } from "../etcd/etcd-of-file.ts";
import { ManualTimers } from "../server/limits/manual-timers.ts";
import { type Front, frontOfFile, metricOf, startFront } from "./front.ts";
import { RawGrpc, statusOf } from "./raw-grpc.ts";
import { WatchClient } from "./watch-client.ts";

const etcdOf = etcdOfFile();
const frontOf = frontOfFile(async () =>
  startFront([(await etcdOf()).url], { resource: ["a=/a/"] }),
);

let front: Front;
let client: RawGrpc;

beforeAll(async () => {
  front = await frontOf();
  client = new RawGrpc(front.url);
  while (!(await fetch(`${front.admin}/readyz`)).ok) await new Promise(setImmediate);
});

afterAll(() => client.close());

function framed(size: number, isCompressed = false): Buffer {
  const frame = Buffer.alloc(5 + size, "x");
  frame[0] = isCompressed ? 1 : 0;
  frame.writeUInt32BE(size, 1);
  return frame;
}

describe("A message of a watch stream", () => {
  test("is put together from any parts, with those behind it", () => {
    const splitter = new MessageSplitter(10);
    const bytes = Buffer.concat([framed(3), framed(0), framed(10)]);
    for (const byte of bytes.subarray(0, 4)) splitter.add(Buffer.of(byte));
    expect(splitter.next()).toBeUndefined();
    splitter.add(bytes.subarray(4, 20));
    expect([splitter.next()?.length, splitter.next()?.length]).toEqual([3, 0]);
    expect(splitter.next()).toBeUndefined();
    splitter.add(bytes.subarray(20));
    expect(splitter.next()?.toString()).toBe("x".repeat(10));
    expect(splitter.length).toBe(0);
  });

  test("that is larger than allowed, or compressed, is not read", () => {
    for (const frame of [framed(11), framed(3, true)]) {
      const splitter = new MessageSplitter(10);
      splitter.add(frame.subarray(0, 5));
      expect(() => splitter.next()).toThrow(/^A message /);
    }
  });

  test("that can't be read ends its stream, as with etcd", async () => {
    const stream = new WatchClient(client);
    stream.call.send(Buffer.from([0x0a, 0x7f]));
    const { code, message } = statusOf(await stream.call.response);
    expect([code, decodeURIComponent(message)]).toEqual([
      "13",
      expect.stringContaining("error unmarshalling request"),
    ]);
  });
});

describe("Watches", () => {
  test("are at most 20,000 on a stream, and 500,000 in all, 20,000 of them served by etcd", () => {
    const clock = new ManualTimers();
    const logger = pino({ level: "silent" });
    const endpoints = ["http://127.0.0.1:1"];
    const service = new WatchService({
      upstream: new Upstream({ endpoints, certificates: undefined, clock, logger }),
      maintenance: new CallMaintenance(clock),
      lastHeader: new LastHeader(),
      clock,
      progressIntervalMs: 600_000,
    });
    expect([service.mayAdd(19_999), service.mayAdd(20_000)]).toEqual([true, false]);
    service.counts.watches = 500_000;
    expect(service.mayAdd(0)).toBe(false);
    expect(service.mayRelay()).toBe(true);
    service.counts.relayed = 20_000;
    expect(service.mayRelay()).toBe(false);
  });

  test("are created no faster than the client accepts the answers", async () => {
    const connection = new RawGrpc(front.url);
    const stream = new WatchClient(connection);
    stream.call.stream.pause();
    const count = 6_000;
    for (let i = 0; i < count; i++) stream.create({ 1: `/a/${i}` });
    const watches = (): Promise<number> =>
      metricOf(front, "watch_fanout_etcd_api_watches", "cache");
    while ((await watches()) < 1_000) await new Promise(setImmediate);
    // Other streams are served, and this one waits.
    const other = new WatchClient(client);
    other.create({ 1: "/a/other" });
    await other.until(({ length }) => length === 1);
    expect(await watches()).toBeLessThan(count / 2);
    stream.call.stream.resume();
    await stream.until(({ length }) => length === count);
    expect(stream.responses.map(({ id }) => Number(id))).toEqual(
      Array.from({ length: count }, (_, i) => i),
    );
    other.close();
    connection.close();
    while ((await watches()) > 0) await new Promise(setImmediate);
  });
});
