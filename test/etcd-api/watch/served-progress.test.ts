import { describe, expect, test } from "vitest";
import { leftOutKeyHeader } from "../../../src/etcd/client/call-headers.ts";
import { FakeFront, type FakeStream, failure, notifyMs } from "./served-stream.ts";

/** A stream with a watch of /a/x and one of /b/y, which is asked for no progress yet. */
async function withWatches(front: FakeFront, metadata = {}): Promise<FakeStream> {
  const stream = front.stream(metadata);
  await stream.create({ 1: "/a/x" }, { 1: "/b/y" });
  stream.take();
  return stream;
}

describe("The answer to a progress request", () => {
  test("is one for all watches if all have everything up to the same revision, once the caches are there", async () => {
    const front = new FakeFront();
    const { a, b } = front.caches;
    const stream = await withWatches(front);
    for (const cache of [a, b]) cache.reachesAtOnce = false;
    stream.client.requestProgress();
    await front.clock.settle();
    expect([a.asked, b.asked, stream.take()]).toEqual([["current"], ["current"], []]);
    a.reach();
    await front.clock.settle();
    for (const cache of [a, b]) cache.revision = 12;
    b.reach();
    await front.clock.settle();
    expect(stream.take()).toEqual(["-1: progress at 12"]);
    expect(front.newestHeader.floor).toBe(12);
    // What was reported counts as sent.
    stream.client.cancel(0);
    expect(stream.take()).toEqual(["0: canceled at 12"]);
  });

  test("is one for each watch if they are at several revisions, none of which is right for all", async () => {
    const front = new FakeFront();
    const { a, b } = front.caches;
    const stream = await withWatches(front);
    a.reachesAtOnce = false;
    stream.client.requestProgress();
    a.put("x");
    a.revision = 12;
    a.reach();
    await front.clock.settle();
    // That of the second would be below the event that the first was sent, and that of the first above what the second has.
    expect(stream.take()).toEqual([
      ...["0: PUT /a/x@11 at 11", "0: progress at 12", "1: progress at 10"],
    ]);
    b.revision = 11;
    stream.client.requestProgress();
    a.reach();
    await front.clock.settle();
    expect(stream.take()).toEqual([]);
    b.revision = 12;
    stream.client.requestProgress();
    a.reach();
    await front.clock.settle();
    expect(stream.take()).toEqual(["-1: progress at 12"]);
  });

  test("is not sent without a watch, nor for a watch that begins later, as from etcd", async () => {
    const front = new FakeFront();
    const stream = front.stream();
    stream.client.requestProgress();
    await stream.create({ 1: "/a/x" }, { 1: "/a/y", 3: 12 });
    stream.take();
    expect(front.caches.a.asked).toEqual([]);
    stream.client.requestProgress();
    await front.clock.settle();
    expect(stream.take()).toEqual([]);
    front.caches.a.revision = 12;
    stream.client.requestProgress();
    await front.clock.settle();
    expect(stream.take()).toEqual(["-1: progress at 12"]);
  });

  test("is not sent if no watch is left that was there", async () => {
    const front = new FakeFront();
    const stream = front.stream();
    await stream.create({ 1: "/a/x" });
    front.caches.a.reachesAtOnce = false;
    stream.client.requestProgress();
    stream.client.cancel(0);
    front.caches.a.reach();
    await front.clock.settle();
    expect(stream.take()).toEqual(["0: created at 10", "0: canceled at 10"]);
  });

  test("comes behind the events that wait for the client", async () => {
    const front = new FakeFront();
    const stream = await withWatches(front);
    stream.acceptsAtOnce = false;
    for (const cache of [front.caches.a, front.caches.b]) cache.revision = 20;
    front.caches.a.put("x");
    front.caches.a.put("x");
    front.caches.b.revision = 22;
    stream.client.requestProgress();
    await front.clock.settle();
    stream.accept();
    stream.accept();
    expect(stream.take()).toEqual([
      "0: PUT /a/x@21 at 21",
      "0: PUT /a/x@22 at 22",
      "-1: progress at 22",
    ]);
  });

  test("comes behind those to create requests, and is of the watches that it had, one by one", async () => {
    const front = new FakeFront();
    const stream = await withWatches(front);
    front.caches.a.reachesAtOnce = false;
    stream.client.requestProgress();
    await stream.create({ 1: "/elsewhere" });
    front.caches.a.reach();
    await front.clock.settle();
    // The answer for all watches would be taken for progress of the one that is created next.
    expect(stream.take()).toEqual([]);
    front.etcd({ 2: 1, 3: true }, 10);
    await front.clock.settle();
    expect(stream.take()).toEqual(["2: created at 10", "0: progress at 10", "1: progress at 10"]);
  });

  test("is not below what clients know of, which the caches have to reach first", async () => {
    const front = new FakeFront();
    const stream = await withWatches(front);
    front.service.reported(15);
    stream.client.requestProgress();
    await front.clock.settle();
    expect(stream.take()).toEqual([]);
    for (const cache of [front.caches.a, front.caches.b]) cache.revision = 15;
    stream.client.requestProgress();
    await front.clock.settle();
    expect(stream.take()).toEqual(["-1: progress at 15"]);
  });

  test("is followed by one for all requests that came before it", async () => {
    const front = new FakeFront();
    const { a } = front.caches;
    const stream = await withWatches(front);
    a.reachesAtOnce = false;
    for (let i = 0; i < 3; i++) stream.client.requestProgress();
    await front.clock.settle();
    expect(a.asked).toEqual(["current"]);
    a.reach();
    await front.clock.settle();
    // A write from before the second request may be in none of the caches that the first has asked.
    expect([a.asked, stream.take()]).toEqual([["current", "current"], ["-1: progress at 10"]]);
    a.reach();
    await front.clock.settle();
    expect([a.asked.length, stream.take()]).toEqual([2, ["-1: progress at 10"]]);
    a.reach();
    await front.clock.settle();
    expect([a.asked.length, stream.take()]).toEqual([2, []]);
  });

  test("waits for etcd's, which it asks again for each request, if etcd serves one of the watches", async () => {
    const front = new FakeFront();
    const stream = front.stream();
    await stream.create({ 1: "/k" });
    front.etcd({ 2: 1, 3: true }, 10);
    await stream.create({ 1: "/a/x" });
    stream.take();
    stream.client.requestProgress();
    stream.client.requestProgress();
    await front.clock.settle();
    expect([front.sent.slice(1), stream.take()]).toEqual([["progress", "progress"], []]);
    front.etcd({ 2: -1 }, 10);
    await front.clock.settle();
    expect(stream.take()).toEqual(["-1: progress at 10"]);
    expect(front.sent.slice(3)).toEqual(["progress"]);
  });

  test("of etcd's watches is not below the events that wait for the client", async () => {
    const front = new FakeFront();
    const stream = front.stream();
    await stream.create({ 1: "/k" });
    front.etcd({ 2: 1, 3: true }, 10);
    stream.take();
    stream.acceptsAtOnce = false;
    stream.client.requestProgress();
    front.etcdEvents(1, [11]);
    front.etcdEvents(1, [12]);
    front.etcd({ 2: -1 }, 12);
    await front.clock.settle();
    expect(stream.take()).toEqual(["0: PUT /k@11 at 11"]);
    while (stream.call.outstanding) stream.accept();
    expect(stream.take()).toEqual(["0: PUT /k@12 at 12", "-1: progress at 12"]);
  });

  test("of another watch-fanout needs no question to etcd, if the revision that clients know of will do", async () => {
    const front = new FakeFront();
    const stream = await withWatches(front, { [leftOutKeyHeader]: "" });
    const { a } = front.caches;
    const ask = async (): Promise<void> => {
      stream.client.requestProgress();
      await front.clock.settle();
    };
    await ask();
    // It has that, and asks again: for a newer one.
    await ask();
    expect(a.asked).toEqual([10, "current"]);
    front.service.reported(12);
    for (const cache of [a, front.caches.b]) cache.revision = 12;
    await ask();
    await ask();
    expect(a.asked.slice(2)).toEqual([12, "current"]);
    expect(stream.take()).toEqual([
      ...["-1: progress at 10", "-1: progress at 10", "-1: progress at 12", "-1: progress at 12"],
    ]);
  });
});

