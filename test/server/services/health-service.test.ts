import { constants } from "node:http2";
import { Client, credentials, status } from "@grpc/grpc-js";
import { describe, expect, onTestFinished, test } from "vitest";
import { healthService } from "../../../src/wire/services.ts";
import { startReady } from "../../cacher/ready.ts";
import { RawConnection } from "../http2/raw-connection.ts";
import { ManualTimers } from "../limits/manual-timers.ts";
import { ScriptedResource } from "../scripted-resource.ts";
import { serve, serveThings } from "../served.ts";
import type { TestClient } from "../test-client.ts";

const { Check, List, Watch } = healthService;

async function check(client: TestClient, service: string): Promise<string> {
  return (await client.unary(Check, { service })).status;
}

describe("Health", () => {
  test("is SERVING once all caches have synced; WriteService from the start", async () => {
    const { client, cacher } = await serveThings({ start: false });
    const services = ["", "watchfanout.v1.ListWatchService", "resource/things"];
    for (const service of services) expect(await check(client, service)).toBe("NOT_SERVING");
    expect(await check(client, "watchfanout.v1.WriteService")).toBe("SERVING");
    await startReady(cacher);
    for (const service of services) expect(await check(client, service)).toBe("SERVING");
  });

  test("waits for all caches, and stays SERVING afterwards", async () => {
    const [a, b] = [new ScriptedResource(), new ScriptedResource()];
    b.ready = false;
    const resources = new Map([
      ["a", a],
      ["b", b],
    ]);
    const { client } = await serve(resources, new ManualTimers());
    expect(await check(client, "")).toBe("NOT_SERVING");
    expect(await check(client, "resource/a")).toBe("SERVING");
    b.setReady(true);
    expect(await check(client, "")).toBe("SERVING");
    a.setReady(false);
    expect(await check(client, "resource/a")).toBe("NOT_SERVING");
    expect(await check(client, "")).toBe("SERVING");
  });

  test("lists all services", async () => {
    const { client } = await serveThings();
    const { statuses } = await client.unary(List, {});
    expect(Object.keys(statuses).sort()).toEqual([
      "",
      "resource/things",
      "watchfanout.v1.ListWatchService",
      "watchfanout.v1.WriteService",
    ]);
  });

  test("reports unknown services as such", async () => {
    const { client } = await serveThings();
    const asked = client.unary(Check, { service: "nope" });
    await expect(asked).rejects.toMatchObject({ cause: { code: 5 } });
    expect(await client.stream(Watch, { service: "nope" }).next()).toEqual({
      status: "SERVICE_UNKNOWN",
    });
  });

  test("can be watched: each change once, and NOT_SERVING when the server drains", async () => {
    const scripted = new ScriptedResource();
    const { client, server } = await serve(new Map([["a", scripted]]), new ManualTimers());
    const ofOne = client.stream(Watch, { service: "resource/a" });
    const ofAll = client.stream(Watch, { service: "" });
    expect(await ofOne.next()).toEqual({ status: "SERVING" });
    expect(await ofAll.next()).toEqual({ status: "SERVING" });
    scripted.setReady(true);
    scripted.setReady(false);
    expect(await ofOne.next()).toEqual({ status: "NOT_SERVING" });
    void server.drain(1_000);
    expect(await ofAll.next()).toEqual({ status: "NOT_SERVING" });
    expect(await ofAll.ended).toMatchObject({ reason: "DRAINING" });
  });

  test("has one status outstanding for a watch that does not read, and then sends the newest", async () => {
    const scripted = new ScriptedResource();
    const { server } = await serve(new Map([["a", scripted]]), new ManualTimers());
    const raw = new RawConnection(server.port, 0);
    const call = raw.call(Watch.path, Watch.requestSerialize({ service: "resource/a" }));
    await call.answered;
    for (let i = 0; i < 100; i++) scripted.setReady(i % 2 === 1);
    scripted.setReady(false);
    const received: number[] = [];
    call.stream.on("data", (chunk: Buffer) => received.push(...chunk));
    raw.session.settings({ initialWindowSize: 1_000_000 });
    while (received.length < 14) await new Promise((resolve) => setImmediate(resolve));
    // Two messages of two bytes, each after five of gRPC's framing: SERVING (1), NOT_SERVING (2).
    expect([received[6], received[13]]).toEqual([1, 2]);
    call.cancel();
  });

  test.each([
    ["ends a watch that does not accept a status for a minute", 0],
    ["resets a watch that accepts a part of a status only", 3],
  ])("%s", async (_how, window) => {
    const { server, clock, client } = await serveThings();
    const raw = new RawConnection(server.port, window);
    const call = raw.call(Watch.path, Watch.requestSerialize({ service: "" }));
    await call.answered;
    clock.advance(59_000);
    await check(client, "");
    expect(call.stream.closed).toBe(false);
    // The stall detector checks at each eighth of the minute, and the end itself may take another second.
    while (server.openStreams > 0) {
      clock.advance(1_000);
      await check(client, "");
    }
    expect(server.stats().slowCalls).toBe(1);
    const ended = call.drain().ended;
    if (window === 0) {
      expect(await ended).toMatchObject({ code: status.RESOURCE_EXHAUSTED, reset: 0 });
    } else {
      clock.advance(1_000);
      expect((await ended).reset).toBe(constants.NGHTTP2_ENHANCE_YOUR_CALM);
    }
  });

  test("keeps a watch without changes open", async () => {
    const { server, clock, client, recorder } = await serveThings();
    const watch = client.stream(Watch, { service: "" });
    await watch.next();
    for (let minutes = 0; minutes < 10; minutes++) {
      clock.advance(30_000);
      expect(await check(client, "")).toBe("SERVING");
    }
    expect(server.openStreams).toBe(1);
    expect(recorder.calls.map(({ code }) => code)).not.toContain("RESOURCE_EXHAUSTED");
    watch.cancel();
  });

  test("removes cancelled watches", async () => {
    const { client, server, recorder } = await serveThings();
    const watch = client.stream(Watch, { service: "" });
    await watch.next();
    expect(server.openStreams).toBe(1);
    watch.cancel();
    await recorder.untilEnded(1);
    expect(server.openStreams).toBe(0);
  });
});

test("A client with health checking sends its calls to a healthy server", async () => {
  const { server } = await serveThings();
  const client = new Client(`127.0.0.1:${server.port}`, credentials.createInsecure(), {
    "grpc.service_config": JSON.stringify({
      healthCheckConfig: { serviceName: "watchfanout.v1.ListWatchService" },
      loadBalancingConfig: [{ round_robin: {} }],
    }),
  });
  onTestFinished(() => client.close());
  await new Promise<void>((resolve, reject) => {
    client.waitForReady(Date.now() + 60_000, (error) => (error ? reject(error) : resolve()));
  });
});
