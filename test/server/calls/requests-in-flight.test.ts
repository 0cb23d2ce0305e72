import { describe, expect, it } from "vitest";
import type { WatchFanoutError } from "../../../src/base/errors.ts";
import { RequestsInFlight } from "../../../src/server/calls/requests-in-flight.ts";
import { Ledger } from "../../../src/server/kernel/ledger.ts";
import { FakeClock } from "../../fake-clock.ts";
import { callerLimits, ownerOf } from "../limits/test-callers.ts";

const kibibyte = 1024;

/** Requests that end on request, with a bound of 100 KiB and `maxRequests` in flight, and 200 KiB per connection. */
function setUp(maxRequests = 1_000, maxQueuedRequestsPerIdentity = 10_000) {
  const clock = new FakeClock();
  const requestPool = new Ledger({
    max: 100_000 * kibibyte,
    maxPerOwner: 200 * kibibyte,
  });
  const limits = callerLimits(clock);
  const requests = new RequestsInFlight(
    {
      ...{ clock, requestPool },
      ...{ callerLimits: limits, limits: { maxQueuedRequestsPerIdentity, maxQueueMs: 5_000 } },
    },
    { kind: "writes", maxRequests, maxBytes: 100 * kibibyte },
  );
  const begun: string[] = [];
  const ended: string[] = [];
  const refused: WatchFanoutError[] = [];
  const answers: (() => void)[] = [];
  const request = (
    owner: object,
    name: string,
    kib = 0,
    signal = new AbortController().signal,
  ): void => {
    const call = { owner, connection: owner, requestBytes: kib * kibibyte, signal };
    const begin = (): void => {
      begun.push(name);
      answers.push(() => {
        requests.end(call);
        ended.push(name);
      });
    };
    const wait = requests.begin(call);
    if (wait === undefined) begin();
    else {
      wait.then(begin, (error: WatchFanoutError) => {
        refused.push(error);
        ended.push(`${name}: ${error.message}`);
      });
    }
  };
  const answer = async (count = 1): Promise<void> => {
    for (let i = 0; i < count; i++) {
      answers.shift()?.();
      await clock.settle();
    }
  };
  return { clock, requestPool, requests, begun, ended, refused, request, answer, limits };
}

describe("Requests in flight", () => {
  it("wait above the bound in bytes, and continue as the store responds", async () => {
    const { requests, begun, ended, request, answer } = setUp();
    for (let i = 0; i < 6; i++) request({}, `w${i}`, 49);
    expect(begun).toEqual(["w0", "w1"]);
    expect(requests.bytes).toBe(100 * kibibyte);
    await answer(6);
    expect(ended).toEqual(["w0", "w1", "w2", "w3", "w4", "w5"]);
    expect([requests.bytes, requests.size, requests.queued]).toEqual([0, 0, 0]);
  });

  it("are begun in rotation by caller, however many connections each has", async () => {
    const { begun, request, answer } = setUp(90);
    const greedy = Array.from({ length: 20 }, () => ownerOf({}, "10.0.0.1"));
    for (let i = 0; i < 10; i++) for (const owner of greedy) request(owner, "greedy");
    expect(begun).toHaveLength(90);
    const modest = ownerOf({}, "10.0.0.2");
    for (let i = 0; i < 30; i++) request(modest, "modest");
    // The bytes in flight leave room for ten more, and each caller may have sixteen.
    expect(begun.slice(90)).toEqual(Array(10).fill("modest"));
    begun.length = 0;
    await answer(10 + 28);
    expect(begun.filter((name) => name === "modest")).toHaveLength(14);
    expect(begun.lastIndexOf("modest")).toBeLessThan(30);
  });

  it("of a connection without any are begun at once, also if others of its caller wait", () => {
    const { begun, request } = setUp(20);
    const busy = ownerOf({}, "10.0.0.1");
    for (let i = 0; i < 100; i++) request(busy, "busy");
    expect(begun).toHaveLength(20);
    const other = ownerOf({}, "10.0.0.1");
    request(other, "first");
    request(other, "second");
    expect(begun.slice(20)).toEqual(["first"]);
  });

  it("of a caller with many connections wait above 64, whatever their number", () => {
    const { begun, request } = setUp(20);
    for (let i = 0; i < 200; i++) request(ownerOf({}, "10.0.0.1"), "busy");
    expect(begun).toHaveLength(64);
    request(ownerOf({}, "10.0.0.2"), "other");
    expect(begun.slice(64)).toEqual(["other"]);
  });

  it("that wait are charged to their connection, which loses only its own", async () => {
    const { requestPool, ended, request, clock } = setUp();
    const greedy = {};
    request({}, "first", 100);
    request({}, "modest", 10);
    for (let i = 0; i < 4; i++) request(greedy, `greedy-${i}`, 60);
    await clock.settle();
    expect(ended).toHaveLength(1);
    expect(ended[0]).toMatch(/^greedy-.*Nothing was done/);
    expect(requestPool.of(greedy)).toBe(183 * kibibyte);
  });

  it("fail after waiting for five seconds, without an effect", async () => {
    const { requestPool, requests, begun, ended, refused, request, clock, limits } = setUp();
    request({}, "first", 100);
    request({}, "second", 100);
    await clock.elapse(4_999);
    expect(ended).toEqual([]);
    await clock.elapse(1);
    expect(ended).toEqual([expect.stringMatching(/^second: .*for 5 s.*Nothing was done/)]);
    expect(refused).toMatchObject([
      {
        reason: "OVERLOADED",
        metadata: { limit_name: "max-writes-in-flight", limit: "1000", usage: "0" },
      },
    ]);
    expect(begun).toEqual(["first"]);
    expect([requestPool.total, requests.queued]).toEqual([0, 0]);
    expect(limits.stats().refused.get("queue_time")).toBe(1);
  });

  it("that wait are bounded per caller, in number and in bytes", async () => {
    const { ended, refused, request, clock, limits } = setUp(1_000, 3);
    request({}, "first", 100);
    const caller = (): object => ownerOf({}, "10.0.0.3");
    for (let i = 0; i < 4; i++) request(caller(), `many ${i}`);
    await clock.settle();
    expect(ended).toEqual([
      "many 3: Anonymous at 10.0.0.3 has 3 writes waiting, of 3072 bytes; the maximum is 3 (--max-queued-requests-per-identity). Nothing was done. Make fewer at once.",
    ]);
    expect(refused).toMatchObject([
      {
        reason: "TOO_MANY_STREAMS",
        metadata: { limit_name: "max-queued-requests-per-identity", limit: "3", usage: "3" },
      },
    ]);
    expect(limits.stats().refused.get("queued_requests")).toBe(1);
    const { refused: tooLarge, request: requestLarge, clock: later } = setUp();
    requestLarge({}, "first", 100);
    for (let i = 0; i < 260; i++) requestLarge(ownerOf({}, "10.0.0.4"), "large", 127);
    await later.settle();
    const ofCaller = tooLarge.filter(({ metadata }) => metadata["limit"] === String(32 * 2 ** 20));
    expect(ofCaller.length).toBeGreaterThan(0);
  });

  it("that are cancelled while they wait are released completely", async () => {
    const { requestPool, begun, ended, request, answer, clock } = setUp();
    const abort = new AbortController();
    request({}, "first", 100);
    request({}, "second", 100, abort.signal);
    await clock.settle();
    abort.abort(new Error("gone"));
    await clock.settle();
    expect(ended).toEqual(["second: gone"]);
    await answer();
    expect(begun).toEqual(["first"]);
    expect(requestPool.total).toBe(0);
    expect(clock.pendingTimers).toBe(0);
  });
});
