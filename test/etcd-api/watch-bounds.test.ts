import { setTimeout as delay } from "node:timers/promises";
import { pino } from "pino";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Reason, WatchFanoutError } from "../../src/base/errors.ts";
import { Upstream } from "../../src/etcd/client/upstream.ts";
import { nextMessage } from "../../src/etcd/wire/messages.ts";
import {
  type CachedResource,
  CachedResources,
} from "../../src/etcd-api/cached/cached-resources.ts";
import { NewestHeader } from "../../src/etcd-api/cached/newest-header.ts";
import { WatchService } from "../../src/etcd-api/watch/watch-service.ts";
import { Ledger } from "../../src/server/kernel/ledger.ts";
import { Rounds } from "../../src/server/kernel/rounds.ts";
import { MessageReader } from "../../src/wire/message-reader.ts";
import { etcdOfFile } from "../etcd/etcd-of-file.ts";
import { encode } from "../foreign/protobuf.ts";
import { ManualTimers } from "../server/limits/manual-timers.ts";
import { type Front, frontOfFile, metricOf, startFront, untilReady } from "./front.ts";
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
  await untilReady(front);
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
    const messages = new MessageReader();
    const bytes = Buffer.concat([framed(3), framed(0), framed(10)]);
    for (const byte of bytes.subarray(0, 4)) messages.add(Buffer.of(byte));
    expect(messages.next()).toBeUndefined();
    messages.add(bytes.subarray(4, 20));
    expect([messages.next()?.length, messages.next()?.length]).toEqual([3, 0]);
    expect(messages.next()).toBeUndefined();
    messages.add(bytes.subarray(20));
    expect(messages.next()?.toString()).toBe("x".repeat(10));
    expect(messages.heldBytes).toBe(0);
  });

  test("takes about its own size, in however small parts it arrives", () => {
    const messages = new MessageReader();
    const bytes = framed(10_000);
    for (let i = 0; i < bytes.length - 1; i++) {
      // Each is a view of a far larger buffer, as what is read from a socket.
      messages.add(Buffer.alloc(65_536, bytes[i]).subarray(0, 1));
      expect(messages.next()).toBeUndefined();
      messages.own();
      expect(messages.heldBytes).toBeLessThanOrEqual(Math.max(8, 2 * (i + 1)));
    }
    messages.add(bytes.subarray(-1));
    expect(messages.next()?.equals(bytes.subarray(5))).toBe(true);
  });

  test("counts with incomplete requests until the rest of it arrives", async () => {
    const held = (): Promise<number> => metricOf(front, "watch_fanout_pool_bytes", "requests");
    const stream = new WatchClient(client);
    const request = encode({ 1: encode({ 1: "/a/k", 2: Buffer.alloc(1_000_000) }) });
    const frame = framed(request.length);
    request.copy(frame, 5);
    stream.call.stream.write(frame.subarray(0, -1));
    while ((await held()) < request.length) await delay(5);
    stream.call.stream.write(frame.subarray(-1));
    await stream.until(({ length }) => length === 1);
    while ((await held()) > 0) await delay(5);
    stream.close();
  });

  test("that is larger than allowed, or compressed, is not read", () => {
    for (const frame of [framed(11), framed(3, true)]) {
      const messages = new MessageReader();
      messages.add(frame.subarray(0, 5));
      expect(() => nextMessage(messages, 10)).toThrow(/^A message /);
    }
  });

  test("that can't be read ends its stream, as with etcd", async () => {
    const stream = new WatchClient(client);
    stream.call.send(Buffer.from([0x0a, 0x7f]));
    const { code, message } = statusOf(await stream.call.response);
    expect([code, decodeURIComponent(message)]).toEqual([
      "13",
      expect.stringContaining("grpc: failed to unmarshal the received message: "),
    ]);
  });
});

/** A service that has not connected to etcd. */
function unconnected(): WatchService {
  const clock = new ManualTimers();
  const logger = pino({ level: "silent" });
  const endpoints = ["http://127.0.0.1:1"];
  const newestHeader = new NewestHeader();
  return new WatchService({
    upstream: new Upstream({ endpoints, certificates: undefined, clock, logger }),
    calls: new Rounds(clock, { intervalMs: 1_000, visitsPerStep: 1, visit: () => {} }),
    cached: new CachedResources(clock, newestHeader),
    newestHeader,
    clock,
    progressIntervalMs: 600_000,
  });
}

test.each<readonly [Reason | undefined, boolean]>([
  [undefined, true],
  ["UPSTREAM_UNAVAILABLE", true],
  ["HISTORY_LOST", true],
  ["UPSTREAM_DENIED", false],
  ["INVALID_REQUEST", false],
  ["INTERNAL", false],
])("A cache that failed to follow etcd with %s serves watches: %s", (reason, isCached) => {
  const service = unconnected();
  const upstreamFailure = reason && new WatchFanoutError(reason, "As the test has it.");
  const cacher = { ready: true, revision: 50, oldestRevision: 1, upstreamFailure };
  const resource = { cacher } as unknown as CachedResource;
  service.cached.serve([resource]);
  expect(service.isCached({ resource, scope: { prefix: "" } }, 0)).toBe(isCached);
  expect(service.hasRefused).toBe(!isCached);
});

