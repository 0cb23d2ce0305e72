import { status } from "@grpc/grpc-js";
import { pino } from "pino";
import { describe, expect, test, vi } from "vitest";
import { listWatchService, writeService } from "../../../src/wire/services.ts";
import { healthService, reflectionServices } from "../../../src/wire/standard-services.ts";
import { describeAuthentication, serveAuthenticated } from "../authenticated-calls.ts";
import { framed, type RawCall, RawConnection } from "../http2/raw-connection.ts";
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
const { Put } = writeService;
const { Check, Watch } = healthService;
const { ServerReflectionInfo: Reflection } = reflectionServices[0] ?? {};

describeWatchCalls("by a version of grpc-js that is not known");
describeAuthentication("by a version of grpc-js that is not known");

describe("An unsupported version of grpc-js", () => {
  test("is logged at the start, with the consequences", async () => {
    const recorder = new Recorder();
    await serveThings({ server: { logger: pino({ level: "warn" }, recorder) } });
    expect(recorder.logged.map((line) => JSON.parse(line).msg)).toEqual([
      "Unsupported grpc-js version: direct HTTP/2 serving and call metrics are disabled, and idle " +
        "clients can delay shutdown.",
    ]);
  });

  test("does not start with client certificates that are only requested", async () => {
    await expect(serveAuthenticated({ clientAuth: "request" })).rejects.toThrow(
      "client certificates can be required, but not requested",
    );
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

  test("bounds incomplete requests in all: each counts 2 MiB, and the connection that has most loses one", async () => {
    const { server, client, storage } = await serveThings();
    await storage.put({ key: "a", value: Buffer.from("1") });
    const greedy = new RawConnection(server.port);
    const modest = new RawConnection(server.port);
    const open = (connection: RawConnection): RawCall => {
      const call = connection.open(Put.path);
      const begun = framed(Buffer.alloc(1_000_000)).subarray(0, 100);
      call.stream.write(begun);
      return call.drain();
    };
    const kept = Array.from({ length: 4 }, () => open(modest));
    const calls = Array.from({ length: 30 }, () => open(greedy));
    const refused = await Promise.all(calls.slice(0, 22).map((call) => call.ended));
    expect(new Set(refused.map(({ code }) => code))).toEqual(new Set([status.RESOURCE_EXHAUSTED]));
    expect(refused[0]?.message).toMatch(/^The requests of this connection.*16777216 bytes/);
    expect([...kept, ...calls.slice(22)].filter(({ stream }) => stream.closed)).toEqual([]);
    expect(server.stats().requests.bytes).toBe(12 * 2 * 1024 ** 2);
    // Complete requests are not refused, whatever others hold.
    expect((await client.list({ resource })).items).toHaveLength(1);
    for (const call of [...kept, ...calls]) call.cancel();
    while (server.stats().requests.bytes > 0) await client.list({ resource });
  });

  test("counts a stream of requests for as long as it is open", async () => {
    const { server, client } = await serveThings();
    const call = new RawConnection(server.port).open(Reflection?.path ?? "");
    const request = Reflection?.requestSerialize({ list_services: "" }) ?? Buffer.of();
    call.stream.write(framed(request));
    await call.messages().next();
    expect(server.stats().requests.bytes).toBe(2 * 1024 ** 2);
    call.stream.end();
    while (server.stats().requests.bytes > 0) await client.list({ resource });
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
