import { status } from "@grpc/grpc-js";
import { describe, expect, test, vi } from "vitest";
import { WatchFanoutError } from "../../../src/base/errors.ts";
import { groupOf } from "../../../src/base/fair-queue.ts";
import { leftOutKeyHeader } from "../../../src/etcd/client/call-headers.ts";
import { duplicateWatch, noLeader, stopped, tooMany } from "../../../src/etcd/wire/error-texts.ts";
import { Namespace } from "../../../src/etcd/wire/namespace.ts";
import type { AskedKeys } from "../../../src/etcd-api/rights/key-rights.ts";
import { encode } from "../../foreign/protobuf.ts";
import { FakeFront } from "./served-stream.ts";

describe("A stream that needs a leader", () => {
  test("is served once the member in use has one, and ends when that has lost it", async () => {
    const front = new FakeFront();
    const stream = front.stream({ hasleader: "true" });
    await stream.create({ 1: "/a/x" });
    expect(stream.take()).toEqual([]);
    front.etcd({ 2: 1, 3: true }, 10);
    await front.clock.settle();
    expect(stream.take()).toEqual(["0: created at 10"]);
    const other = front.stream();
    front.etcdEnds(noLeader, 0);
    expect(stream.status).toMatchObject({ code: status.UNAVAILABLE, details: noLeader });
    expect(other.status).toBeUndefined();
  });

  test("ends if the member has no leader", async () => {
    const front = new FakeFront();
    const stream = front.stream({ hasleader: "true" });
    await stream.create({ 1: "/a/x" });
    front.etcdEnds(noLeader);
    expect([stream.status?.details, stream.take()]).toEqual([noLeader, []]);
    expect(front.caches.a.watchers).toEqual([]);
  });

  test("ends when the member can't be reached for three seconds", async () => {
    const front = new FakeFront();
    const stream = front.stream({ hasleader: "true" });
    await stream.create({ 1: "/a/x" });
    front.etcd({ 2: 1, 3: true }, 10);
    await front.clock.settle();
    front.etcdEnds("the connection was lost");
    await front.clock.elapse(1_000);
    expect(front.upstreamCalls.length).toBe(2);
    front.etcdEnds("the connection was lost");
    await front.clock.elapse(3_000);
    expect(stream.status?.details).toBe(noLeader);
  });

  test("is not informed of its leader if it has ended before the member has answered", async () => {
    const front = new FakeFront();
    const add = vi.spyOn(front.service.monitor, "add");
    const stream = front.stream({ hasleader: "true" });
    stream.call.drain();
    front.etcd({ 2: 1, 3: true }, 10);
    expect(add).not.toHaveBeenCalled();
  });
});

test("A stream ends with the reason for which no member has ever answered", async () => {
  const front = new FakeFront(false);
  const stream = front.stream();
  await stream.create({ 1: "/a/x" });
  front.etcdEnds("unreachable");
  expect([stream.status?.details, front.caches.a.watchers]).toEqual(["unreachable", []]);
});

describe("A stream to etcd", () => {
  const namespace = new Namespace(Buffer.from("/ns/"));

  test.each([
    ["names the key that the client leaves out", {}, "key"],
    ["does not in a namespace, where that key has another name", { namespace }, undefined],
  ])("%s", async (_, options, expected) => {
    const front = new FakeFront(true, options);
    await front.stream({ [leftOutKeyHeader]: "key" }).create({ 1: "/k" });
    expect(front.upstreamHeaders.map((headers) => headers[leftOutKeyHeader])).toEqual([expected]);
  });

  test.each([
    ["is the smallest key", {}, "\0"],
    ["is that of the prefix in a namespace", { namespace }, ""],
    ["may be that of a prefix in the next tier", { bearer: () => undefined }, ""],
  ])("has watches whose empty key %s", async (_, options, expected) => {
    const front = new FakeFront(true, options);
    const asked: string[] = [];
    const check = (requests: readonly AskedKeys[]) => {
      asked.push(...requests.map(({ key }) => String(key)));
      return [{ kind: "watch" }];
    };
    await front.stream({}, { streamRefusal: undefined, check } as never).create({ 2: "z" });
    expect(asked).toEqual([expected]);
  });
});

