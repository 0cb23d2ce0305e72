import { setImmediate as nextTurn } from "node:timers/promises";
import { status } from "@grpc/grpc-js";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { turnMs } from "../../../src/base/event-loop-turns.ts";
import { draining } from "../../../src/cacher/request/errors.ts";
import { StreamOpenings } from "../../../src/server/calls/stream-openings.ts";
import { Http2Call } from "../../../src/server/http2/http2-call.ts";
import { SubscribeStream } from "../../../src/server/services/subscribe/subscribe-stream.ts";
import { BareGrpc } from "../../foreign/bare-grpc.ts";
import { encode, Message } from "../../foreign/protobuf.ts";
import { framed, RawConnection } from "../http2/raw-connection.ts";
import { ManualTimers } from "../limits/manual-timers.ts";
import { clientAs } from "../rights/callers.ts";
import { serveGuarded } from "../rights/guarded.ts";
import { type Served, serve, serveThings } from "../served.ts";
import type { Subscribing } from "../subscribing.ts";

const resource = "things";
const path = "/watchfanout.v1.ListWatchService/Subscribe";
const tight = { minBufferBatches: 1, maxBufferBatches: 2 };

/** Writes, and resolves to the revision, once a watch of the stream has it. */
async function write({ storage }: Served, key: string, value: string = ""): Promise<number> {
  return (await storage.put({ key, value: Buffer.from(value) })).revision;
}

/** A stream with watches of all objects, with these ids, all of which have begun. */
async function subscribed(served: Served, ...ids: readonly number[]): Promise<Subscribing> {
  const stream = served.client.subscribe();
  for (const id of ids) {
    stream.add(id, { resource });
    await stream.watchOf(id);
  }
  return stream;
}

/** A clock to read which takes a quarter of a time slice. */
class BusyTimers extends ManualTimers {
  #spent = 0;

  override now(): number {
    this.#spent += turnMs / 4;
    return super.now() + this.#spent;
  }
}

/** A client on a connection of its own, with this flow control window, in bytes. */
function bareClient({ server }: Served, window?: number): BareGrpc {
  const grpc = new BareGrpc(`http://127.0.0.1:${server.port}`, window);
  onTestFinished(() => grpc.close());
  return grpc;
}

/** Adds a watch of all objects. */
function addRequest(id: number): Buffer {
  return encode({ 1: encode({ 1: id, 2: encode({ 1: resource }) }) });
}

test("What one event has for many watches of a stream is written together.", async () => {
  const served = await serveThings();
  const ids = Array.from({ length: 100 }, (_, i) => i + 1);
  const stream = await subscribed(served, ...ids);
  const sent = (["sendAtOnce", "send", "sendParts"] as const).map((name) =>
    vi.spyOn(Http2Call.prototype, name),
  );
  onTestFinished(() => sent.forEach((spy) => void spy.mockRestore()));
  const revision = await write(served, "a", "x");
  for (const id of ids) expect(await stream.eventsOf(id, revision)).toHaveLength(1);
  const taken = sent.flatMap(({ mock }) => mock.results.filter(({ value }) => value !== false));
  expect(taken).toHaveLength(1);
});

