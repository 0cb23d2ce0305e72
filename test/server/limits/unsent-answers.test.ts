import { status } from "@grpc/grpc-js";
import { describe, expect, test } from "vitest";
import { listWatchService, writeService } from "../../../src/wire/services.ts";
import { type RawCall, RawConnection } from "../http2/raw-connection.ts";
import { type Served, serveThings } from "../served.ts";

const resource = "things";
const { List, Get, Watch } = listWatchService;
const { Put } = writeService;
const mebibyte = 1024 ** 2;

/** 8 objects of 500 kB: one page. */
async function serveLarge(limits = {}): Promise<Served> {
  const served = await serveThings({ server: { limits } });
  for (let i = 0; i < 8; i++) {
    await served.storage.put({ key: `k${i}`, value: Buffer.alloc(500_000, i) });
  }
  await served.client.list({ resource });
  return served;
}

/** Resolves when this many calls have arrived after the first List, and the server is idle. */
async function settled({ recorder, server }: Served, calls: number): Promise<void> {
  await recorder.untilStarted(1 + calls);
  for (let before = -1; before !== recorder.sentMessages + server.stats().unsent.bytes; ) {
    before = recorder.sentMessages + server.stats().unsent.bytes;
    for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve));
  }
}

function list(prefix = ""): Buffer {
  return List.requestSerialize({ resource, prefix });
}

describe("Responses for a client that accepts nothing", () => {
  test.each([
    ["List of one object", List.path, list("k1"), 500_000],
    ["List of a whole page", List.path, list(), 4_000_000],
    ["Get", Get.path, Get.requestSerialize({ resource, key: "k1" }), 500_000],
  ])(
    "are built up to 16 MiB per connection; then its next %s waits",
    async (_, path, request, bytes) => {
      const served = await serveLarge();
      const raw = new RawConnection(served.server.port, 0);
      const before = served.recorder.sentMessages;
      for (let i = 0; i < 300; i++) raw.call(path, request);
      await settled(served, 300);
      const built = served.recorder.sentMessages - before;
      expect(built).toBeGreaterThan((8 * mebibyte) / bytes);
      expect(built).toBeLessThan((20 * mebibyte) / bytes);
      raw.session.destroy();
      while (served.server.stats().unsent.bytes > 0)
        await new Promise((resolve) => setImmediate(resolve));
      expect(served.recorder.logged).toEqual([]);
    },
  );

  test("delay no other connection", async () => {
    const served = await serveLarge();
    const raw = new RawConnection(served.server.port, 0);
    for (let i = 0; i < 50; i++) raw.call(List.path, list());
    await settled(served, 50);
    expect((await served.client.list({ resource })).items).toHaveLength(8);
    raw.session.destroy();
  });

  test("all arrive if the client reads again", async () => {
    const served = await serveLarge();
    const raw = new RawConnection(served.server.port, 0);
    const calls = Array.from({ length: 20 }, () => raw.call(List.path, list()));
    await settled(served, 20);
    raw.session.settings({ initialWindowSize: mebibyte });
    const ends = await Promise.all(calls.map((call) => call.drain().ended));
    expect(new Set(ends.map(({ code }) => code))).toEqual(new Set([status.OK]));
    expect(served.server.stats().unsent.bytes).toBe(0);
  });

  test("make its writes wait, without an effect", async () => {
    const served = await serveLarge();
    const raw = new RawConnection(served.server.port, 0);
    for (let i = 0; i < 5; i++) raw.call(List.path, list());
    await settled(served, 5);
    const value = Buffer.alloc(1_000_000);
    const puts = Array.from({ length: 20 }, () =>
      raw.call(Put.path, Put.requestSerialize({ resource, key: "new", value })),
    );
    // At most 16 MiB of requests wait; the others are refused.
    const refused = await Promise.race(puts.map((call) => call.drain().ended));
    expect(refused.code).toBe(status.RESOURCE_EXHAUSTED);
    expect(refused.message).toMatch(/Nothing was done/);
    raw.session.destroy();
    expect((await served.client.list({ resource })).items).toHaveLength(8);
  });

  test("are reset after a minute, and waiting calls get their room", async () => {
    const served = await serveLarge();
    const raw = new RawConnection(served.server.port, 0);
    for (let i = 0; i < 4; i++) raw.call(List.path, list());
    await settled(served, 4);
    served.clock.advance(30_000);
    const waiting = raw.call(List.path, list());
    await settled(served, 5);
    served.clock.advance(30_000);
    await settled(served, 5);
    raw.session.settings({ initialWindowSize: 10 * mebibyte });
    expect((await waiting.drain().ended).code).toBe(status.OK);
  });

  test("end calls that have waited behind them for a minute with SLOW_CONSUMER", async () => {
    const served = await serveLarge();
    const raw = new RawConnection(served.server.port, 0);
    const built = Array.from({ length: 4 }, () => raw.call(List.path, list()));
    const waiting = Array.from({ length: 2 }, () => raw.call(List.path, list()));
    await settled(served, 6);
    const before = served.recorder.sentMessages;
    served.clock.advance(59_999);
    await settled(served, 6);
    expect([...built, ...waiting].filter(({ stream }) => stream.closed)).toEqual([]);
    served.clock.advance(1);
    for (const call of waiting) {
      const { code, message } = await call.drain().ended;
      expect(code).toBe(status.RESOURCE_EXHAUSTED);
      expect(message).toMatch(/^This call waited 60 s for the client.*Nothing was done/);
    }
    for (const call of built) expect((await call.drain().ended).code).toBeUndefined();
    expect(served.recorder.sentMessages).toBe(before);
  });
});

