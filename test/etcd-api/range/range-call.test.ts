import { once } from "node:events";
import { describe, expect, type MockInstance, onTestFinished, test, vi } from "vitest";
import { type Reason, WatchFanoutError } from "../../../src/base/errors.ts";
import type { RangeService } from "../../../src/etcd-api/range/range-service.ts";
import { CallAdmission } from "../../../src/server/calls/call-admission.ts";
import { encode } from "../../foreign/protobuf.ts";
import { type RawResponse, statusOf } from "../raw-grpc.ts";
import { rangePath, rangeStreamPath, servedRanges, whole } from "./served-ranges.ts";

/** Number of calls that were late. */
function lateIn({ mock }: MockInstance<RangeService["mayForward"]>): number {
  return mock.calls.filter(([, isLate]) => isLate).length;
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise(setImmediate);
}

describe("A Range that its cache does not answer", () => {
  test.each<[Reason, relayed: number, late: number]>([
    ["OVERLOADED", 0, 0],
    ["TOO_MANY_STREAMS", 0, 0],
    ["NOT_READY", 1, 0],
    ["UPSTREAM_DENIED", 1, 0],
    ["UPSTREAM_UNAVAILABLE", 1, 1],
    ["HISTORY_CHANGED", 1, 1],
  ])("since the read is %s, is relayed only if etcd can do better", async (reason, ...expected) => {
    const { client, cacher, service, relayed } = await servedRanges(["value"]);
    const mayForward = vi.spyOn(service, "mayForward");
    vi.spyOn(cacher, "readState").mockRejectedValueOnce(new WatchFanoutError(reason, "No."));
    const response = await client.unary(rangePath, whole);
    expect([relayed(), lateIn(mayForward)]).toEqual(expected);
    // UNAVAILABLE, after which clients of etcd try again.
    expect(statusOf(response).code).toBe(expected[0] === 0 ? "14" : "12");
  });

  test("since it has too much to sort, is not one of the few that were late", async () => {
    const { client, cacher, service, relayed } = await servedRanges(["value"]);
    const mayForward = vi.spyOn(service, "mayForward");
    const readState = vi.spyOn(cacher, "readState").mockResolvedValueOnce(undefined);
    await client.unary(rangePath, whole);
    expect([relayed(), lateIn(mayForward)]).toEqual([1, 0]);
    readState.mockResolvedValueOnce("late");
    await client.unary(rangePath, encode({ 1: "/s/", 2: "/s0", 4: cacher.revision }));
    expect([relayed(), lateIn(mayForward)]).toEqual([2, 1]);
  });
});

describe("While the cache has lost its source, and is behind what was said before,", () => {
  const serializable = encode({ 1: "/s/", 2: "/s0", 7: true });

  async function behind(): Promise<Awaited<ReturnType<typeof servedRanges>>> {
    const served = await servedRanges(["value"]);
    const header = encode({ 1: 7, 2: 8, 3: served.cacher.revision + 1, 4: 2 });
    served.service.newestHeader.observeMessage({ isInUse: true }, encode({ 1: header }));
    return served;
  }

  test("a serializable Range is etcd's to answer at once: a member without a leader can", async () => {
    const { client, cacher, relayed } = await behind();
    const asked = vi.spyOn(cacher, "reach");
    vi.spyOn(cacher, "staleForMs", "get").mockReturnValue(3_000);
    await client.unary(rangePath, serializable);
    expect([relayed(), asked.mock.calls.length]).toEqual([1, 0]);
  });

  test("it waits for the cache if the source is there", async () => {
    const { client, cacher, relayed } = await behind();
    const reached = vi.spyOn(cacher, "reach");
    await client.unary(rangePath, serializable);
    expect(reached).toHaveBeenCalledTimes(1);
    expect(relayed()).toBe(1);
  });
});

test.each([
  ["linearizable", whole],
  ["serializable", encode({ 1: "/s/", 2: "/s0", 7: true })],
])(
  "A %s Range that waits while etcd's authentication is changed is etcd's to answer",
  async (_, request) => {
    const { client, service, relayed } = await servedRanges(["value"]);
    const admit = vi.spyOn(CallAdmission.prototype, "admit");
    onTestFinished(() => admit.mockRestore());
    admit.mockImplementationOnce(async () => service.cached.accessChanged());
    await client.unary(rangePath, request);
    expect([relayed(), service.counts.cached]).toEqual([1, 0]);
    await client.unary(rangePath, request);
    expect([relayed(), service.counts.cached]).toEqual([1, 1]);
  },
);

