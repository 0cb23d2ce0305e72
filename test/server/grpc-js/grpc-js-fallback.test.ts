import { status } from "@grpc/grpc-js";
import { pino } from "pino";
import { describe, expect, test, vi } from "vitest";
import { listWatchService } from "../../../src/wire/services.ts";
import { healthService, reflectionServices } from "../../../src/wire/standard-services.ts";
import { framed, RawConnection } from "../http2/raw-connection.ts";
import { Recorder, serveThings } from "../served.ts";
import { describeWatchCalls } from "../watch-calls.ts";

// Simulates a version of grpc-js with different private fields.
vi.mock("../../../src/server/http2/http2-stream.ts", async (original) => ({
  ...(await original<object>()),
  listenToHttp2: () => 0,
  http2StreamOf: () => undefined,
}));

const resource = "things";
const { List } = listWatchService;
const { Check, Watch } = healthService;
const { ServerReflectionInfo: Reflection } = reflectionServices[0] ?? {};

describeWatchCalls("by a version of grpc-js that is not known");

describe("An unsupported version of grpc-js", () => {
  test("is logged at the start, with the consequences", async () => {
    const recorder = new Recorder();
    await serveThings({ server: { logger: pino({ level: "warn" }, recorder) } });
    expect(recorder.logged.map((line) => JSON.parse(line).msg)).toEqual([
      "Unsupported grpc-js version: direct HTTP/2 serving and call metrics are disabled, and idle " +
        "clients can delay shutdown.",
    ]);
  });

  test("serves reads, health and reflection", async () => {
    const { client, server, storage } = await serveThings();
    await storage.put({ key: "a", value: Buffer.from("1") });
    expect((await client.list({ resource })).items).toHaveLength(1);
    expect(await client.unary(Check, { service: "" })).toEqual({ status: "SERVING" });
    const watch = client.stream(Watch, { service: "" });
    expect(await watch.next()).toEqual({ status: "SERVING" });
    watch.cancel();
    const call = new RawConnection(server.port).open(Reflection?.path ?? "");
    call.stream.end(framed(Reflection?.requestSerialize({ list_services: "" }) ?? Buffer.of()));
    const answers = call.messages();
    const { value } = await answers.next();
    const answer = Reflection?.responseDeserialize(value);
    expect(answer?.list_services_response?.service).toHaveLength(5);
    await expect(answers.next()).rejects.toThrow("ended");
    expect((await call.ended).code).toBe(status.OK);
  });

  test("bounds unaccepted responses as well, and releases accepted ones", async () => {
    const { client, server, storage } = await serveThings();
    await storage.put({ key: "a", value: Buffer.alloc(1_000_000) });
    const raw = new RawConnection(server.port, 0);
    const request = List.requestSerialize({ resource });
    const calls = Array.from({ length: 40 }, () => raw.call(List.path, request));
    while (server.stats().unsent.bytes < 1_000_000) await client.list({ resource });
    raw.session.settings({ initialWindowSize: 100_000 });
    for (const { code } of await Promise.all(calls.map((call) => call.drain().ended))) {
      expect(code).toBe(status.OK);
    }
    while (server.stats().unsent.bytes > 0) await client.list({ resource });
  });

  test.each([
    ["a read", List.path],
    ["a health check", Check.path],
    ["a question", Reflection?.path ?? ""],
  ])("refuses an incomplete request of %s after a minute", async (_what, path) => {
    const { server, clock, client } = await serveThings();
    const call = new RawConnection(server.port).open(path);
    call.stream.write(Buffer.of(0));
    call.drain();
    while (!call.stream.closed) {
      await client.list({ resource });
      clock.advance(5_000);
    }
    expect((await call.ended).code).toBe(status.DEADLINE_EXCEEDED);
    expect(clock.now()).toBeGreaterThanOrEqual(60_000);
  });
});
