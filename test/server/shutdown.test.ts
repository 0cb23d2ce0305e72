import { once } from "node:events";
import { connect } from "node:http2";
import { createConnection } from "node:net";
import { status } from "@grpc/grpc-js";
import { describe, expect, test, vi } from "vitest";
import { Connections } from "../../src/server/http2/connections.ts";
import type { AuditEntry } from "../../src/server/server.ts";
import { listWatchService, writeService } from "../../src/wire/services.ts";
import { patienceMs } from "../faults/patience.ts";
import { FrameClient } from "./http2/frames/frame-client.ts";
import { framed, type RawCall, RawConnection } from "./http2/raw-connection.ts";
import { ManualTimers } from "./limits/manual-timers.ts";
import { ScriptedResource } from "./scripted-resource.ts";
import { serve, serveThings } from "./served.ts";
import { TestClient } from "./test-client.ts";

const resource = "things";
const { Watch, List } = listWatchService;
const { Put } = writeService;

test("The oldest connections are drained alone: their streams end with DRAINING, the others continue.", async () => {
  const { client, server, clock, recorder } = await serveThings();
  const watch = client.watch({ resource });
  expect((await watch.next()).revision).toBe("1");
  const [second, third] = [new RawConnection(server.port), new RawConnection(server.port)];
  const goneAway = new Promise((resolve) => second.session.once("goaway", resolve));
  const calls: RawCall[] = [];
  for (const raw of [second, third]) {
    const call = raw.call(Watch.path, Watch.requestSerialize({ resource }));
    await call.answered;
    calls.push(call);
  }
  expect(server.connections).toBe(3);
  server.drainOldest(1);
  expect(await watch.ended).toMatchObject({
    reason: "DRAINING",
    metadata: { resume_revision: "1" },
  });
  await vi.waitFor(() => expect(server.connections).toBe(2), patienceMs);
  expect(calls.map(({ stream }) => stream.closed)).toEqual([false, false]);
  // The next call of its client is made over a new connection, which is now the newest.
  await client.put({ resource, key: "a" });
  const late = second.open(Watch.path);
  // A call that has begun, and whose request has not come yet.
  await recorder.untilStarted(5);
  server.drainOldest(1);
  expect(await goneAway).toBe(0);
  expect((await calls[0]?.drain().ended)?.code).toBe(status.UNAVAILABLE);
  late.stream.end(framed(Watch.requestSerialize({ resource })));
  await late.answered;
  expect([late.stream.closed, server.connections]).toEqual([false, 3]);
  clock.advance(1_000);
  expect((await late.drain().ended).code).toBe(status.UNAVAILABLE);
  await vi.waitFor(() => expect(server.connections).toBe(2), patienceMs);
  expect(calls[1]?.stream.closed).toBe(false);
});