describe("A Range that is refused for what this process holds is UNAVAILABLE", () => {
  /** Clients of gRPC for Go see INTERNAL if the details of a status have another code. */
  function expectUnavailable(response: RawResponse, text: string): void {
    const { headers, trailers } = response;
    const { code, message } = statusOf(response);
    expect([code, decodeURIComponent(message)]).toEqual(["14", expect.stringContaining(text)]);
    expect({ ...headers, ...trailers }).not.toHaveProperty("grpc-status-details-bin");
  }

  test("since the list of what it sorts takes too much", async () => {
    const limits = { maxUnreadBytesPerConnection: 10_000 };
    const { client, server } = await servedRanges(Array(2_000).fill("value"), limits);
    const response = await client.unary(rangePath, encode({ 1: "/s/", 2: "/s0", 5: 2, 6: 3 }));
    expectUnavailable(response, "10000 bytes");
    expect(server.stats().requests.bytes).toBe(0);
  });

  test("since its request does not arrive, and others need the room", async () => {
    const limits = { maxUnreadBytesPerConnection: 40_000 };
    const { client, calls: open } = await servedRanges(["value"], limits);
    const calls = [client.open(rangePath), client.open(rangePath)];
    for (const call of calls) {
      call.stream.write(Buffer.concat([Buffer.of(0, 0, 0, 0x80, 0), Buffer.alloc(25_000)]));
    }
    expectUnavailable(await Promise.race(calls.map(({ response }) => response)), "40000 bytes");
    for (const call of calls) call.cancel();
    await until(() => open.size === 0);
  });

  test("since it has waited for a minute behind responses that are not accepted", async () => {
    const limits = { maxUnsentBytesPerConnection: 100_000 };
    const { client, server, clock } = await servedRanges(["x".repeat(1_000_000), "y"], limits);
    const admit = vi.spyOn(CallAdmission.prototype, "admit");
    onTestFinished(() => admit.mockRestore());
    const call = client.open(rangePath);
    call.stream.pause();
    call.send(whole);
    await until(() => server.stats().unsent.bytes > 0);
    const waiting = client.unary(rangePath, encode({ 1: "/s/000001" }));
    await until(() => admit.mock.calls.length === 2);
    clock.advance(60_000);
    expectUnavailable(await waiting, "waited 60 s");
    call.cancel();
  });
});

describe("Bytes behind the request of a Range", () => {
  test.each([rangePath, rangeStreamPath])("of %s are dropped, and keep nothing", async (path) => {
    const { client, server, service, calls: open, relayed } = await servedRanges(["value"]);
    for (let i = 0; i < 20; i++) {
      const call = client.open(path);
      call.send(whole);
      call.stream.write(Buffer.alloc(60_000, 7));
      // The call is over before its request is, so it is reset behind its response.
      await call.response;
      if (!call.stream.closed) await once(call.stream, "close");
    }
    await until(() => open.size === 0 && server.stats().unsent.bytes === 0);
    expect(server.stats().streams).toBe(0);
    // Bytes that come with the request make it one that only etcd can read.
    expect(service.counts.cached + relayed()).toBe(20);
    expect(service.counts.cached).toBeGreaterThan(0);
  });

  test("are dropped also while the call waits for its cache", async () => {
    const { client, cacher } = await servedRanges(["value"]);
    const { readState } = cacher;
    let resume = (): void => {};
    const isAsked = new Promise<void>((resolve) => {
      vi.spyOn(cacher, "readState").mockImplementationOnce(async (...args) => {
        resolve();
        await new Promise<void>((continues) => {
          resume = continues;
        });
        return readState.apply(cacher, args);
      });
    });
    const call = client.open(rangePath);
    call.send(whole);
    await isAsked;
    // Far more than the window of a stream: none of it is kept, so all of it is accepted.
    await new Promise((resolve) => call.stream.write(Buffer.alloc(1_000_000, 7), resolve));
    resume();
    expect((await call.response).trailers?.["grpc-status"]).toBe("0");
  });
});