describe("A create request of a client with a credential of etcd", () => {
  test("is served from the cache if etcd permits it, and is refused as etcd does", async () => {
    const front = new FakeFront();
    const stream = front.stream({ token: "t" });
    await stream.create({ 1: "/a/x" }, { 1: "/a/y" });
    // The second one waits for the answer to the first.
    expect(front.sent).toEqual(["create /a/x 1 from 0"]);
    front.etcd({ 2: 1, 3: true }, 10);
    await front.clock.settle();
    expect(front.sent.slice(1)).toEqual(["cancel 1", "create /a/y 2 from 0"]);
    front.etcd({ 2: -1, 3: true, 4: true, 6: "denied" }, 10);
    await front.clock.settle();
    front.caches.a.put("x");
    expect(stream.take()).toEqual([
      ...["0: created at 10", "-1: created, canceled, denied at 10", "0: PUT /a/x@11 at 11"],
    ]);
    expect(front.service.counts).toEqual({ watches: 1, relayed: 0 });
  });

  test("with the id of another watch is refused for that only if etcd permits it", async () => {
    const front = new FakeFront();
    const stream = front.stream({ token: "t" });
    await stream.create({ 1: "/a/x", 7: 5 }, { 1: "/a/y", 7: 5 });
    front.etcd({ 2: 1, 3: true }, 10);
    await front.clock.settle();
    front.etcd({ 2: 2, 3: true }, 10);
    await front.clock.settle();
    expect(stream.take()).toEqual([
      ...["5: created at 10", `-1: created, canceled, ${duplicateWatch} at 10`],
    ]);
    expect(front.service.watches).toBe(1);
  });
});

describe("Requests behind a create request that etcd has not answered", () => {
  test.each([
    ["another one that etcd answers does not wait", { 1: encode({ 1: "/k/1" }) }, 2],
    ["one with an id of its own waits", { 1: encode({ 1: "/k/1", 7: 9 }) }, 1],
    ["one that a cache serves waits", { 1: encode({ 1: "/a/x" }) }, 1],
    ["a request to cancel waits", { 2: encode({ 1: 0 }) }, 1],
    ["a progress request waits", { 3: Buffer.of() }, 1],
  ])("%s", async (_, request, sent) => {
    const front = new FakeFront();
    const stream = front.stream();
    await stream.create({ 1: "/k/0" });
    stream.client.call.send(encode(request));
    await front.clock.settle();
    expect([front.sent.length, stream.isPaused]).toEqual([sent, sent === 1]);
    front.etcd({ 2: 1, 3: true }, 10);
    if (sent === 2) front.etcd({ 2: 2, 3: true }, 10);
    await front.clock.settle();
    expect([front.sent.length + stream.take().length, stream.isPaused]).toEqual([
      ...[expect.toSatisfy((count: number) => count > 2), false],
    ]);
  });
});

describe("Requests", () => {
  test("that wait for etcd's answer are handled then, whether or not the client accepts that", async () => {
    const front = new FakeFront();
    const stream = front.stream();
    stream.acceptsAtOnce = false;
    await stream.create({ 1: "/k/0" }, { 1: "/a/x" });
    expect(front.caches.a.open).toEqual([]);
    front.etcd({ 2: 1, 3: true }, 10);
    await front.clock.settle();
    expect(front.caches.a.open.length).toBe(1);
  });

  test("that etcd has to serve are passed on at once", () => {
    const front = new FakeFront();
    front.stream().client.create({ 1: "/a/x", 3: 5 });
    expect(front.sent).toEqual(["create /a/x 1 from 5"]);
  });

  test("of no known kind have no answer", async () => {
    const front = new FakeFront();
    const stream = front.stream();
    await stream.create({ 1: "/a/x" });
    stream.take();
    stream.client.call.send(encode({ 9: 1 }));
    await front.clock.settle();
    expect([stream.take(), stream.status]).toEqual([[], undefined]);
  });

  test("that are refused together are answered together", async () => {
    const stream = new FakeFront().stream();
    await stream.createTogether({ 1: "/a/x", 3: -1 }, { 1: "/a/x", 3: -1 });
    expect(stream.followed).toEqual([true, false]);
  });

  test("for another watch of etcd are refused while the caller has as many as all may have", async () => {
    const front = new FakeFront();
    const stream = front.stream();
    front.service.upstreamWatches.reserve(groupOf(stream.call.owner), 20_000, () => {});
    await stream.create({ 1: "/k" }, { 1: "/a/x" });
    expect(stream.take()).toEqual([
      ...[`-1: created, canceled, ${tooMany} at 9`, "0: created at 10"],
    ]);
    expect(front.sent).toEqual([]);
  });

  test("do not give a watch the id of one that was canceled", async () => {
    const stream = new FakeFront().stream();
    await stream.create({ 1: "/a/x" });
    stream.client.cancel(0);
    await stream.create({ 1: "/a/x" });
    expect(stream.take()).toEqual([
      ...["0: created at 10", "0: canceled at 10", "1: created at 10"],
    ]);
  });
});

