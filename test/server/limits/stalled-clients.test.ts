import { constants } from "node:http2";
import { status } from "@grpc/grpc-js";
import { describe, expect, test } from "vitest";
import { WatchBatch, WatchEvent } from "../../../src/model/event.ts";
import { StoredObject } from "../../../src/model/object.ts";
import { listWatchService } from "../../../src/wire/services.ts";
import { RawConnection } from "../http2/raw-connection.ts";
import { ScriptedResource, type ScriptedStream } from "../scripted-resource.ts";
import { serve, serveThings } from "../served.ts";
import { ManualTimers } from "./manual-timers.ts";

const resource = "things";
const { Watch, List } = listWatchService;
const things = Watch.requestSerialize({ resource });

/** A batch with one frame that is larger than any window of the tests. */
function largeBatch(revision: number): WatchBatch {
  const object = new StoredObject("k", Buffer.alloc(100_000), 1, revision, 1, 0n);
  return new WatchBatch(revision, [new WatchEvent("MODIFIED", object, undefined)]);
}

/** A scripted resource, and a client that accepts only its flow control window of a watch on it: part of a message. */
async function stalledWatch(headers: Record<string, string> = {}) {
  const scripted = new ScriptedResource();
  const clock = new ManualTimers();
  const served = await serve(new Map([[resource, scripted]]), clock);
  const raw = new RawConnection(served.server.port, 10);
  const call = raw.call(Watch.path, things, headers);
  const stream = await scripted.watched(0);
  return { ...served, scripted, clock, raw, call, stream };
}

/** Resolves when the server has read something from the stream. */
async function untilRead(stream: ScriptedStream): Promise<void> {
  while (stream.unread > 0) await new Promise((resolve) => setImmediate(resolve));
}

describe("A client that closes its flow control window", () => {
  test("delays only itself: one frame is outstanding, and no further batch is read", async () => {
    const { stream, recorder } = await stalledWatch();
    stream.give(largeBatch(5));
    stream.give(largeBatch(6), largeBatch(7));
    expect(stream.unread).toBe(2);
    expect(recorder.sentMessages).toBe(1);
  });

  test("gets the pending frames in order when it reads again", async () => {
    const { stream, call, raw } = await stalledWatch();
    stream.give(largeBatch(5), largeBatch(6));
    call.drain();
    raw.session.settings({ initialWindowSize: 1_000_000 });
    await untilRead(stream);
    stream.fail("DRAINING");
    expect((await call.ended).code).toBe(status.UNAVAILABLE);
  });

  test("gets the status if it reads within a second, and is reset otherwise", async () => {
    for (const waits of [false, true]) {
      const { stream, call, raw, clock, recorder } = await stalledWatch();
      stream.give(largeBatch(5));
      stream.abandon("SLOW_CONSUMER");
      expect(stream.closed).toBe(true);
      clock.advance(999);
      if (waits) {
        clock.advance(1);
        expect(await call.ended).toMatchObject({
          code: undefined,
          reset: constants.NGHTTP2_ENHANCE_YOUR_CALM,
        });
      } else {
        raw.session.settings({ initialWindowSize: 1_000_000 });
        call.drain();
        expect((await call.ended).code).toBe(status.RESOURCE_EXHAUSTED);
      }
      await recorder.untilEnded(1);
      expect(recorder.calls).toEqual([
        { method: "watchfanout.v1.ListWatchService/Watch", code: "RESOURCE_EXHAUSTED" },
      ]);
    }
  });

  test("is ended after a minute even if the watch itself has no stall timeout", async () => {
    const { stream, call, clock, server } = await stalledWatch();
    stream.give(largeBatch(5));
    clock.advance(59_000);
    expect(stream.closed).toBe(false);
    clock.advance(10_000);
    expect(stream.closed).toBe(true);
    expect(server.openStreams).toBe(0);
    clock.advance(1_000);
    expect((await call.ended).reset).toBe(constants.NGHTTP2_ENHANCE_YOUR_CALM);
  });

  test("is not ended while it accepts a frame within each timeout", async () => {
    const { stream, clock, call, raw } = await stalledWatch();
    call.drain();
    raw.session.settings({ initialWindowSize: 10_000_000 });
    stream.give(largeBatch(5));
    for (let revision = 6; revision < 12; revision++) {
      stream.give(largeBatch(revision));
      await untilRead(stream); // The one before has been accepted.
      clock.advance(40_000);
    }
    expect(stream.closed).toBe(false);
    call.cancel();
  });

  test("sees its deadline as a reset", async () => {
    const { stream, call, clock } = await stalledWatch({ "grpc-timeout": "1H" });
    stream.give(largeBatch(5));
    clock.advance(3_600_000);
    expect(stream.closed).toBe(true);
    clock.advance(1_000);
    expect((await call.ended).reset).toBe(constants.NGHTTP2_ENHANCE_YOUR_CALM);
  });

  test("is cut off at the end of the shutdown timeout", async () => {
    const { stream, call, clock, server } = await stalledWatch();
    stream.give(largeBatch(5));
    const drained = server.drain(5_000);
    clock.advance(5_000);
    await drained;
    await call.ended;
    expect(stream.closed).toBe(true);
  });

  test("does not retain a unary response indefinitely", async () => {
    const { storage, client, clock, server } = await serveThings();
    await storage.put({ key: "a", value: Buffer.alloc(100_000) });
    const raw = new RawConnection(server.port, 1_000);
    const call = raw.call(List.path, List.requestSerialize({ resource }));
    await call.answered;
    clock.advance(60_000);
    expect((await call.ended).reset).toBe(constants.NGHTTP2_ENHANCE_YOUR_CALM);
    await client.list({ resource });
  });
});

