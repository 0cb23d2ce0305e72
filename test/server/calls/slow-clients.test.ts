import { pino } from "pino";
import { describe, expect, test } from "vitest";
import { decodeRpcStatus } from "../../../src/wire/rpc-status.ts";
import { listWatchService } from "../../../src/wire/services.ts";
import { serveAuthenticated } from "../authenticated-calls.ts";
import { framed, RawConnection } from "../http2/raw-connection.ts";
import { Recorder, type Served, serveThings } from "../served.ts";

const resource = "things";
const { Get, List, Watch } = listWatchService;
const watch = Watch.requestSerialize({ resource, send_initial_events: true, prefix: "a" });

function logged({ logged: lines }: Recorder): Record<string, unknown>[] {
  return lines.map((line) => JSON.parse(line));
}

/** Lets the time pass in which a client that accepts nothing is ended. */
async function letStall({ clock, client }: Served): Promise<void> {
  for (let i = 0; i < 10; i++) {
    clock.advance(8_000);
    await client.get({ resource, key: "a" });
  }
}

describe("A client that reads too slowly is logged once, as such and with what it asked for:", () => {
  test("its identity, the scope of its watch, the lag, and how long it has accepted nothing", async () => {
    const lines = new Recorder();
    const served = await serveAuthenticated({ logger: pino({ level: "warn" }, lines) });
    const raw = new RawConnection(served.server.port, 100);
    const scope = Watch.requestSerialize({ resource, prefix: "a" });
    const calls = Array.from({ length: 5 }, () =>
      raw.call(Watch.path, scope, { authorization: "Bearer static" }),
    );
    await Promise.all(calls.map((call) => call.answered));
    await served.storage.put({ key: "a", value: Buffer.alloc(100_000) });
    for (let i = 0; i < 3; i++) await served.storage.put({ key: "ab", value: Buffer.of(i) });
    await letStall(served);
    await Promise.all(calls.map((call) => call.drain().ended));
    expect(served.server.stats().slowCalls).toBe(5);
    expect([...served.server.stats().attacks.values()].filter((count) => count > 0)).toEqual([]);
    expect(logged(lines)).toMatchObject([
      {
        msg: "a client reads too slowly, and its call was ended",
        identity: "machine",
        peer: expect.stringMatching(/^127\.0\.0\.1:\d+$/),
        resource,
        scope: "prefix a",
        lagRevisions: 4,
        acceptedNothingMs: expect.any(Number),
      },
    ]);
    // To an eighth of the stall timeout.
    expect(Number(logged(lines)[0]?.["acceptedNothingMs"])).toBeGreaterThan(50_000);
  });

  test("the response that it does not accept", async () => {
    const lines = new Recorder();
    const served = await serveThings({ server: { logger: pino({ level: "warn" }, lines) } });
    await served.storage.put({ key: "a", value: Buffer.alloc(100_000) });
    const raw = new RawConnection(served.server.port, 0);
    const call = raw.open(List.path);
    call.stream.end(framed(List.requestSerialize({ resource })));
    await call.answered;
    await letStall(served);
    await call.drain().ended;
    expect(served.server.stats().slowCalls).toBe(1);
    expect(logged(lines)).toMatchObject([{ identity: "anonymous", acceptedNothingMs: 60_000 }]);
  });
});

test("Each caller has its line, and the next one after a minute has the number of those between", async () => {
  const lines = new Recorder();
  const served = await serveThings({ server: { logger: pino({ level: "warn" }, lines) } });
  await served.storage.put({ key: "a", value: Buffer.alloc(100_000) });
  const stall = async (count: number, localAddress: string): Promise<void> => {
    const raw = new RawConnection(served.server.port, 1, localAddress);
    const calls = Array.from({ length: count }, () => raw.call(Watch.path, watch));
    await Promise.all(calls.map((call) => call.answered));
    await letStall(served);
    await Promise.all(calls.map((call) => call.drain().ended));
  };
  await stall(3, "127.0.0.1");
  await stall(1, "127.0.0.2");
  await stall(1, "127.0.0.1");
  expect(
    logged(lines).map(({ peer, suppressedOfCaller }) => [
      String(peer).replace(/:\d+$/, ""),
      suppressedOfCaller,
    ]),
  ).toEqual([
    ["127.0.0.1", undefined],
    ["127.0.0.2", undefined],
    ["127.0.0.1", 2],
  ]);
});

/** Lets a client accept nothing of a second message. Returns its end, and the resume point that it has accepted. */
async function endedAfterFirst(served: Served, secondBytes: number) {
  await served.storage.put({ key: "other", value: Buffer.of(1) });
  const { revision } = await served.storage.put({ key: "a", value: Buffer.of(1) });
  const raw = new RawConnection(served.server.port, 100);
  const call = raw.call(Watch.path, Watch.requestSerialize({ resource, prefix: "" }));
  await call.answered;
  // The first resume point is accepted. From then on the window is shut.
  await new Promise<void>((resolve) =>
    raw.session.settings({ initialWindowSize: 0 }, () => resolve()),
  );
  await served.storage.put({ key: "a", value: Buffer.alloc(secondBytes) });
  const details = new Promise<unknown>((resolve) =>
    call.stream.once("trailers", (trailers) => resolve(trailers["grpc-status-details-bin"])),
  );
  const other = new RawConnection(served.server.port).call(
    Get.path,
    Get.requestSerialize({ resource, key: "other" }),
  );
  while (served.server.stats().slowCalls === 0) {
    served.clock.advance(1_000);
    await new Promise(setImmediate);
  }
  expect((await other.drain().ended).code).toBe(0);
  const { code, reset } = await call.drain().ended;
  const { reason, metadata } = decodeRpcStatus(Buffer.from(String(await details), "base64")) ?? {};
  return { ended: { code, reset, reason, metadata }, revision };
}

test("A client that accepts nothing of the next message gets SLOW_CONSUMER, with the last resume point that it has accepted", async () => {
  const served = await serveThings({ server: { logger: pino({ level: "silent" }) } });
  const { ended, revision } = await endedAfterFirst(served, 1_000);
  expect(ended).toMatchObject({
    ...{ code: 8, reset: 0, reason: "SLOW_CONSUMER" },
    metadata: { resume_revision: String(revision) },
  });
});

test("So does a client whose message is evicted, so that the response of another has room", async () => {
  const logger = pino({ level: "silent" });
  const served = await serveThings({ server: { logger, limits: { maxUnsentBytes: 400_000 } } });
  const { ended, revision } = await endedAfterFirst(served, 250_000);
  expect(ended).toMatchObject({
    ...{ code: 8, reset: 0, reason: "SLOW_CONSUMER" },
    metadata: { resume_revision: String(revision) },
  });
  expect(served.server.stats().unsent).toMatchObject({ bytes: 0, evictions: 1 });
});