describe("The watches of a caller that may not do everything", () => {
  const access = { kind: "watch" } as never;

  test("need its right, which the stream has for as long as they are open", async () => {
    const front = new FakeFront();
    const asked: unknown[] = [];
    const denied = new WatchFanoutError("PERMISSION_DENIED", "no right");
    const check = (requests: readonly AskedKeys[]) => {
      asked.push(...requests.map(({ kind, key }) => `${kind} ${key}`));
      return String(requests[0]?.key) === "/a/y" ? denied : [access];
    };
    const refuseUnread = (mayWrite: boolean) => {
      expect(mayWrite).toBe(false);
      return denied;
    };
    const stream = front.stream({}, { streamRefusal: undefined, check, refuseUnread } as never);
    await stream.create({ 1: "/a/x" }, { 1: "/a/y" }, { 1: "/a/z", 99: 1 });
    expect(asked).toEqual(["watch /a/x", "watch /a/y"]);
    expect(stream.take()).toEqual([
      "0: created at 10",
      ...[1, 2].map(() => `-1: created, canceled, ${denied.message} at 10`),
    ]);
    expect(stream.call.access).toEqual([access]);
    stream.client.cancel(0);
    expect(stream.call.access).toEqual([]);
    await stream.create({ 1: "/a/x" });
    expect(stream.call.access).toEqual([access]);
    stream.call.drain();
    expect(stream.call.access).toEqual([]);
    // Without a policy nothing is checked later.
    expect(front.stream().call.access).toBeUndefined();
  });

  test("are refused without a right to any, and the stream ends once that is lost and no watch is left", async () => {
    const front = new FakeFront();
    const denied = new WatchFanoutError("PERMISSION_DENIED", "no right");
    const refused = front.stream({}, { streamRefusal: denied } as never);
    expect(refused.status?.details).toContain("no right");
    const rights = { streamRefusal: undefined as unknown, check: () => [access] };
    const stream = front.stream({}, rights as never);
    await stream.create({ 1: "/a/x" });
    rights.streamRefusal = denied;
    await front.clock.elapse(1_000);
    expect(stream.status).toBeUndefined();
    stream.client.cancel(0);
    await front.clock.elapse(1_000);
    expect(stream.status?.details).toContain("no right");
  });
});

