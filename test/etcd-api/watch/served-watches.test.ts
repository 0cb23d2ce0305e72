import { status } from "@grpc/grpc-js";
import { describe, expect, test } from "vitest";
import { leftOutKeyHeader } from "../../../src/etcd/client/call-headers.ts";
import { compacted, duplicateWatch, stopped, tooMany } from "../../../src/etcd/wire/error-texts.ts";
import { WatchBatch } from "../../../src/model/event.ts";
import { event, object } from "../../cacher/objects.ts";
import { FakeFront, failure, putAt } from "./served-stream.ts";

describe("A create request", () => {
  test("is answered in its turn, with the cache's revision and a free id, before any event", async () => {
    const front = new FakeFront();
    const stream = front.stream();
    stream.client.create({ 1: "/a/x" });
    stream.client.create({ 1: "/a/", 2: "/a0", 7: 1 });
    stream.client.create({ 1: "/b/y" });
    await front.clock.settle();
    front.caches.a.put("x");
    expect(stream.take()).toEqual([
      ...["0: created at 10", "1: created at 10", "2: created at 10"],
      ...["0: PUT /a/x@11 at 11", "1: PUT /a/x@11 at 11"],
    ]);
    expect(stream.client.responses[0]?.header).toEqual(["7", "8", "1"]);
  });

  test("is answered behind the one before, which etcd has to answer", async () => {
    const front = new FakeFront();
    const stream = front.stream();
    await stream.create({ 1: "/elsewhere" }, { 1: "/a/x" });
    front.caches.a.put("x");
    expect(stream.take()).toEqual([]);
    expect(front.sent).toEqual(["create /elsewhere 1 from 0"]);
    front.etcd({ 2: 1, 3: true }, 20);
    await front.clock.settle();
    expect(stream.take()).toEqual(["0: created at 20", "1: created at 20"]);
    expect(front.caches.a.watchers[0]?.request).toMatchObject({
      ...{ scope: { key: "x" }, afterRevision: 11, withPrevious: false, rawKeys: true },
    });
    // The revision of the answer is that of the whole service, which the cache has not reached.
    front.caches.a.put("x");
    front.caches.a.revision = 20;
    front.caches.a.put("x");
    expect(stream.take()).toEqual(["1: PUT /a/x@21 at 21"]);
  });

  test("with the id of another watch is refused, and a later one may have that id", async () => {
    const front = new FakeFront();
    const stream = front.stream();
    await stream.create({ 1: "/a/x", 7: 5 }, { 1: "/a/y", 7: 5 }, { 1: "/a/z" });
    stream.client.cancel(5);
    await stream.create({ 1: "/a/y", 7: 5 });
    expect(stream.take()).toEqual([
      "5: created at 10",
      `-1: created, canceled, ${duplicateWatch} at 10`,
      ...["0: created at 10", "5: canceled at 10", "5: created at 10"],
    ]);
  });

  test("from a negative revision, or beyond the bound of all watches, is refused", async () => {
    const front = new FakeFront();
    const stream = front.stream();
    await stream.create({ 1: "/a/x", 3: -1 });
    front.service.watches = 500_000;
    await stream.create({ 1: "/a/x" });
    front.service.watches--;
    await stream.create({ 1: "/a/x" });
    expect(stream.take()).toEqual([
      `-1: created, canceled, ${compacted} at 10`,
      `-1: created, canceled, ${tooMany} at 10`,
      "0: created at 10",
    ]);
  });

  test("that can't be read ends the stream", () => {
    const stream = new FakeFront().stream();
    stream.client.call.send(Buffer.of(0x0a, 0x7f));
    expect(stream.status).toMatchObject({ code: status.INTERNAL });
    expect(stream.status?.details).toContain("failed to unmarshal the received message");
  });

  test("that has come with others is answered together with them", async () => {
    const front = new FakeFront();
    const stream = front.stream();
    await stream.createTogether({ 1: "/a/x" }, { 1: "/a/y" }, { 1: "/a/z" });
    expect(stream.take()).toEqual([
      ...["0: created at 10", "1: created at 10", "2: created at 10"],
    ]);
    expect(stream.followed).toEqual([true, true, true]);
  });

  test("that comes alone is answered at once", async () => {
    const stream = new FakeFront().stream();
    await stream.create({ 1: "/a/x" });
    await stream.create({ 1: "/a/y" });
    expect(stream.followed).toEqual([false, false]);
  });

  test("waits while 256 answers wait for the client, and is handled then", async () => {
    const front = new FakeFront();
    const stream = front.stream();
    stream.acceptsAtOnce = false;
    await stream.create(...Array.from({ length: 300 }, () => ({ 1: "/a/x" })));
    expect([front.caches.a.watchers.length, stream.isPaused]).toEqual([256, true]);
    stream.accept();
    expect([front.caches.a.watchers.length, stream.isPaused]).toEqual([258, true]);
    for (let i = 0; i < 299; i++) stream.accept();
    expect([stream.take().length, stream.isPaused]).toEqual([300, false]);
    expect(new Set(stream.client.responses.map(({ id }) => id)).size).toBe(300);
  });
});