describe("Draining", () => {
  test("ends watches with a last bookmark, then DRAINING and the resume point", async () => {
    const { client, storage, server } = await serveThings();
    const watch = client.watch({ resource, key: "a" });
    expect((await watch.next()).revision).toBe("1");
    await storage.put({ key: "b", value: Buffer.of() });
    await client.list({ resource }); // From now on the cache has it.
    const drained = server.drain(10_000);
    const last = await watch.next();
    expect([last.revision, last.events]).toEqual(["2", []]);
    expect(await watch.ended).toMatchObject({
      reason: "DRAINING",
      metadata: { resume_revision: "2" },
    });
    await drained;
  });

  test("lets open calls finish, then closes, before its time limit", async () => {
    const scripted = new ScriptedResource();
    const { client, server } = await serve(new Map([[resource, scripted]]), new ManualTimers());
    let finish = (): void => {};
    const asked = new Promise<void>((resolve) => {
      scripted.answer = () => {
        resolve();
        return new Promise((_resolve, reject) => {
          finish = () => reject(new Error("at last"));
        });
      };
    });
    const call = client.get({ resource, key: "a" }).catch((error: unknown) => error);
    await asked;
    const drained = server.drain(10_000);
    finish();
    expect(await call).toMatchObject({ reason: "INTERNAL" });
    await drained;
  });

  test("sends GOAWAY to connections, and accepts no new ones", async () => {
    const { server, clock } = await serveThings();
    const raw = new RawConnection(server.port);
    const goneAway = new Promise((resolve) => raw.session.once("goaway", resolve));
    const watch = raw.call(Watch.path, Watch.requestSerialize({ resource }));
    await watch.drain().answered;
    const drained = server.drain(1_000);
    expect(await goneAway).toBe(0);
    await watch.ended;
    await drained;
    const refused = new TestClient(server.port);
    await expect(
      refused.unary(List, { resource }, { deadline: Date.now() + 60_000 }),
    ).rejects.toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });
    refused.close();
    expect(clock.now()).toBe(0);
  });

  test("sends GOAWAY to a connection whose HTTP/2 begins only then", async () => {
    // With pages, the first bytes decide between HTTP/1 and HTTP/2.
    const { server } = await serveThings({ server: { pages: new Map() } });
    const socket = createConnection(server.port, "127.0.0.1");
    await vi.waitFor(() => expect(server.connections).toBe(1), patienceMs);
    const drained = server.drain(60_000);
    const session = connect(`http://localhost:${server.port}`, { createConnection: () => socket });
    await once(session, "goaway");
    await drained;
  });

  test.each([
    ["has begun before", true],
    ["begins only then", false],
  ])(
    "sends GOAWAY behind the client's acknowledgement of the settings, if HTTP/2 %s",
    async (_when, isBegun) => {
      const { server } = await serveThings({ server: { pages: new Map() } });
      const client = await FrameClient.to(server.port);
      await vi.waitFor(() => expect(server.connections).toBe(1), patienceMs);
      const greet = async (): Promise<void> => {
        client.greet();
        client.ping();
        client.holdsBack = true;
        await client.until(() => client.pingsAnswered === 1 || client.goAwayCode !== undefined);
      };
      if (isBegun) await greet();
      const drained = server.drain(60_000);
      if (!isBegun) await greet();
      client.socket.write(Buffer.from("0000080600000000000123456789abcdef", "hex"));
      await client.until(() => client.pingsAnswered === 2 || client.goAwayCode !== undefined);
      expect(client.goAwayCode).toBeUndefined();
      client.release(Infinity);
      await client.until(() => client.isClosed);
      expect(client.goAwayCode).toBe(0);
      client.socket.destroy();
      await drained;
    },
  );

  test("does not wait for incomplete requests", async () => {
    const { server, clock, recorder } = await serveThings();
    const raw = new RawConnection(server.port);
    const calls = [raw.open(Watch.path), raw.open(List.path)];
    for (const call of calls) call.stream.write(Buffer.of(0));
    await recorder.untilStarted(2);
    const drained = server.drain(10_000);
    clock.advance(1_000);
    for (const call of calls) expect((await call.drain().ended).code).toBe(status.UNAVAILABLE);
    clock.advance(1_000);
    await drained;
  });

  test("cuts off the remaining calls at its time limit", async () => {
    const scripted = new ScriptedResource();
    const clock = new ManualTimers();
    const { client, server } = await serve(new Map([[resource, scripted]]), clock);
    const asked = new Promise<void>((resolve) => {
      scripted.answer = () => {
        resolve();
        return new Promise(() => {});
      };
    });
    const call = client.get({ resource, key: "a" }).catch((error: unknown) => error);
    const raw = new RawConnection(server.port);
    const half = raw.open(Watch.path);
    half.stream.write(Buffer.from([0]));
    const mute = createConnection(server.port, "127.0.0.1");
    await new Promise((resolve) => mute.once("connect", resolve));
    await asked;
    const drained = server.drain(3_000);
    clock.advance(2_999);
    clock.advance(1);
    await drained;
    expect(await call).toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });
    await half.ended;
    mute.destroy();
  });

  test.each([
    ["has sent nothing", ""],
    ["has sent half of the HTTP/2 preface", "PRI * HTTP/2.0\r\n"],
    ["has begun HTTP/2 without a call", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"],
  ])("waits a second for a connection that %s, less than its time limit", async (_name, sent) => {
    const { server, client, clock, recorder } = await serveThings();
    const mute = createConnection(server.port, "127.0.0.1")
      .on("error", () => {})
      .resume();
    const closed = new Promise((resolve) => mute.once("close", resolve));
    mute.write(sent);
    const watch = client.watch({ resource });
    await watch.next();
    const drained = server.drain(10_000);
    await watch.ended;
    await recorder.untilEnded(1);
    clock.advance(1_000);
    await Promise.all([drained, closed]);
    expect(clock.now()).toBe(1_000);
  });

  test("is over once all calls are audited that were cut off", async () => {
    const codes: (string | undefined)[] = [];
    const audit = {
      level: "writes",
      record: ({ code }: AuditEntry) => void codes.push(code),
    } as const;
    const { server, clock, cacher } = await serveThings({ server: { audit } });
    cacher.put = () => new Promise(() => {});
    const request = Put.requestSerialize({ resource, key: "a" });
    for (let i = 0; i < 4; i++) {
      const raw = new RawConnection(server.port);
      for (let j = 0; j < 64; j++) raw.call(Put.path, request);
    }
    const { writes } = server.stats().inFlight;
    await vi.waitFor(() => expect(writes.size + writes.queued).toBe(256), patienceMs);
    const drained = server.drain(0);
    clock.advance(0);
    await drained;
    expect(codes).toEqual(Array(256).fill("CANCELLED"));
  });

  test("ends even if a connection is lost at the moment when it begins", async () => {
    const { server, clock, client } = await serveThings();
    const watch = client.watch({ resource });
    await watch.next();
    const { end } = Connections.prototype;
    vi.spyOn(Connections.prototype, "end").mockImplementationOnce(function (this: Connections) {
      // As keepalive does: the session is destroyed, and emits "close" in a later turn.
      for (const session of this.takeOldest(1)) session.destroy();
      end.call(this);
    });
    const drained = server.drain(10_000);
    clock.advance(10_000);
    await drained;
    expect(server.connections).toBe(0);
  });

  test("is idempotent", async () => {
    const { server } = await serveThings();
    expect(server.drain(1_000)).toBe(server.drain(5));
    await server.drain(1_000);
  });

  test("closes everything", async () => {
    const { server, client, recorder } = await serveThings();
    const watches = Array.from({ length: 10 }, () => client.watch({ resource }));
    await Promise.all(watches.map((watch) => watch.next()));
    await Promise.all([server.drain(1_000), ...watches.map((watch) => watch.ended)]);
    expect(server.openStreams).toBe(0);
    expect(recorder.open).toBe(0);
    expect(new Set(recorder.calls.map(({ code }) => code))).toEqual(new Set(["UNAVAILABLE"]));
  });
});
