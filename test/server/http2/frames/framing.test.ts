import { once } from "node:events";
import { constants, type ServerHttp2Stream } from "node:http2";
import { connect, type Socket } from "node:net";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { systemClock } from "../../../../src/base/clock.ts";
import { WriteBuffers } from "../../../../src/server/http2/frames/data-frames.ts";
import { streamFramesAtOnce } from "../../../../src/server/http2/frames/frame-readers.ts";
import type { FramedConnection } from "../../../../src/server/http2/frames/framed-connection.ts";
import { listWatchService } from "../../../../src/wire/services.ts";
import { FakeClock } from "../../../fake-clock.ts";
import { patienceMs } from "../../../faults/patience.ts";
import { type Served, serveThings } from "../../served.ts";
import { FrameClient, messagesOf, type ReceivedStream } from "./frame-client.ts";
import { serveFramed } from "./framed-server.ts";

const { Watch, Get } = listWatchService;
const watchThings = Watch.requestSerialize({ resource: "things" });
const largestWindow = 2 ** 31 - 1;
const flowControlError = 3;
const protocolError = 1;

const preface = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");

function frame(type: number, flags: number, id: number, content: readonly number[]): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(content.length, 0, 3);
  head.set([type, flags], 3);
  head.writeUInt32BE(id, 5);
  return Buffer.concat([head, Buffer.from(content)]);
}

/** A watch of a client that has its own settings and windows. */
interface Watching extends Served {
  readonly frames: FrameClient;
  readonly stream: ReceivedStream;
  put(bytes: number): Promise<void>;
}

