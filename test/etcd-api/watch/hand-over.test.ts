import { status } from "@grpc/grpc-js";
import { describe, expect, test } from "vitest";
import { groupOf } from "../../../src/base/fair-queue.ts";
import { WatchBatch, WatchEvent } from "../../../src/model/event.ts";
import { StoredObject } from "../../../src/model/object.ts";
import { FakeFront, type FakeStream, failure, putAt } from "./served-stream.ts";

/** A stream with a watch of /a/x from revision 3 on, which etcd serves: the oldest revision of the cache is 5. */
async function servedByEtcd(front: FakeFront, fields = {}): Promise<FakeStream> {
  const stream = front.stream();
  await stream.create({ 1: "/a/x", 3: 3, ...fields });
  front.etcd({ 2: 1, 3: true }, 10);
  await front.clock.settle();
  expect(stream.take()).toEqual(["0: created at 10"]);
  expect(front.sent.splice(0)).toEqual(["create /a/x 1 from 3"]);
  return stream;
}

/** The checks of all streams, about once a second. */
const check = (front: FakeFront): Promise<void> => front.clock.elapse(1_000);

/** The revisions after which the cache was asked for events. */
const asked = (front: FakeFront): (number | undefined)[] =>
  front.caches.a.watchers.map(({ request }) => request.afterRevision);

describe("A watch that etcd serves", () => {
  test("is continued from the cache behind what etcd has sent, without a gap and without a repetition", async () => {
    const front = new FakeFront();
    const stream = await servedByEtcd(front);
    front.etcdEvents(1, [3, 5]);
    await check(front);
    expect([asked(front), front.sent]).toEqual([[5], ["cancel 1"]]);
    for (const revision of [5, 6]) front.caches.a.offer(revision, putAt("x", revision));
    expect(stream.take()).toEqual([...["0: PUT /k@3, PUT /k@5 at 5", "0: PUT /a/x@6 at 6"]]);
    expect(front.service.counts).toEqual({ watches: 1, relayed: 0 });
  });

  test("stays there while the cache does not have the next event", async () => {
    const front = new FakeFront();
    const stream = await servedByEtcd(front);
    front.caches.a.oldestRevision = 6;
    front.etcdEvents(1, [3, 5]);
    await check(front);
    expect(asked(front)).toEqual([]);
    front.etcdEvents(1, [6]);
    await check(front);
    expect(asked(front)).toEqual([6]);
    expect(stream.take().length).toBe(2);
  });

  test("is brought there by etcd's progress, which is asked for while the cache is ready", async () => {
    const front = new FakeFront();
    await servedByEtcd(front);
    front.caches.a.ready = false;
    await check(front);
    expect(front.sent).toEqual([]);
    front.caches.a.ready = true;
    await check(front);
    expect(front.sent.splice(0)).toEqual(["progress"]);
    front.etcd({ 2: -1 }, 8);
    await check(front);
    expect([asked(front), front.sent]).toEqual([[8], ["cancel 1"]]);
  });

  test("stays there until the client has taken what etcd has sent", async () => {
    const front = new FakeFront();
    const stream = await servedByEtcd(front);
    stream.acceptsAtOnce = false;
    front.etcdEvents(1, [7]);
    front.etcdEvents(1, [8]);
    await check(front);
    expect(asked(front)).toEqual([]);
    stream.accept();
    await check(front);
    expect(asked(front)).toEqual([8]);
  });

  test("stays there while a response in fragments has not arrived completely", async () => {
    const front = new FakeFront();
    const stream = await servedByEtcd(front, { 8: true });
    front.etcdEvents(1, [7], true);
    await check(front);
    expect(asked(front)).toEqual([]);
    front.etcdEvents(1, [7]);
    await check(front);
    expect([asked(front), stream.take().length]).toEqual([[7], 2]);
  });

  test("and that is canceled within a response in fragments is canceled at the revision before", async () => {
    const front = new FakeFront();
    const stream = await servedByEtcd(front, { 8: true });
    front.etcdEvents(1, [7], true);
    stream.client.cancel(0);
    expect(stream.take()).toEqual(["0: fragment, PUT /k@7 at 7", "0: canceled at 2"]);
  });

  test("stays there if no cache has its keys, or etcd has not created it", async () => {
    const front = new FakeFront();
    const stream = front.stream();
    await stream.create({ 1: "/k" }, { 1: "/a/x", 3: 3 });
    front.etcd({ 2: 1, 3: true }, 10);
    front.etcdEvents(1, [11]);
    front.caches.a.oldestRevision = 1;
    await check(front);
    expect(asked(front)).toEqual([]);
    expect(front.sent).toEqual(["create /k 1 from 0", "create /a/x 2 from 3"]);
    expect(front.service.counts.relayed).toBe(2);
    front.etcd({ 2: 2, 3: true }, 10);
    await check(front);
    expect(asked(front)).toEqual([2]);
    expect(front.sent.at(-1)).toBe("cancel 2");
  });

  test("that begins later than the cache's revision is continued from its start revision on", async () => {
    const front = new FakeFront();
    front.caches.a.ready = false;
    const stream = front.stream();
    await stream.create({ 1: "/a/x", 3: 13 });
    front.etcd({ 2: 1, 3: true }, 10);
    front.caches.a.ready = true;
    await check(front);
    expect(asked(front)).toEqual([10]);
    for (let i = 0; i < 3; i++) front.caches.a.put("x");
    expect(stream.take()).toEqual(["0: created at 10", "0: PUT /a/x@13 at 13"]);
  });
});