describe("Progress at intervals", () => {
  /** Watches of /a/x, /a/y and /b/z that ask for progress, and one of /a/x that does not. */
  async function withNotified(front: FakeFront): Promise<FakeStream> {
    const stream = front.stream();
    await stream.create(
      ...[{ 1: "/a/x", 4: true }, { 1: "/a/y", 4: true }, { 1: "/b/z", 4: true }, { 1: "/a/x" }],
    );
    stream.take();
    return stream;
  }

  test("comes to the watches that asked for it and had no events since, of the caches' revision", async () => {
    const front = new FakeFront();
    const stream = await withNotified(front);
    await front.clock.elapse(notifyMs - 1);
    expect([front.caches.a.asked, stream.take()]).toEqual([[], []]);
    await front.clock.elapse(1);
    expect(front.caches.a.asked).toEqual(["current"]);
    expect(stream.take()).toEqual(["0: progress at 10", "1: progress at 10", "2: progress at 10"]);
    front.caches.a.put("x");
    front.caches.b.revision = 11;
    stream.take();
    await front.clock.elapse(notifyMs);
    expect(stream.take()).toEqual(["1: progress at 11", "2: progress at 11"]);
    await front.clock.elapse(notifyMs);
    expect(stream.take()).toEqual(["0: progress at 11", "1: progress at 11", "2: progress at 11"]);
  });

  test("is not below what clients knew of when the round began", async () => {
    const front = new FakeFront();
    const stream = await withNotified(front);
    front.service.reported(12);
    front.caches.a.revision = 12;
    await front.clock.elapse(notifyMs);
    expect(stream.take()).toEqual(["0: progress at 12", "1: progress at 12"]);
    front.caches.b.revision = 13;
    await front.clock.elapse(notifyMs);
    expect(stream.take().at(-1)).toBe("2: progress at 13");
  });

  test("is not kept for a client that has not accepted what it was sent before", async () => {
    const front = new FakeFront();
    const stream = await withNotified(front);
    stream.acceptsAtOnce = false;
    await front.clock.elapse(notifyMs);
    front.caches.a.revision = 20;
    front.caches.b.revision = 20;
    await front.clock.elapse(notifyMs);
    while (stream.call.outstanding) stream.accept();
    // Each is made when it is sent.
    expect(stream.take()).toEqual(["0: progress at 10", "1: progress at 20", "2: progress at 20"]);
    await front.clock.elapse(notifyMs);
    while (stream.call.outstanding) stream.accept();
    expect(stream.take().length).toBe(3);
  });

  test("of a watch that is canceled, or gets events meanwhile, is left out", async () => {
    const front = new FakeFront();
    const stream = await withNotified(front);
    stream.acceptsAtOnce = false;
    await front.clock.elapse(notifyMs);
    stream.client.cancel(1);
    front.caches.b.put("z");
    while (stream.call.outstanding) stream.accept();
    expect(stream.take()).toEqual([
      ...["0: progress at 10", "1: canceled at 10", "2: PUT /b/z@11 at 11"],
    ]);
  });

  test("that waits for the client is not sent behind events that are still to come", async () => {
    const front = new FakeFront();
    const stream = await withNotified(front);
    stream.acceptsAtOnce = false;
    await front.clock.elapse(notifyMs);
    front.caches.a.put("y");
    front.caches.b.put("z");
    while (stream.call.outstanding) stream.accept();
    expect(stream.take()).toEqual([
      ...["0: progress at 10", "1: PUT /a/y@11 at 11", "2: PUT /b/z@11 at 11"],
    ]);
  });

  test("counts as sent where etcd continues the watch", async () => {
    const front = new FakeFront();
    const stream = await withNotified(front);
    front.caches.a.revision = 20;
    await front.clock.elapse(notifyMs);
    front.caches.a.oldestRevision = 25;
    front.caches.a.watchers[0]?.fail(failure("SLOW_CONSUMER"));
    expect([front.sent, stream.take()[0]]).toEqual([
      ["create /a/x 1 from 21"],
      "0: progress at 20",
    ]);
  });

  test("is etcd's to send for the watches that etcd serves", async () => {
    const front = new FakeFront();
    const stream = front.stream();
    await stream.create({ 1: "/k", 4: true });
    front.etcd({ 2: 1, 3: true }, 10);
    front.etcd({ 2: -1 }, 10);
    stream.take();
    await front.clock.elapse(notifyMs);
    expect(stream.take()).toEqual([]);
    front.etcd({ 2: 1 }, 15);
    expect(stream.take()).toEqual(["0: progress at 15"]);
  });

  test("ends with the stream", async () => {
    const front = new FakeFront();
    const stream = await withNotified(front);
    stream.call.drain();
    expect(front.clock.pendingTimers).toBe(0);
  });
});