describe("The frames of responses", () => {
  /** Its first response, the bookmark, has arrived. */
  async function watching(initialWindow?: number): Promise<Watching> {
    const served = await serveThings();
    const frames = await FrameClient.to(served.server.port);
    frames.greet(initialWindow);
    const stream = frames.call(Watch.path, watchThings);
    const put = async (bytes: number): Promise<void> => {
      await served.storage.put({ key: "a", value: Buffer.alloc(bytes) });
    };
    await frames.until(() => messagesOf(stream).length === 1);
    return { ...served, frames, stream, put };
  }

  test.each([
    ["overflows the window of the connection", 0, largestWindow, flowControlError],
    ["overflows the window of a stream", 1, largestWindow, flowControlError],
    ["extends a window by 0", 1, 0, protocolError],
    ["extends the window of a stream that does not exist yet", 99, 1, protocolError],
  ])("a client that %s gets a GOAWAY, and no event more", async (_what, id, bytes, code) => {
    const { frames, stream, put, server } = await watching();
    frames.grant(id, bytes);
    await frames.until(() => frames.goAwayCode !== undefined);
    expect(frames.goAwayCode).toBe(code);
    await put(10);
    await frames.until(() => frames.isClosed);
    expect(messagesOf(stream)).toHaveLength(1);
    while (server.openStreams > 0) await new Promise((resolve) => setImmediate(resolve));
  });

  test("settings that make a window negative stop its stream, until it is extended above 0", async () => {
    const { frames, stream, put } = await watching();
    await put(50_000);
    await frames.until(() => messagesOf(stream).length === 2);
    frames.settings(0);
    frames.ping();
    await frames.until(() => frames.pingsAnswered === 1);
    expect(stream.window).toBeLessThan(-50_000);
    await put(10);
    frames.grant(stream.id, -stream.window);
    frames.ping();
    await frames.until(() => frames.pingsAnswered === 2);
    expect(messagesOf(stream)).toHaveLength(2);
    frames.grant(stream.id, 1_000);
    await frames.until(() => messagesOf(stream).length === 3);
    expect(frames.violations).toEqual([]);
  });

  test("a message may arrive a byte at a time", async () => {
    const { frames, stream, put } = await watching(100);
    frames.settings(1);
    frames.ping();
    await frames.until(() => frames.pingsAnswered === 1);
    await put(20);
    while (messagesOf(stream).length < 2) {
      const { length } = stream.bytes;
      frames.grant(stream.id, 1);
      // The first bytes may be within what is granted already.
      if (stream.window > 0) await frames.until(() => stream.bytes.length > length);
    }
    expect(frames.violations).toEqual([]);
  });

  test("the trailers come behind a message that waits for its window", async () => {
    const { frames, storage } = await watching();
    await storage.put({ key: "large", value: Buffer.alloc(100_000) });
    const get = frames.call(Get.path, Get.requestSerialize({ resource: "things", key: "large" }));
    await frames.until(() => frames.window <= 0 || get.window <= 0);
    expect(get.end).toBeUndefined();
    frames.grant(0, 200_000);
    frames.grant(get.id, 200_000);
    await frames.until(() => get.end !== undefined);
    expect(get.end).toBe("ended");
    expect(messagesOf(get)).toHaveLength(1);
    expect(get.frames.at(-1)).toBe("T");
    expect(frames.violations).toEqual([]);
  });

  test.each([
    ["has from the start", 0, undefined],
    ["sets before the response", undefined, 0],
  ])(
    "the trailers reach a client with an initial window of 0, which it %s",
    async (_, first, then) => {
      const served = await serveThings();
      await served.storage.put({ key: "a", value: Buffer.alloc(300) });
      const frames = await FrameClient.to(served.server.port);
      frames.greet(first);
      if (then !== undefined) {
        frames.settings(then);
        frames.ping();
        await frames.until(() => frames.pingsAnswered === 1);
      }
      const get = frames.call(Get.path, Get.requestSerialize({ resource: "things", key: "a" }));
      frames.grant(get.id, 1_000);
      await frames.until(() => get.end !== undefined);
      expect([get.end, get.frames.at(-1), messagesOf(get).length]).toEqual(["ended", "T", 1]);
      expect(frames.violations).toEqual([]);
    },
  );

  test("frames have at most the size that the client permits", async () => {
    const { frames, stream, put } = await watching(2 ** 20);
    frames.grant(0, 2 ** 20);
    await put(60_000);
    await frames.until(() => messagesOf(stream).length === 2);
    expect(frames.largestFrame).toBe(16_384);
    frames.settings(undefined, 20_000);
    frames.ping();
    await frames.until(() => frames.pingsAnswered === 1);
    await put(60_000);
    await frames.until(() => messagesOf(stream).length === 3);
    expect(frames.largestFrame).toBeGreaterThanOrEqual(20_000);
    expect(frames.violations).toEqual([]);
  });

  test.each([
    ["the only one", 1],
    ["several", 3],
  ])("events come ahead of the trailers of %s that ends with them", async (_, count) => {
    const { frames, stream, storage, cacher } = await watching();
    const streams = [stream];
    while (streams.length < count) streams.push(frames.call(Watch.path, watchThings));
    await frames.until(() => streams.every((each) => messagesOf(each).length === 1));
    await storage.put({ key: "a", value: Buffer.alloc(10) });
    const { revision } = await storage.put({ key: "b", value: Buffer.alloc(10) });
    while (cacher.revision < revision) await new Promise((resolve) => setImmediate(resolve));
    // Delivers what is not delivered yet, and ends the watches in the same turn of the event loop.
    cacher.drain();
    await frames.until(() => streams.every(({ end }) => end !== undefined));
    for (const each of streams) {
      const text = Buffer.concat(messagesOf(each)).toString("latin1");
      expect([text.split("\x0a\x01a").length, text.split("\x0a\x01b").length]).toEqual([2, 2]);
      expect([each.end, each.frames.at(-1)]).toEqual(["ended", "T"]);
    }
    expect(frames.violations).toEqual([]);
  });

  test("a client that closes its side of the socket loses its connection, and its watches end", async () => {
    const { frames, server } = await watching();
    frames.socket.end();
    await frames.until(() => frames.isClosed);
    while (server.openStreams > 0) await new Promise((resolve) => setImmediate(resolve));
  });

  test("a client that does not read holds one message per watch", async () => {
    const { frames, server, storage } = await watching(2 ** 30);
    frames.grant(0, 2 ** 30);
    frames.socket.pause();
    const value = Buffer.alloc(1_000_000);
    // More than the operating system holds for a socket.
    for (let i = 0; i < 20; i++) await storage.put({ key: "a", value });
    while (server.stats().unsent.bytes <= 1_000_000) {
      await new Promise((resolve) => setImmediate(resolve));
    }
    for (let turn = 0; turn < 100; turn++) await new Promise((resolve) => setImmediate(resolve));
    expect(server.stats().unsent.bytes).toBeLessThan(1_500_000);
    frames.socket.resume();
    while (server.stats().unsent.bytes > 0) await new Promise((resolve) => setImmediate(resolve));
    expect(frames.violations).toEqual([]);
  });
});