describe("A watch of a Cacher whose client accepts nothing", () => {
  test("is ended by the stall timeout, and releases everything", async () => {
    const { storage, client, cacher, clock, server } = await serveThings();
    const raw = new RawConnection(server.port, 1_000);
    const call = raw.call(Watch.path, things);
    await call.answered;
    for (let i = 0; i < 5; i++) {
      await storage.put({ key: "a", value: Buffer.alloc(100_000) });
      await client.list({ resource });
    }
    await clock.elapse(70_000);
    await client.list({ resource });
    clock.advance(1_000);
    expect((await call.ended).reset).toBe(constants.NGHTTP2_ENHANCE_YOUR_CALM);
    expect(cacher.stats().watchers).toMatchObject({ live: 0, stalled: 0, "catching up": 0 });
    expect(server.openStreams).toBe(0);
  });
});

describe("A client that disconnects", () => {
  test.each(["cancels", "closes its connection", "drops its connection"])(
    "has its watch closed when it %s",
    async (how) => {
      const { stream, call, raw, server } = await stalledWatch();
      stream.give(largeBatch(5), largeBatch(6));
      if (how === "cancels") call.cancel();
      else if (how === "closes its connection") raw.session.destroy();
      else raw.drop();
      await stream.whenClosed;
      expect(server.openStreams).toBe(0);
    },
  );

  test("has its reads aborted", async () => {
    const scripted = new ScriptedResource();
    const { server, recorder } = await serve(new Map([[resource, scripted]]), new ManualTimers());
    const asked = new Promise<AbortSignal | undefined>((resolve) => {
      scripted.answer = (signal) => {
        resolve(signal);
        return new Promise((_resolve, reject) => {
          signal?.addEventListener("abort", () => reject(signal.reason));
        });
      };
    });
    const call = new RawConnection(server.port).call(
      List.path,
      List.requestSerialize({ resource }),
    );
    const signal = await asked;
    expect(signal?.aborted).toBe(false);
    call.cancel();
    await recorder.untilEnded(1);
    expect(signal?.aborted).toBe(true);
    expect(recorder.logged).toEqual([]);
  });

  test("in the middle of its request has no effect", async () => {
    const { server, recorder, client } = await serveThings();
    const raw = new RawConnection(server.port);
    const half = raw.open(Watch.path);
    half.stream.write(Buffer.from([0, 0, 0]));
    await client.list({ resource });
    half.cancel();
    await recorder.untilEnded(2);
    // Either the end of the incomplete request or the cancel arrives first.
    expect(["CANCELLED", "UNIMPLEMENTED"]).toContain(recorder.calls.at(-1)?.code);
    expect(server.openStreams).toBe(0);
    expect(recorder.sentMessages).toBe(1);
  });
});