describe("A watch", () => {
  test("from a later revision gets nothing from before it", async () => {
    const front = new FakeFront();
    const stream = front.stream();
    await stream.create({ 1: "/a/x", 3: 13 });
    for (let i = 0; i < 4; i++) front.caches.a.put("x");
    expect(front.caches.a.watchers[0]?.request.afterRevision).toBe(10);
    expect(stream.take()).toEqual([
      ...["0: created at 10", "0: PUT /a/x@13 at 13", "0: PUT /a/x@14 at 14"],
    ]);
  });

  test.each([
    ["6, of which the cache has all events", 6, [], 5],
    ["5, which was the oldest", 5, ["create /a/x 1 from 5"], undefined],
  ])("from revision %s", async (_, start, sent, after) => {
    const front = new FakeFront();
    const stream = front.stream();
    await stream.create({ 1: "/a/x", 3: start });
    expect(front.sent).toEqual(sent);
    expect(front.caches.a.watchers[0]?.request.afterRevision).toBe(after);
  });

  test("that begins at the compacted revision gets that event without its previous value, as from etcd", async () => {
    const front = new FakeFront();
    const stream = front.stream();
    front.compacted = 8;
    await stream.create({ 1: "/a/x", 3: 8, 6: true }, { 1: "/a/x", 3: 7, 6: true });
    const [first, second] = [6, 8].map((revision) => object("x", revision));
    front.caches.a.offer(9, putAt("x", 8, first), putAt("x", 9, second));
    expect(stream.take()).toEqual([
      "0: created at 10",
      ...["0: PUT /a/x@8 at 8", "0: PUT /a/x@9 after 8 at 9"],
    ]);
    // What is compacted is etcd's to refuse.
    expect(front.sent).toEqual(["create /a/x 1 from 7"]);
  });

  test("gets the kinds of events, and the previous values, that it asks for", async () => {
    const front = new FakeFront();
    const stream = front.stream();
    await stream.create({ 1: "/a/x", 5: 0 }, { 1: "/a/x", 6: true }, { 1: "/a/x" });
    front.caches.a.revision = 11;
    front.caches.a.offer(11, putAt("x", 11, object("x", 9)));
    expect(stream.take().slice(3)).toEqual([
      ...["1: PUT /a/x@11 after 9 at 11", "2: PUT /a/x@11 at 11"],
    ]);
    // The revision of what is left out counts as sent.
    stream.client.cancel(0);
    expect(stream.take()).toEqual(["0: canceled at 11"]);
  });

  test("that leaves events out reports no revision with them", async () => {
    const front = new FakeFront();
    const stream = front.stream();
    await stream.create({ 1: "/a/x", 5: 0 });
    front.caches.a.put("x");
    expect([stream.take().length, front.service.floor]).toEqual([1, 10]);
  });

  test("gets nothing once it is canceled, which an unknown one is not", async () => {
    const front = new FakeFront();
    const stream = front.stream();
    await stream.create({ 1: "/a/x" });
    stream.client.cancel(7);
    stream.acceptsAtOnce = false;
    front.caches.a.put("x");
    front.caches.a.put("x");
    stream.client.cancel(0);
    front.caches.a.put("x");
    while (stream.call.outstanding) stream.accept();
    expect(stream.take()).toEqual([
      ...["0: created at 10", "0: PUT /a/x@11 at 11", "0: canceled at 11"],
    ]);
    expect(front.caches.a.open).toEqual([]);
    expect(front.service.counts).toEqual({ watches: 0, relayed: 0 });
  });

  test("of etcd that is canceled gets nothing of what waits for the client", async () => {
    const front = new FakeFront();
    const stream = front.stream();
    await stream.create({ 1: "/k" });
    front.etcd({ 2: 1, 3: true }, 20);
    stream.acceptsAtOnce = false;
    front.etcdEvents(1, [21]);
    front.etcdEvents(1, [22]);
    stream.client.cancel(0);
    while (stream.call.outstanding) stream.accept();
    expect(stream.take()).toEqual([
      ...["0: created at 20", "0: PUT /k@21 at 21", "0: canceled at 21"],
    ]);
    expect(front.sent.at(-1)).toBe("cancel 1");
  });

  test("that begins later is canceled at the service's revision", async () => {
    const front = new FakeFront();
    const stream = front.stream();
    await stream.create({ 1: "/a/x", 3: 50 });
    stream.client.cancel(0);
    expect(stream.take()).toEqual(["0: created at 10", "0: canceled at 10"]);
  });
});