describe("A framed connection", () => {
  /** A server's connection and session, and their client, which has sent its preface. */
  async function connected(): Promise<{
    readonly framed: FramedConnection;
    readonly client: Socket;
    readonly opened: () => number;
    /** The streams of the server. */
    readonly streams: readonly ServerHttp2Stream[];
    /** What the client has received. */
    readonly received: () => Buffer;
  }> {
    const streams: ServerHttp2Stream[] = [];
    const begun = Promise.withResolvers<FramedConnection>();
    const port = await serveFramed(systemClock, (session, connection) => {
      session.on("stream", (stream) => {
        streams.push(stream);
        stream.on("error", () => {});
      });
      begun.resolve(connection);
    });
    const client = connect(port, "127.0.0.1");
    client.on("error", () => {});
    onTestFinished(() => void client.destroy());
    client.write(Buffer.concat([preface, frame(4, 0, 0, [])]));
    const framed = await begun.promise;
    // Node.js resumes after each write of its own: that of the last of them has to be over.
    const acknowledged = frame(4, 1, 0, []);
    let received = Buffer.alloc(0);
    client.on("data", (chunk: Buffer) => {
      received = Buffer.concat([received, chunk]);
    });
    await vi.waitFor(() => expect(received.includes(acknowledged)).toBe(true), patienceMs);
    await turns(10);
    return {
      ...{ framed, client, streams },
      opened: () => streams.length,
      received: () => received,
    };
  }

  const headersOf = (id: number): Buffer => frame(1, 5, id, [0x83, 0x86, 0x84, 0x41, 1, 0x61]);

  async function turns(count: number): Promise<void> {
    for (let i = 0; i < count; i++) await new Promise((resolve) => setImmediate(resolve));
  }

  test.each<[string, (framed: FramedConnection, ping: Buffer) => void]>([
    ["the next frame of Node.js", (framed, ping) => framed.write(ping)],
    [
      "the next frames of Node.js, if they are several",
      (framed, ping) => {
        framed.cork();
        framed.write(ping.subarray(0, 9));
        framed.write(ping.subarray(9));
        framed.uncork();
      },
    ],
    [
      "its end",
      (framed) => {
        framed.end();
      },
    ],
  ])("writes what its streams have accepted ahead of %s", async (what, writeNext) => {
    const { framed, client, streams, received } = await connected();
    client.write(Buffer.concat([headersOf(1), headersOf(3)]));
    await vi.waitFor(() => expect(streams).toHaveLength(2), patienceMs);
    const writers = streams.map((stream) => framed.responseOf(Number(stream.id)));
    for (const stream of streams) stream.respond({ ":status": 200 }, { waitForTrailers: true });
    await turns(10);
    const texts = ["first", "second"];
    writers.forEach((writer, i) => {
      expect(writer.writeAtOnce(Buffer.from(texts[i] ?? ""))).toBe(true);
    });
    const isOver = what === "its end" && once(client, "end");
    // As nghttp2 does, in the same turn.
    writeNext(framed, frame(6, 0, 0, [...Buffer.from("its ping")]));
    if (what !== "its end") texts.push("its ping");
    await (isOver ||
      vi.waitFor(() => expect(received().includes("its ping")).toBe(true), patienceMs));
    const at = texts.map((text) => received().indexOf(text));
    expect(at[0]).toBeGreaterThan(0);
    expect(at.toSorted((a, b) => a - b)).toEqual(at);
  });

  test("of clients that do not read hold small buffers", async () => {
    const acquired: number[] = [];
    const acquire = vi.spyOn(WriteBuffers.prototype, "acquire");
    onTestFinished(() => acquire.mockRestore());
    const { framed, client, streams } = await connected();
    client.write(Buffer.concat([headersOf(1), headersOf(3)]));
    await vi.waitFor(() => expect(streams).toHaveLength(2), patienceMs);
    for (const stream of streams) stream.respond({ ":status": 200 }, { waitForTrailers: true });
    await turns(10);
    const [writer] = streams.map((stream) => framed.responseOf(Number(stream.id)));
    writer?.writeAtOnce(Buffer.alloc(300));
    await turns(1);
    for (const { value } of acquire.mock.results) acquired.push((value as Buffer).byteLength);
    expect(acquired).toEqual([4_096]);
  });

  test("that is held passes nothing on, also if Node.js resumes it", async () => {
    const { framed, client, opened } = await connected();
    framed.hold();
    client.write(headersOf(1));
    framed.pause();
    framed.resume();
    await turns(50);
    expect(opened()).toBe(0);
    framed.release();
    await vi.waitFor(() => expect(opened()).toBe(1), patienceMs);
  });

  test("that is held as bytes arrive passes these on after the hold", async () => {
    const { framed, client, opened } = await connected();
    let received = 0;
    framed.onReceived(() => {
      if (received++ === 0) framed.hold();
    });
    client.write(headersOf(1));
    await turns(50);
    expect(opened()).toBe(0);
    await vi.waitFor(() => expect(received).toBe(1), patienceMs);
    framed.release();
    await vi.waitFor(() => expect(opened()).toBe(1), patienceMs);
  });

  test("that Node.js has paused for a blocked write is not resumed by the end of a hold", async () => {
    const { framed, client, opened } = await connected();
    framed.pause();
    framed.hold();
    framed.release();
    client.write(headersOf(1));
    await turns(50);
    expect([framed.isPaused(), opened()]).toEqual([true, 0]);
    framed.resume();
    await vi.waitFor(() => expect(opened()).toBe(1), patienceMs);
  });
});

