import { constants } from "node:http2";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { describe, expect, test } from "vitest";
import { listWatchService, writeService } from "../../../src/wire/services.ts";
import { rounds } from "../../thorough.ts";
import { framed, type RawCall, RawConnection } from "../http2/raw-connection.ts";
import { type Served, serveThings } from "../served.ts";

const { Watch, List, Get } = listWatchService;
const { Put } = writeService;
const resource = "things";
const fromNow = framed(Watch.requestSerialize({ resource }));
const withState = framed(Watch.requestSerialize({ resource, send_initial_events: true }));
const many = rounds(5_000, 2_000);
/** Streams that are open at once. */
const atOnce = 500;

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

/** Clients that use a stream in different ways, and abandon it. */
const visits: readonly (readonly [
  what: string,
  path: string,
  visit: (call: RawCall) => unknown,
])[] = [
  ["gets a response and cancels", Watch.path, (call) => answeredThenCancelled(call, fromNow)],
  [
    "cancels during the initial state",
    Watch.path,
    (call) => answeredThenCancelled(call, withState),
  ],
  ["sends a request and cancels at once", Watch.path, askedThenCancelled],
  ["sends no request and cancels", Watch.path, (call) => call.cancel()],
  ["sends an incomplete request and cancels", Watch.path, (call) => cutOff(call, fromNow)],
  [
    "sends an invalid request",
    List.path,
    (call) => call.stream.end(framed(Buffer.alloc(40, 0xff))),
  ],
  ["sends an invalid frame", Put.path, (call) => call.stream.end(Buffer.alloc(300, 0xfe))],
  ["resets with an error", Get.path, (call) => call.stream.close(constants.NGHTTP2_INTERNAL_ERROR)],
];

async function answeredThenCancelled(call: RawCall, request: Buffer): Promise<void> {
  call.stream.end(request);
  await call.drain().answered;
  call.cancel();
}

function askedThenCancelled(call: RawCall): void {
  call.stream.end(fromNow);
  call.cancel();
}

function cutOff(call: RawCall, request: Buffer): void {
  call.stream.write(request.subarray(0, 7));
  call.cancel();
}

/** What a server holds for its clients. */
function held({ server, cacher, clock, recorder }: Served): object {
  const { watchers, waitingRequests, coalescing, buffers } = cacher.stats();
  const { pendingTimers } = clock;
  const { openStreams } = server;
  return {
    openStreams,
    watchers,
    waiting: waitingRequests,
    coalescing: coalescing,
    input: buffers,
    pendingTimers,
    open: recorder.open,
  };
}

/** Live memory, in bytes. */
function heap(): number {
  collectGarbage();
  return process.memoryUsage().heapUsed;
}

async function visitOften(
  served: Served,
  path: string,
  visit: (call: RawCall) => unknown,
  times: number,
): Promise<void> {
  const before = served.recorder.calls.length;
  for (let done = 0; done < times; done += atOnce) {
    const raw = new RawConnection(served.server.port);
    const calls = Array.from({ length: atOnce }, () => raw.open(path));
    await Promise.all(calls.map(visit));
    await Promise.all(calls.map((call) => call.drain().ended));
    await new Promise<void>((resolve) => raw.session.close(resolve));
  }
  // The server never sees a stream that is reset before its headers are read.
  const seen = served.recorder.calls.length - before;
  expect(seen).toBeLessThanOrEqual(times);
}

async function served(): Promise<Served> {
  const limits = { maxStreamsPerConnection: 2 * atOnce };
  const served = await serveThings({ server: { limits } });
  for (let i = 0; i < 20; i++) {
    await served.storage.put({ key: `k${i}`, value: Buffer.alloc(20_000) });
  }
  await served.client.list({ resource });
  return served;
}

/** Resolves when every call that started on the server has ended. */
async function untilIdle({ recorder }: Served): Promise<void> {
  while (recorder.open > 0) await new Promise((resolve) => setImmediate(resolve));
}

describe(`${many} streams of a client that`, () => {
  test.each(visits)("%s are released completely", async (_what, path, visit) => {
    const all = await served();
    await visitOften(all, path, visit, 2 * atOnce);
    await untilIdle(all);
    const [holding, heapBefore] = [held(all), heap()];
    await visitOften(all, path, visit, many);
    await untilIdle(all);
    expect(held(all)).toEqual(holding);
    // A kilobyte of each stream would be more.
    all.recorder.calls.length = 0;
    expect(heap() - heapBefore).toBeLessThan(many * 600);
    // The server still serves.
    expect((await all.client.list({ resource })).items).toHaveLength(20);
  });
});