describe("The response of a Range", () => {
  test.each([
    [
      "within its message is reset, which clients see as DEADLINE_EXCEEDED",
      rangePath,
      8,
      undefined,
    ],
    ["between the messages of a RangeStream has its status", rangeStreamPath, 0, "4"],
  ])("that ends at its deadline %s", async (_, path, rstCode, code) => {
    const values = Array<string>(8).fill("x".repeat(200_000));
    const { client, server, clock } = await servedRanges(values);
    const call = client.open(path, { "grpc-timeout": "1S" });
    call.stream.pause();
    call.send(whole);
    await until(() => server.stats().unsent.bytes > 0);
    clock.advance(1_000);
    // A client of gRPC would cancel the call now.
    if (rstCode !== 0) clock.advance(1_000);
    call.stream.resume();
    const response = await call.response;
    expect([response.rstCode, response.trailers?.["grpc-status"]]).toEqual([rstCode, code]);
  });

  test.each([
    ["within its message is reset, which clients see as UNAVAILABLE", rangePath, 7, undefined],
    ["between the messages of a RangeStream has its status", rangeStreamPath, 0, "16"],
  ])("whose credential expires %s", async (_, path, rstCode, code) => {
    const values = Array<string>(8).fill("x".repeat(200_000));
    const { client, server, calls: open } = await servedRanges(values);
    const call = client.open(path);
    call.stream.pause();
    call.send(whole);
    await until(() => server.stats().unsent.bytes > 0);
    for (const opened of open) opened.evict(new WatchFanoutError("UNAUTHENTICATED", "No."));
    call.stream.resume();
    const response = await call.response;
    expect([response.rstCode, response.trailers?.["grpc-status"]]).toEqual([rstCode, code]);
  });

  test("that is small, and is not accepted, is reset as a large one, so that clients try again", async () => {
    const limits = { maxUnsentBytes: 300_000 };
    const { client, server, clock } = await servedRanges(["x".repeat(200_000)], limits);
    const mayEncode = vi.spyOn(CallAdmission.prototype, "mayEncode");
    onTestFinished(() => mayEncode.mockRestore());
    const open = () => {
      const call = client.open(rangePath);
      call.stream.pause();
      call.send(whole);
      call.halfClose();
      return call;
    };
    const first = open();
    await until(() => server.stats().unsent.bytes > 0);
    const second = open();
    await until(() => mayEncode.mock.calls.length === 2);
    // Others wait for room for 10 s, then it is made.
    clock.advance(11_000);
    first.stream.resume();
    // Clients of gRPC see REFUSED_STREAM as UNAVAILABLE.
    expect((await first.response).rstCode).toBe(7);
    await until(() => second.headers !== undefined);
    // The stall timeout.
    clock.advance(60_000);
    second.stream.resume();
    expect((await second.response).rstCode).toBe(7);
    await until(() => server.stats().unsent.bytes === 0);
  });

  test("is paced by the rate of its caller, small as it may be", async () => {
    const limits = { maxSendRatePerIdentity: 100_000 };
    const { client, clock } = await servedRanges(["x".repeat(200_000), "y"], limits);
    const large = await client.unary(rangePath, whole);
    expect(large.body.length).toBeGreaterThan(200_000);
    const call = client.open(rangePath);
    let hasEnded = false;
    void call.response.then(() => {
      hasEnded = true;
    });
    call.send(encode({ 1: "/s/000001" }));
    call.halfClose();
    // A call of the same connection that is made later, and takes as many steps.
    await client.unary("/grpc.health.v1.Health/Check", Buffer.of());
    expect(hasEnded).toBe(false);
    for (let i = 0; i < 30 && !hasEnded; i++) await clock.elapse(100);
    expect((await call.response).trailers?.["grpc-status"]).toBe("0");
  });

  test("counts the list of what it sorts until it is sent, and lists nothing else", async () => {
    const values = Array.from({ length: 2_000 }, () => "x".repeat(1_000));
    const { client, server } = await servedRanges(values);
    const held: number[] = [];
    for (const sorting of [{}, { 5: 2, 6: 3 }]) {
      const call = client.open(rangePath);
      call.stream.pause();
      call.send(encode({ 1: "/s/", 2: "/s0", ...sorting }));
      call.halfClose();
      await until(() => call.headers !== undefined && server.stats().unsent.bytes > 0);
      expect(server.stats().unsent.bytes).toBeLessThan(500_000);
      held.push(server.stats().requests.bytes);
      call.stream.resume();
      expect((await call.response).body.length).toBeGreaterThan(2_000_000);
      await until(() => server.stats().requests.bytes === 0);
    }
    const [inKeyOrder = 0, sorted = 0] = held;
    expect(inKeyOrder).toBeLessThan(1_000);
    // 8 bytes for each, and the request is longer.
    expect(sorted - inKeyOrder).toBe(16_000 + 4);
  });

  test("is made of pieces of at most 2,048 objects", async () => {
    const values = Array.from({ length: 5_000 }, (_, i) => String(i));
    const { client } = await servedRanges(values);
    const call = client.open(rangeStreamPath);
    call.send(whole);
    call.halfClose();
    const { body } = await call.response;
    const sizes: number[] = [];
    for (let at = 0; at < body.length; at += 5 + body.readUInt32BE(at + 1)) sizes.push(at);
    expect(sizes.length).toBe(3);
  });
});