describe("A watch of a Subscribe stream", () => {
  test("counts as a stream of its caller, and one above the limit is refused alone", async () => {
    const served = await serveThings({ server: { limits: { maxStreamsPerIdentity: 3 } } });
    const stream = await subscribed(served, 1, 2);
    expect(served.server.openStreams).toBe(3);
    stream.add(3, { resource });
    expect(await stream.endOf(3)).toMatchObject({
      reason: "TOO_MANY_STREAMS",
      metadata: { limit_name: "max-streams-per-identity", limit: "3" },
    });
    stream.remove(1);
    await stream.endOf(1);
    stream.add(3, { resource });
    await stream.watchOf(3);
    const revision = await write(served, "a");
    for (const id of [2, 3]) expect(await stream.eventsOf(id, revision)).toHaveLength(1);
  });

  test("makes room before its stream does", async () => {
    const served = await serveThings({ server: { limits: { maxStreams: 4 } } });
    const stream = await subscribed(served, 1, 2, 3);
    const grpc = bareClient(served);
    const other = grpc.call("/watchfanout.v1.ListWatchService/Watch", encode({ 1: resource }));
    await other[Symbol.asyncIterator]().next();
    expect(await stream.endOf(1)).toMatchObject({ reason: "TOO_MANY_STREAMS" });
    const revision = await write(served, "a");
    expect(await stream.eventsOf(2, revision)).toHaveLength(1);
  });

  test("is one of 10,000 at most", async () => {
    const served = await serveThings();
    const call = bareClient(served).open(path);
    for (let id = 1; id <= 10_001; id++) call.send(addRequest(id));
    for await (const response of call) {
      const message = new Message(response);
      if (message.number(1) < 10_001) continue;
      const ended = new Message(message.bytes(3));
      expect(ended.number(1)).toBe(status.RESOURCE_EXHAUSTED);
      expect(ended.text(2)).toMatch(/10000 watches, the maximum/);
      break;
    }
    expect(served.server.openStreams).toBe(10_001);
  });

  test("is one of as many as the operator allows on a stream", async () => {
    const served = await serveThings({ server: { limits: { maxSubscribeWatches: 2 } } });
    const stream = await subscribed(served, 1, 2);
    stream.add(3, { resource });
    expect(await stream.endOf(3)).toMatchObject({
      reason: "TOO_MANY_STREAMS",
      metadata: { limit_name: "max-subscribe-watches", limit: "2" },
    });
    await subscribed(served, 1, 2);
  });

  test("is not opened when its stream has ended since its turn began", async () => {
    const served = await serveThings();
    const opened = vi.spyOn(SubscribeStream.prototype, "open");
    const { add: original } = StreamOpenings.prototype;
    const added = vi.spyOn(StreamOpenings.prototype, "add");
    onTestFinished(() => [opened, added].forEach((spy) => void spy.mockRestore()));
    added.mockImplementation(function (this: StreamOpenings, call, bytes, open) {
      original.call(this, call, bytes, () => {
        open();
        // As for the memory of another stream that was opened in the same turn.
        (opened.mock.contexts[0] as SubscribeStream).endBecause(draining());
      });
    });
    const stream = served.client.subscribe();
    stream.add(1, { resource });
    expect((await stream.status).code).toBe(status.UNAVAILABLE);
    expect([served.server.openStreams, served.cacher.stats().watchers]).toMatchObject([
      0,
      { live: 0, starting: 0 },
    ]);
  });

  test("whose selector takes too much memory is ended alone", async () => {
    const limits = { maxRetainedRequestBytesPerConnection: 8 * 1024 };
    const served = await serveThings({ server: { limits } });
    const stream = await subscribed(served, 1);
    stream.add(2, { resource, prefix: "x".repeat(3 * 1024) });
    await stream.watchOf(2);
    stream.add(3, { resource, prefix: "y".repeat(6 * 1024) });
    await expect.poll(() => served.server.openStreams).toBe(3);
    const revision = await write(served, "a");
    expect(await stream.eventsOf(1, revision)).toHaveLength(1);
    expect((await stream.nextOf(3)).ended ?? (await stream.nextOf(3)).ended).toMatchObject({
      code: status.RESOURCE_EXHAUSTED,
    });
  });

  test("that gets no credit for the stall timeout is ended alone, with its resume point", async () => {
    const served = await serveThings({ cacher: { watchers: tight } });
    const stream = await subscribed(served, 1);
    stream.add(2, { resource }, { messages: 2 });
    await stream.watchOf(2);
    const first = await write(served, "a");
    expect(await stream.eventsOf(2, first)).toHaveLength(1);
    for (let i = 0; i < 80; i++) {
      const revision = await write(served, "a", String(i));
      await stream.eventsOf(1, revision);
      served.clock.advance(1_000);
      await nextTurn();
    }
    expect(await stream.endOf(2)).toMatchObject({
      reason: "SLOW_CONSUMER",
      metadata: { resume_revision: String(first) },
    });
    expect(served.cacher.stats().watchers.live).toBe(1);
  });

  test("without credit is ended when it holds most of what waits on its stream", async () => {
    const limits = { maxUnsentBytesPerConnection: 64 * 1024 };
    const served = await serveThings({ server: { limits } });
    const stream = await subscribed(served, 1);
    for (const [id, prefix] of [
      [2, "large/"],
      [3, "small/"],
    ] as const) {
      stream.add(id, { resource, prefix }, { messages: 2 });
      await stream.watchOf(id);
    }
    for (const [key, bytes] of [
      ["large/", 48 * 1024],
      ["small/", 24 * 1024],
    ] as const) {
      for (let i = 0; i < 2; i++) {
        const revision = await write(served, key, "x".repeat(bytes));
        await stream.eventsOf(1, revision);
      }
    }
    served.clock.advance(1_000);
    await stream.watchOf(2);
    expect(await stream.endOf(2)).toMatchObject({ reason: "SLOW_CONSUMER" });
    stream.grant(3, { messages: 10 });
    await stream.watchOf(3);
    await stream.watchOf(3);
    expect(served.cacher.stats().watchers.live).toBe(2);
  });

  test("without credit is ended with as many others as are needed to hold less", async () => {
    const limits = { maxUnsentBytesPerConnection: 64 * 1024 };
    const served = await serveThings({ server: { limits } });
    const stream = await subscribed(served, 1);
    const ids = [2, 3, 4, 5, 6];
    for (const id of ids) {
      stream.add(id, { resource, prefix: "a" }, { messages: 2 });
      await stream.watchOf(id);
    }
    const first = await write(served, "a");
    for (const id of ids) await stream.eventsOf(id, first);
    await write(served, "a", "x".repeat(30 * 1024));
    await expect.poll(() => served.cacher.stats().buffers.batches).toBe(ids.length);
    served.clock.advance(1_000);
    for (const id of [2, 3, 4]) {
      expect(await stream.endOf(id)).toMatchObject({ reason: "SLOW_CONSUMER" });
    }
    stream.grant(5, { messages: 1 });
    expect((await stream.watchOf(5)).events).toHaveLength(1);
  });

  test("that holds most of a stream whose client accepts nothing is ended for others", async () => {
    const served = await serveThings({ server: { limits: { maxUnsentBytes: 200 * 1024 } } });
    const silent = bareClient(served, 16 * 1024).open(path);
    for (const [i, prefix] of ["large/", "small/"].entries()) {
      silent.send(encode({ 1: encode({ 1: i + 1, 2: encode({ 1: resource, 3: prefix }) }) }));
    }
    await expect.poll(() => served.cacher.stats().watchers.live).toBe(2);
    // It is sent in part.
    await write(served, "large/a", "x".repeat(100 * 1024));
    await expect.poll(() => served.server.stats().unsent.bytes).toBeGreaterThan(90 * 1024);
    await write(served, "small/a");
    for (let i = 0; i < 3; i++) {
      await write(served, "large/a", "x".repeat(40 * 1024));
      await expect.poll(() => served.cacher.stats().buffers.batches).toBe(2 + i);
    }
    for (let i = 0; i < 3; i++) {
      served.clock.advance(1_000);
      await nextTurn();
    }
    await expect.poll(() => served.server.openStreams).toBe(2);
    expect(served.cacher.stats().buffers.batches).toBe(1);
  });

  test("whose response exceeds the memory for all is ended alone, and does not send it", async () => {
    const served = await serveThings({ server: { limits: { maxUnsentBytes: 64 * 1024 } } });
    const stream = served.client.subscribe();
    for (const [id, prefix] of [
      [1, "small/"],
      [2, "large/"],
    ] as const) {
      stream.add(id, { resource, prefix });
      await stream.watchOf(id);
    }
    const first = await write(served, "large/a");
    expect(await stream.eventsOf(2, first)).toHaveLength(1);
    await write(served, "large/a", "x".repeat(100 * 1024));
    expect(await stream.endOf(2)).toMatchObject({
      ...{ reason: "SLOW_CONSUMER", metadata: { resume_revision: String(first) } },
    });
    const revision = await write(served, "small/a");
    expect(await stream.eventsOf(1, revision)).toHaveLength(1);
  });

  test("needs the right of its own, and ends alone when that is lost", async () => {
    const rules = (...resources: readonly string[]): string =>
      `roles: [{ name: read, rules: [{ resources: [${resources.join(", ")}], prefixes: ["*"], verbs: [watch] }] }]\n` +
      "bindings: [{ role: read, subjects: [app] }]";
    const guarded = await serveGuarded(rules("pods"), ["pods", "secrets"], "reads");
    const stream = clientAs(guarded.server, "app").subscribe();
    stream.add(1, { resource: "pods" });
    await stream.watchOf(1);
    stream.add(2, { resource: "secrets" });
    expect(await stream.endOf(2)).toMatchObject({ reason: "PERMISSION_DENIED" });
    guarded.change(rules("pods", "secrets"));
    stream.add(2, { resource: "secrets" });
    await stream.watchOf(2);
    guarded.change(rules("secrets"));
    expect(await stream.endOf(1)).toMatchObject({
      ...{ reason: "PERMISSION_DENIED", metadata: { resume_revision: expect.anything() } },
    });
    await guarded.put("secrets", "a");
    expect((await stream.watchOf(2)).events).toHaveLength(1);
    const audited = guarded.audited.map(({ method, access, allowed, code }) => [
      ...[method.split("/")[1], access?.resource, allowed, code],
    ]);
    expect(audited).toEqual([
      ["Subscribe", "pods", true, undefined],
      ["Subscribe", "secrets", false, "PERMISSION_DENIED"],
      ["Subscribe", "secrets", true, undefined],
    ]);
  });
});