describe("Of streams that are opened and reset in one read", () => {
  /** Streams that are opened, and reset at once, in one write. */
  const count = 500;
  const streamsResetWith = (code: number): Buffer[][] =>
    Array.from({ length: count }, (_, i) => [
      // :method POST, :scheme http, :path /, :authority a
      frame(1, 4, 2 * i + 1, [0x83, 0x86, 0x84, 0x41, 1, 0x61]),
      frame(3, 0, 2 * i + 1, [0, 0, 0, code]),
    ]);
  const streams = streamsResetWith(constants.NGHTTP2_CANCEL);

  test("some are announced in each turn, in order, and none is lost", async () => {
    const clock = new FakeClock();
    const announced: (number | undefined)[] = [];
    const port = await serveFramed(clock, (session) => {
      session.on("stream", (stream) => {
        announced.push(stream.id);
        stream.on("error", () => {});
      });
    });
    const socket = connect(port, "127.0.0.1").resume();
    onTestFinished(() => void socket.destroy());
    socket.write(Buffer.concat([preface, frame(4, 0, 0, []), ...streams.flat()]));
    await vi.waitFor(() => expect(announced.length).toBeGreaterThan(0), patienceMs);
    let before = 0;
    await vi.waitFor(() => {
      expect(announced.length - before).toBeLessThanOrEqual(streamFramesAtOnce / 2);
      before = announced.length;
      clock.runTurn();
      expect(announced.length).toBe(count);
    }, patienceMs);
    expect(announced).toEqual(streams.map((_, i) => 2 * i + 1));
  });

  const codes = [
    ["CANCEL", constants.NGHTTP2_CANCEL],
    // Node.js has an error for these, which ends a process that does not listen for it.
    ["INTERNAL_ERROR", constants.NGHTTP2_INTERNAL_ERROR],
    ["REFUSED_STREAM", constants.NGHTTP2_REFUSED_STREAM],
  ] as const;
  test.each(codes)("few are served with code %s", async (_name, code) => {
    const { server, recorder, client } = await serveThings();
    const streams = streamsResetWith(code);
    const socket = connect(server.port, "127.0.0.1").on("error", () => {});
    onTestFinished(() => void socket.destroy());
    const pinged = frame(6, 0, 0, [1, 2, 3, 4, 5, 6, 7, 8]);
    socket.write(Buffer.concat([preface, frame(4, 0, 0, []), ...streams.flat(), pinged]));
    const received: Buffer[] = [];
    socket.on("data", (chunk: Buffer) => received.push(chunk));
    // All of them have been read once the ping behind them is answered.
    const answer = Buffer.from([0, 0, 8, 6, 1, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    await vi.waitFor(() => expect(Buffer.concat(received).includes(answer)).toBe(true), patienceMs);
    await client.list({ resource: "things" });
    expect(recorder.calls.length).toBeLessThan(50);
  });
});