describe("A watch whose cache ends it", () => {
  /** With one event, of revision 11. */
  async function servedByCache(front: FakeFront): Promise<FakeStream> {
    const stream = front.stream();
    await stream.create({ 1: "/a/x" }, { 1: "/a/y" });
    front.caches.a.put("x");
    stream.take();
    return stream;
  }

  test("is continued by the cache behind what was sent, if that still has all events", async () => {
    const front = new FakeFront();
    const stream = await servedByCache(front);
    const { a } = front.caches;
    a.revision = 15;
    a.oldestRevision = 11;
    a.watchers[0]?.fail(failure("SLOW_CONSUMER"));
    expect([asked(front), a.watchers[0]?.isClosed]).toEqual([[10, 10, 11], false]);
    a.watchers[2]?.offer(new WatchBatch(12, [putAt("x", 12)]));
    expect(stream.take()).toEqual(["0: PUT /a/x@12 at 12"]);
    expect(front.sent).toEqual([]);
  });

  test("is continued by etcd otherwise, from the next revision on", async () => {
    const front = new FakeFront();
    const stream = await servedByCache(front);
    front.caches.a.oldestRevision = 12;
    front.caches.a.watchers[0]?.fail(failure("HISTORY_LOST"));
    expect(front.sent).toEqual(["create /a/x 1 from 12"]);
    expect(front.caches.a.watchers[0]?.isClosed).toBe(true);
    front.etcd({ 2: 1, 3: true }, 20);
    front.etcdEvents(1, [12]);
    expect(stream.take()).toEqual(["0: PUT /k@12 at 12"]);
    expect(front.service.counts).toEqual({ watches: 2, relayed: 1 });
  });

  test("is canceled as by a compaction if etcd has another history, whose revisions count from then on", async () => {
    const front = new FakeFront();
    const stream = await servedByCache(front);
    expect(front.service.floor).toBe(11);
    front.caches.a.revision = 7;
    front.caches.a.watchers[0]?.fail(failure("HISTORY_CHANGED"));
    front.caches.a.revision = 0;
    front.caches.a.watchers[1]?.fail(failure("HISTORY_CHANGED"));
    expect(stream.take()).toEqual([
      ...["0: canceled, compacted 7 at 0", "1: canceled, compacted 1 at 0"],
    ]);
    expect([front.service.floor, front.service.counts.watches]).toEqual([0, 0]);
    expect(stream.status).toBeUndefined();
  });

  test("ends the stream if etcd can't serve one more, after which its client resumes it elsewhere", async () => {
    const front = new FakeFront();
    const stream = await servedByCache(front);
    front.caches.a.oldestRevision = 12;
    front.service.upstreamWatches.reserve(groupOf(stream.call.owner), 20_000, () => {});
    front.caches.a.watchers[0]?.fail(failure("HISTORY_LOST"));
    expect(stream.status).toMatchObject({
      ...{ code: status.UNAVAILABLE, details: "too many watches are not served from a cache" },
    });
  });
});

test("A watch whose cache does not know a previous value that etcd has is continued by etcd", async () => {
  const front = new FakeFront();
  const stream = front.stream();
  await stream.create({ 1: "/a/x", 6: true }, { 1: "/a/x" });
  stream.take();
  const changed = new StoredObject("x", Buffer.from("v"), 3, 11, 2, 0n);
  front.caches.a.revision = 11;
  front.caches.a.offer(11, new WatchEvent("MODIFIED", changed, undefined));
  expect(stream.take()).toEqual(["1: PUT /a/x@11 at 11"]);
  expect(front.sent).toEqual(["create /a/x 1 from 11"]);
});

describe("Watches of a cache that etcd refuses what it needs", () => {
  test("are etcd's to serve, once they have sent what they have", async () => {
    const front = new FakeFront();
    const stream = front.stream();
    await stream.create({ 1: "/a/x" }, { 1: "/a/y" }, { 1: "/b/z" });
    stream.acceptsAtOnce = false;
    front.caches.a.put("x");
    front.caches.a.put("x");
    await check(front);
    const created = (): string[] => front.sent.filter((request) => request.startsWith("create"));
    expect(created()).toEqual([]);
    front.caches.a.upstreamFailure = failure("UPSTREAM_DENIED");
    await check(front);
    expect(created()).toEqual(["create /a/y 1 from 11"]);
    while (stream.call.outstanding) stream.accept();
    await check(front);
    // A new one as well.
    await stream.create({ 1: "/a/z" });
    expect(created().slice(1)).toEqual(["create /a/x 2 from 13", "create /a/z 3 from 0"]);
    expect(front.caches.b.open.length).toBe(1);
  });

  test("stay while etcd is only away", async () => {
    const front = new FakeFront();
    const stream = front.stream();
    await stream.create({ 1: "/a/x" });
    front.caches.a.upstreamFailure = failure("UPSTREAM_UNAVAILABLE");
    await check(front);
    expect([front.sent, front.caches.a.open.length]).toEqual([[], 1]);
  });
});