describe("What a stream holds", () => {
  test("is counted while it is open: its requests, by its connection", async () => {
    const front = new FakeFront();
    const { retainedRequests, requestPool } = front.context;
    const stream = front.stream();
    expect(retainedRequests.total).toBe(100);
    await stream.create({ 1: "/a/x" });
    // The headers, the request, and what is known of the watch.
    expect(retainedRequests.total).toBe(100 + 512 + encode({ 1: "/a/x" }).length);
    await stream.create({ 1: "/a/y" });
    stream.client.cancel(0);
    stream.client.cancel(1);
    expect(retainedRequests.total).toBe(100);
    await stream.create({ 1: "/k/0" }, { 1: "/k/1", 7: 1 });
    expect(requestPool.total).toBeGreaterThanOrEqual(encode({ 1: "/k/1", 7: 1 }).length);
    expect(requestPool.total).toBeLessThan(100);
    stream.call.drain();
    expect([retainedRequests.total, requestPool.total]).toEqual([0, 0]);
    expect(stream.status).toMatchObject({ code: status.UNAVAILABLE, details: stopped });
  });

  test("and its client does not accept is what waits behind the message that is outstanding", async () => {
    const front = new FakeFront();
    const stream = front.stream();
    await stream.create({ 1: "/k" });
    front.etcd({ 2: 1, 3: true }, 10);
    expect(stream.call.heldBytes).toBe(0);
    stream.acceptsAtOnce = false;
    for (const revision of [11, 12, 13]) front.etcdEvents(1, [revision]);
    const waiting = stream.call.heldBytes;
    expect(waiting).toBeGreaterThan(20);
    front.etcdEvents(1, [14]);
    expect(stream.call.heldBytes).toBe(1.5 * waiting);
    const incomplete = Buffer.alloc(105);
    incomplete.writeUInt32BE(1_000, 1);
    front.upstreamCalls[0]?.emit("data", incomplete);
    expect(stream.call.heldBytes).toBe(1.5 * waiting + incomplete.length);
    await front.clock.elapse(2_000);
    // Nothing was accepted for a second.
    expect(front.context.sendBudget.bytes).toBeGreaterThanOrEqual(1.5 * waiting);
    while (stream.call.outstanding) stream.accept();
    expect([stream.call.heldBytes, front.context.sendBudget.bytes]).toEqual([0, 0]);
  });

  test("and its client does not accept is also what its watchers hold", async () => {
    const front = new FakeFront();
    const stream = front.stream();
    await stream.create({ 1: "/a/x" }, { 1: "/a/y" });
    for (const watcher of front.caches.a.watchers) watcher.heldBytes = 1_000;
    expect(stream.call.heldBytes).toBe(0);
    stream.acceptsAtOnce = false;
    front.caches.a.put("x");
    expect(stream.call.heldBytes).toBe(2_000);
  });

  test("of its requests has a bound, above which it ends and its client resumes it elsewhere", async () => {
    const front = new FakeFront();
    const stream = front.stream();
    const { retainedRequests } = front.context;
    await stream.create({ 1: "/a/x" });
    const { maxPerOwner = 0 } = retainedRequests.bounds;
    const others = maxPerOwner - retainedRequests.total;
    // Of others of its connection, which are not evicted before it.
    retainedRequests.reserve(stream.call["connection"], others, () => {}, Infinity);
    await stream.create({ 1: "/a/y" });
    expect(stream.status?.code).toBe(status.UNAVAILABLE);
    expect([front.caches.a.open, front.service.counts.watches]).toEqual([[], 0]);
    expect(retainedRequests.total).toBe(others);
  });

  test("of etcd's responses is about 1 MiB at most: etcd's call is paused meanwhile", async () => {
    const front = new FakeFront();
    const stream = front.stream();
    await stream.create({ 1: "/k" });
    front.etcd({ 2: 1, 3: true }, 10);
    stream.acceptsAtOnce = false;
    const send = (revision: number): void => {
      const event = encode({ 2: encode({ 1: "/k", 3: revision, 5: Buffer.alloc(400_000) }) });
      front.etcd({ 2: 1, 11: [event] }, revision);
    };
    for (const revision of [11, 12, 13]) send(revision);
    const [call] = front.upstreamCalls;
    expect(call?.isPaused).toBe(false);
    send(14);
    expect(call?.isPaused).toBe(true);
    stream.accept();
    expect(call?.isPaused).toBe(false);
    while (stream.call.outstanding) stream.accept();
    expect(stream.client.eventsOf("0").map(({ kv }) => kv.mod)).toEqual(["11", "12", "13", "14"]);
  });

  test("is released when it ends, at etcd as well, and what the client still sends is dropped", async () => {
    const front = new FakeFront();
    const stream = front.stream();
    await stream.create({ 1: "/k" });
    front.etcd({ 2: 1, 3: true }, 10);
    await stream.create({ 1: "/a/x" });
    stream.isPaused = true;
    stream.call.drain();
    expect(front.service.counts).toEqual({ watches: 0, relayed: 0 });
    expect([front.caches.a.open, front.upstreamCalls[0]?.closed]).toEqual([[], true]);
    expect([stream.isPaused, stream.call.watches.size, front.calls.size]).toEqual([false, 0, 0]);
    await stream.create({ 1: "/a/y" });
    expect(front.caches.a.watchers.length).toBe(1);
  });

  test("at etcd is closed when it had no watch there for a second", async () => {
    const front = new FakeFront();
    const stream = front.stream();
    await stream.create({ 1: "/k" });
    front.etcd({ 2: 1, 3: true }, 10);
    stream.client.cancel(0);
    await front.clock.elapse(2_000);
    expect(front.upstreamCalls[0]?.closed).toBe(true);
    expect(stream.status).toBeUndefined();
  });
});