describe("The batches of several watches", () => {
  test("are sent in turn, one of each", async () => {
    const front = new FakeFront();
    const stream = front.stream();
    await stream.create({ 1: "/a/x" }, { 1: "/a/y" });
    stream.take();
    stream.acceptsAtOnce = false;
    front.caches.a.put("x");
    front.caches.a.put("x");
    front.caches.a.put("x");
    front.caches.a.put("y");
    while (stream.call.outstanding) stream.accept();
    expect(stream.take()).toEqual([
      ...["0: PUT /a/x@11 at 11", "1: PUT /a/y@14 at 14"],
      ...["0: PUT /a/x@12 at 12", "0: PUT /a/x@13 at 13"],
    ]);
    expect(front.caches.a.watchers.map(({ acceptances }) => acceptances)).toEqual([3, 1]);
  });

  test("of one round are written together, and one alone at once", async () => {
    const front = new FakeFront();
    const stream = front.stream();
    await stream.create({ 1: "/a/x" }, { 1: "/a/y" }, { 1: "/a/z" });
    stream.followed.length = 0;
    front.caches.a.put("x", "y", "z");
    front.caches.a.put("y");
    expect(stream.take().slice(-4)).toEqual([
      ...["0: PUT /a/x@11 at 11", "1: PUT /a/y@11 at 11", "2: PUT /a/z@11 at 11"],
      "1: PUT /a/y@12 at 12",
    ]);
    expect(stream.followed).toEqual([true, true, true, false]);
  });

  test("take turns with the responses of etcd", async () => {
    const front = new FakeFront();
    const stream = front.stream();
    await stream.create({ 1: "/k" });
    front.etcd({ 2: 1, 3: true }, 10);
    await stream.create({ 1: "/a/x" });
    stream.take();
    stream.acceptsAtOnce = false;
    for (const revision of [11, 12, 13]) front.etcdEvents(1, [revision]);
    front.caches.a.put("x");
    front.caches.a.put("x");
    while (stream.call.outstanding) stream.accept();
    expect(stream.take()).toEqual([
      ...["0: PUT /k@11 at 11", "1: PUT /a/x@11 at 11", "0: PUT /k@12 at 12"],
      ...["1: PUT /a/x@12 at 12", "0: PUT /k@13 at 13"],
    ]);
  });

  test("of etcd in fragments have nothing between them", async () => {
    const front = new FakeFront();
    const stream = front.stream();
    await stream.create({ 1: "/k", 8: true });
    front.etcd({ 2: 1, 3: true }, 10);
    await stream.create({ 1: "/a/x" });
    stream.take();
    stream.acceptsAtOnce = false;
    front.etcdEvents(1, [11, 11], true);
    front.caches.a.put("x");
    stream.client.create({ 1: "/a/y" });
    stream.accept();
    expect(stream.take()).toEqual(["0: fragment, PUT /k@11, PUT /k@11 at 11"]);
    front.etcdEvents(1, [11]);
    while (stream.call.outstanding) stream.accept();
    expect(stream.take()).toEqual([
      ...["0: PUT /k@11 at 11", "2: created at 11", "1: PUT /a/x@11 at 11"],
    ]);
  });

  test("wait while one in several responses is sent, whose responses all have the id", async () => {
    const front = new FakeFront();
    const stream = front.stream();
    await stream.create({ 1: "/a/", 2: "/a0", 7: 3, 8: true }, { 1: "/a/x" });
    stream.take();
    stream.acceptsAtOnce = false;
    const large = "v".repeat(1024 ** 2);
    front.caches.a.revision = 11;
    front.caches.a.offer(11, ...["w", "x", "y"].map((key) => event("ADDED", key, 11, large)));
    stream.client.create({ 1: "/a/z" });
    while (stream.call.outstanding) stream.accept();
    expect(
      stream.client.responses.slice(2).map(({ id, fragment, created }) => [id, fragment, created]),
    ).toEqual([
      ["3", true, false],
      ["3", true, false],
      ["3", false, false],
      ["1", false, true],
      ["0", false, false],
    ]);
  });
});

describe("A stream", () => {
  test("ends when the service shuts down, with what its clients resume after", async () => {
    const front = new FakeFront();
    const streams = [front.stream(), front.stream()];
    await streams[0]?.create({ 1: "/a/x" });
    streams[1]?.call.drain();
    front.caches.a.watchers[0]?.fail(failure("DRAINING"));
    expect(streams.map((stream) => stream.status)).toMatchObject([
      ...[
        { code: status.UNAVAILABLE, details: stopped },
        { code: status.UNAVAILABLE, details: stopped },
      ],
    ]);
    expect(front.service.counts.watches).toBe(0);
  });

  test("of another watch-fanout has all events in one response, with the header of the first", async () => {
    const key = Buffer.from("/a/marker").toString("base64");
    for (const metadata of [{}, { [leftOutKeyHeader]: key }]) {
      const front = new FakeFront();
      const stream = front.stream(metadata);
      await stream.create({ 1: "/a/", 2: "/a0" });
      const events = [putAt("x", 11), putAt("y", 12)];
      front.caches.a.watchers[0]?.offer(new WatchBatch(15, events));
      const responses = ["0: PUT /a/x@11 at 11", "0: PUT /a/y@12 at 15"];
      const joined = ["0: PUT /a/x@11, PUT /a/y@12 at 11"];
      expect(stream.take().slice(1)).toEqual(leftOutKeyHeader in metadata ? joined : responses);
    }
  });
});