describe("A new watch", () => {
  test("begins after the highest revision that clients know, and after a restore of etcd at the cache's", () => {
    const service = unconnected();
    const cacher = { ready: true, revision: 50, historyGeneration: 1 };
    const range = { resource: { cacher } as unknown as CachedResource, scope: { prefix: "" } };
    service.reported(100);
    expect(service.currentRevision(range)).toBe(100);
    cacher.historyGeneration = 2;
    expect(service.currentRevision(range)).toBe(50);
    service.reported(60);
    expect(service.currentRevision(range)).toBe(60);
  });
});

describe("Progress notifications", () => {
  test("have one timer, also if the last stream ends during a round, and another one begins", async () => {
    const clock = new ManualTimers();
    const prepared: (() => void)[] = [];
    const notified: string[] = [];
    const notifications = new Rounds<string>(clock, {
      ...{ intervalMs: 1_000, visitsPerStep: 1 },
      visit: (stream) => notified.push(stream),
      prepare: () => new Promise((resolve) => prepared.push(resolve)),
    });
    notifications.add("first");
    clock.advance(1_000);
    notifications.delete("first");
    notifications.add("second");
    prepared[0]?.();
    await new Promise(setImmediate);
    expect(notified).toEqual(["second"]);
    clock.advance(1_000);
    expect(prepared).toHaveLength(2);
    notifications.close();
  });

  test("end with the round during which they are closed", async () => {
    const clock = new ManualTimers();
    let rounds = 0;
    const notifications = new Rounds<string>(clock, {
      ...{ intervalMs: 1_000, visitsPerStep: 1 },
      visit: () => notifications.close(),
      prepare: async () => void rounds++,
    });
    notifications.add("first");
    clock.advance(1_000);
    await new Promise(setImmediate);
    clock.advance(10_000);
    expect(rounds).toBe(1);
    notifications.add("second");
    clock.advance(1_000);
    expect(rounds).toBe(2);
  });
});

describe("Watches", () => {
  test("are at most 20,000 on a stream, and 500,000 in all, 20,000 of them served by etcd", () => {
    const service = unconnected();
    expect([service.mayAdd(19_999), service.mayAdd(20_000)]).toEqual([true, false]);
    service.watches = 500_000;
    expect(service.mayAdd(0)).toBe(false);
    const caller = {};
    const watches = service.upstreamWatches.reserve(caller, 19_999, () => {});
    expect(service.mayAddUpstream(caller)).toBe(true);
    watches.resize(20_000);
    expect(service.mayAddUpstream(caller)).toBe(false);
  });

  test("that etcd serves make room for those of callers that have fewer", () => {
    const watches = new Ledger<object>();
    const ended: string[] = [];
    const add = (name: string, caller: object, count: number) =>
      watches.reserve(caller, count, () => ended.push(name));
    const [large, small, other] = [{}, {}, {}];
    add("2 of large", large, 2);
    add("3 of large", large, 3);
    add("4 of small", small, 4);
    add("1 of other", other, 1);
    // It has nearly as many.
    expect(watches.makeRoom(small, 10)).toBe(false);
    expect(ended).toEqual([]);
    expect(watches.makeRoom(other, 10)).toBe(true);
    expect(ended).toEqual(["3 of large"]);
    expect(watches.total).toBe(7);
  });

  test.each([
    ["cache", "/a/"],
    ["etcd", "/elsewhere/"],
  ])(
    "served by %s leave nothing behind if the last one ends their stream, as too much is retained",
    async (by, prefix) => {
      const served = (): Promise<number> => metricOf(front, "watch_fanout_etcd_api_watches", by);
      const watchers = async (): Promise<number> => {
        const text = await (await fetch(`${front.admin}/metrics`)).text();
        const values = [...text.matchAll(/^watch_fanout_watchers\{[^}]*\} (\d+)/gm)];
        expect(values.length).toBeGreaterThan(0);
        return values.reduce((sum, [, value]) => sum + Number(value), 0);
      };
      const connection = new RawGrpc(front.url);
      const stream = new WatchClient(connection);
      // Of 2 MB each: 32 MiB are retained for a connection.
      const create = (): void => stream.create({ 1: prefix.padEnd(2_000_000, "k") });
      for (let count = 1; count <= 16; count++) {
        create();
        await stream.until(({ length }) => length === count);
      }
      expect(await served()).toBe(16);
      create();
      await stream.call.response;
      expect(stream.responses).toHaveLength(16);
      connection.close();
      while ((await served()) > 0 || (await watchers()) > 0) await delay(5);
    },
  );

  test("are created no faster than the client accepts the answers", async () => {
    const connection = new RawGrpc(front.url);
    const stream = new WatchClient(connection);
    stream.call.stream.pause();
    const count = 6_000;
    for (let i = 0; i < count; i++) stream.create({ 1: `/a/${i}` });
    const watches = (): Promise<number> =>
      metricOf(front, "watch_fanout_etcd_api_watches", "cache");
    while ((await watches()) < 1_000) await delay(5);
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
    while ((await watches()) > 0) await delay(5);
  });
});
