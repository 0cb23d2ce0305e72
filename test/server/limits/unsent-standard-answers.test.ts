import { status } from "@grpc/grpc-js";
import { describe, expect, test } from "vitest";
import { healthService, reflectionServices } from "../../../src/wire/services.ts";
import { framed, type RawCall, RawConnection } from "../http2/raw-connection.ts";
import { type Served, serveThings } from "../served.ts";

const kibibyte = 1024;
const { Check, List } = healthService;
const { path, requestSerialize } = reflectionServices[0]?.ServerReflectionInfo ?? {
  path: "",
  requestSerialize: () => Buffer.of(),
};

/** About 17 KB of descriptors. */
const question = framed(
  requestSerialize({ file_containing_symbol: "watchfanout.v1.ListWatchService" }),
);

function ask(connection: RawConnection): RawCall {
  const call = connection.open(path);
  call.stream.write(question);
  return call;
}

/** Resolves when this many calls have arrived, and the server is idle. */
async function settled({ recorder, server }: Served, calls: number): Promise<void> {
  await recorder.untilStarted(calls);
  for (let before = -1; before !== server.stats().unsent.bytes; ) {
    before = server.stats().unsent.bytes;
    for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve));
  }
}

describe("Responses of reflection for a client that accepts nothing", () => {
  test("are built up to the bound of the connection; then its next ones wait, and all arrive", async () => {
    const limits = { maxUnsentBytesPerConnection: 100 * kibibyte };
    const served = await serveThings({ server: { limits } });
    const raw = new RawConnection(served.server.port, 0);
    const calls = Array.from({ length: 60 }, () => ask(raw));
    await settled(served, 60);
    const { bytes } = served.server.stats().unsent;
    expect(bytes).toBeGreaterThan(60 * kibibyte);
    expect(bytes).toBeLessThan(140 * kibibyte);
    raw.session.settings({ initialWindowSize: 60 * kibibyte });
    for (const call of calls) {
      const { value } = await call.messages().next();
      expect(value.length).toBeGreaterThan(5 * kibibyte);
      call.stream.end();
    }
    for (const call of calls) expect((await call.ended).code).toBe(status.OK);
    expect(served.server.stats().unsent.bytes).toBe(0);
  });

  test("count only until they are accepted, also while their stream continues", async () => {
    const served = await serveThings();
    const call = new RawConnection(served.server.port).open(path);
    const messages = call.messages();
    for (let asked = 0; asked < 3; asked++) {
      call.stream.write(question);
      expect((await messages.next()).value?.length).toBeGreaterThan(5 * kibibyte);
    }
    await settled(served, 1);
    expect(served.server.stats().unsent.bytes).toBe(0);
    call.stream.end();
    expect((await call.ended).code).toBe(status.OK);
  });

  test("that wait for a minute end with SLOW_CONSUMER", async () => {
    const limits = { maxUnsentBytesPerConnection: 8 * kibibyte };
    const served = await serveThings({ server: { limits } });
    const raw = new RawConnection(served.server.port, 0);
    ask(raw);
    await settled(served, 1);
    const waiting = ask(raw);
    await settled(served, 2);
    served.clock.advance(59_999);
    await settled(served, 2);
    expect(waiting.stream.closed).toBe(false);
    served.clock.advance(1);
    const { code, message } = await waiting.drain().ended;
    expect(code).toBe(status.RESOURCE_EXHAUSTED);
    expect(message).toMatch(/^This call waited 60 s/);
  });

  test("are dropped with their call, also while it waits", async () => {
    const limits = { maxUnsentBytesPerConnection: 8 * kibibyte };
    const served = await serveThings({ server: { limits } });
    const raw = new RawConnection(served.server.port, 0);
    const calls = Array.from({ length: 3 }, () => ask(raw));
    await settled(served, 3);
    for (const call of calls) call.cancel();
    await served.recorder.untilEnded(3);
    await settled(served, 3);
    expect(served.server.stats().unsent.bytes).toBe(0);
    expect(served.server.openStreams).toBe(0);
    expect(served.recorder.logged).toEqual([]);
  });
});

describe("Health responses", () => {
  test.each([
    ["Check", Check.path, Check.requestSerialize({ service: "" })],
    ["List", List.path, List.requestSerialize({})],
  ])("of %s count 4 KiB each until they are accepted", async (_name, method, request) => {
    const served = await serveThings();
    const raw = new RawConnection(served.server.port, 0);
    const calls = Array.from({ length: 50 }, () => raw.call(method, request));
    await settled(served, 50);
    expect(served.server.stats().unsent.bytes).toBeGreaterThan(50 * 4 * kibibyte);
    raw.session.settings({ initialWindowSize: 10 * kibibyte });
    for (const call of calls) expect((await call.drain().ended).code).toBe(status.OK);
    expect(served.server.stats().unsent.bytes).toBe(0);
  });

  test("are not delayed by those of others, and above the bound of all the largest holder loses its own", async () => {
    const limits = { maxUnsentBytes: 200 * kibibyte };
    const served = await serveThings({ server: { limits } });
    const raw = new RawConnection(served.server.port, 0);
    const request = Check.requestSerialize({ service: "" });
    const calls = Array.from({ length: 100 }, () => raw.call(Check.path, request));
    await settled(served, 100);
    expect(served.server.stats().unsent.bytes).toBeLessThanOrEqual(200 * kibibyte);
    expect(served.server.stats().unsent.evictions).toBeGreaterThan(45);
    const first = await Promise.race(calls.map((call) => call.drain().ended));
    expect(first.reset).toBe(11);
    expect(served.server.stats().slowCalls).toBe(served.server.stats().unsent.evictions);
    expect(await served.client.unary(Check, { service: "" })).toEqual({ status: "SERVING" });
  });
});