describe("A Subscribe stream", () => {
  test("ends with DRAINING behind its watches, which have their resume points", async () => {
    const served = await serveThings();
    const stream = await subscribed(served, 1);
    stream.add(2, { resource }, { messages: 1 });
    await stream.watchOf(2);
    const revision = await write(served, "a");
    await stream.eventsOf(1, revision);
    void served.server.drain(10_000);
    for (const id of [2, 1]) {
      let last = await stream.nextOf(id);
      while (!last.ended) last = await stream.nextOf(id);
      expect(last.ended).toMatchObject({ code: status.UNAVAILABLE });
    }
    const { code, details } = await stream.status;
    expect(code).toBe(status.UNAVAILABLE);
    expect(details).toMatch(/shutting down/);
  });

  test("ends with its watches at the maximum age", async () => {
    const served = await serveThings({ server: { limits: { maxStreamAgeMs: 60_000 } } });
    const stream = await subscribed(served, 1);
    await served.clock.elapse(65_000);
    let last = await stream.nextOf(1);
    while (!last.ended) last = await stream.nextOf(1);
    expect(last.ended).toMatchObject({ code: status.UNAVAILABLE });
    expect((await stream.status).code).toBe(status.UNAVAILABLE);
  });

  test("whose client does not read delays no other, and is ended after the stall timeout", async () => {
    const served = await serveThings({ cacher: { watchers: tight } });
    const silent = bareClient(served, 16 * 1024).open(path);
    for (const id of [1, 2, 3]) silent.send(addRequest(id));
    const stream = await subscribed(served, 1);
    await expect.poll(() => served.server.openStreams).toBe(6);
    for (let i = 0; i < 80; i++) {
      const revision = await write(served, "a", "x".repeat(4 * 1024));
      expect(await stream.eventsOf(1, revision)).toHaveLength(1);
      served.clock.advance(1_000);
      await nextTurn();
    }
    await expect.poll(() => served.server.openStreams).toBe(2);
    expect(served.cacher.stats().watchers.live).toBe(1);
  });

  test("reads no further requests while many answers are not accepted", async () => {
    const served = await serveThings();
    const silent = bareClient(served, 1_024).open(path);
    // Each is refused, with some 300 bytes.
    const refused = encode({ 2: encode({ 1: 5 }) });
    let sent = 0;
    for (; sent < 2_500; sent++) silent.send(refused);
    const other = await subscribed(served, 1);
    const revision = await write(served, "a");
    expect(await other.eventsOf(1, revision)).toHaveLength(1);
    for (let i = 0; i < 200; i++) await nextTurn();
    expect(served.recorder.sentMessages).toBeLessThan(1_500);
    let received = 0;
    for await (const _ of silent) if (++received === sent) break;
    expect(served.recorder.sentMessages).toBeGreaterThan(sent);
  });

  test("handles many requests that arrive at once in several turns of the event loop", async () => {
    const { cacher } = await serveThings();
    const { server } = await serve(new Map([[resource, cacher]]), new BusyTimers());
    const call = new RawConnection(server.port).open(path);
    call.drain();
    const ids = Array.from({ length: 200 }, (_, i) => i + 1);
    call.stream.write(Buffer.concat(ids.map((id) => framed(addRequest(id)))));
    await expect.poll(() => server.openStreams).toBe(1 + ids.length);
    call.stream.write(Buffer.concat(ids.map((id) => framed(encode({ 2: encode({ 1: id }) })))));
    let most = 0;
    while (server.openStreams > 1) {
      const before = server.openStreams;
      await nextTurn();
      most = Math.max(most, before - server.openStreams);
    }
    expect(most).toBeLessThan(16);
  });

  test("answers requests for progress that come together with one of their own", async () => {
    const served = await serveThings();
    const stream = await subscribed(served, 1);
    // Without credit it keeps the first request from being answered.
    stream.add(2, { resource }, { messages: 1 });
    await stream.watchOf(2);
    await stream.eventsOf(1, await write(served, "a"));
    for (let tag = 1; tag <= 100; tag++) {
      stream.requestProgress(0, tag);
      stream.requestProgress(2);
    }
    stream.grant(2, { messages: 1_000 });
    const tags = [1, 2].map(async () => Number((await stream.nextOf(0)).progress?.tag));
    expect(await Promise.all(tags)).toEqual([1, 100]);
    expect(stream.waitingOf(2)).toBeLessThan(5);
  });

  test("sends progress that has waited for a watch behind the end of that watch", async () => {
    const served = await serveThings();
    const stream = await subscribed(served, 1);
    stream.add(2, { resource }, { messages: 1 });
    await stream.watchOf(2);
    const revision = await write(served, "a");
    stream.requestProgress(0, 7);
    expect(await stream.eventsOf(1, revision)).toHaveLength(1);
    // Answered once the watch 1 is at a revision that it was asked about after the request of all.
    stream.requestProgress(1);
    await stream.watchOf(1);
    stream.remove(2);
    expect(await stream.next()).toMatchObject({ id: "2", response: "ended" });
    expect(await stream.next()).toMatchObject({
      progress: { revision: String(revision), tag: "7" },
    });
  });

  test("refuses a request for progress that waited until all watches had ended", async () => {
    const served = await serveThings();
    const stream = served.client.subscribe();
    // Without credit it keeps the first request from being answered.
    stream.add(1, { resource }, { messages: 1 });
    await stream.watchOf(1);
    await write(served, "a");
    stream.requestProgress(0, 1);
    stream.requestProgress(0, 2);
    stream.remove(1);
    expect((await stream.nextOf(0)).progress).toMatchObject({ tag: "1" });
    expect(await stream.refusalOf(0)).toMatchObject({ reason: "UNKNOWN_WATCH" });
  });

  test("names the id that no watch can have", async () => {
    const stream = (await serveThings()).client.subscribe();
    stream.remove(-5);
    expect(await stream.refusalOf(0)).toMatchObject({ metadata: { id: "-5" } });
  });

  test("whose request is not complete in time ends", async () => {
    const served = await serveThings();
    const call = new RawConnection(served.server.port).open(path);
    call.stream.write(framed(addRequest(1)).subarray(0, 9));
    await expect.poll(() => served.server.openStreams).toBe(1);
    for (let i = 0; i < 20; i++) await nextTurn();
    served.clock.advance(60_001);
    expect((await call.drain().ended).code).toBe(status.DEADLINE_EXCEEDED);
  });
});