describe("Many connections that accept nothing", () => {
  const limits = { maxUnsentBytes: 5_000_000, maxUnsentBytesPerConnection: 1_000_000 };

  /** 8 clients with 500 kB each, of different objects: together more than half of the bound. */
  async function stalled(served: Served): Promise<RawCall[]> {
    const calls = Array.from({ length: 8 }, (_, i) =>
      new RawConnection(served.server.port, 0).call(List.path, list(`k${i}`)),
    );
    await settled(served, 8);
    return calls;
  }

  test("delay others until they are detected, and lose their responses then", async () => {
    const served = await serveLarge(limits);
    const calls = await stalled(served);
    expect(served.server.stats().unsent.bytes).toBeGreaterThan(2_500_000);
    // One more would be 3.5 MB. Small parts keep buffers of Node.js' pool alive, 64 KiB each: they may be in several.
    expect(served.server.stats().unsent.bytes).toBeLessThan(3_400_000);
    const honest = served.client.list({ resource, prefix: "k7" });
    await settled(served, 9);
    served.clock.advance(9_000);
    await settled(served, 9);
    expect(calls.filter((call) => call.stream.closed)).toEqual([]);
    served.clock.advance(2_000);
    expect((await honest).items).toHaveLength(1);
    expect((await Promise.race(calls.map((call) => call.ended))).code).toBeUndefined();
  });

  test("share the memory of equal responses", async () => {
    const served = await serveLarge(limits);
    for (let i = 0; i < 20; i++) {
      new RawConnection(served.server.port, 0).call(List.path, list("k1"));
    }
    await settled(served, 20);
    expect(served.recorder.sentMessages).toBe(21);
    // Two copies would be more. Small parts keep buffers of Node.js' pool alive, 64 KiB each: they may be in several.
    expect(served.server.stats().unsent.bytes).toBeLessThan(1_000_000);
  });
});

describe("Watches of a client that accepts nothing", () => {
  test("have frames built up to 16 MiB per connection; further batches are not read", async () => {
    const served = await serveLarge();
    const raw = new RawConnection(served.server.port, 0);
    const before = served.recorder.sentMessages;
    const request = Watch.requestSerialize({ resource, prefix: "k1", send_initial_events: true });
    const calls = Array.from({ length: 100 }, () => raw.call(Watch.path, request));
    await settled(served, 100);
    // The empty first response of each, which the window of 0 blocks.
    expect(served.recorder.sentMessages - before).toBe(100);
    raw.session.settings({ initialWindowSize: 100 });
    await settled(served, 100);
    const states = served.recorder.sentMessages - before - 100;
    expect(states).toBeGreaterThan(30);
    expect(states).toBeLessThan(36);
    raw.session.settings({ initialWindowSize: mebibyte });
    for (const call of calls) {
      const messages = call.messages();
      await messages.next();
      const { value } = await messages.next();
      expect(Watch.responseDeserialize(value).events).toHaveLength(1);
    }
  });
});
