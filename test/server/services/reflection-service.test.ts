import { constants } from "node:http2";
import { Client, credentials, status } from "@grpc/grpc-js";
import { beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { readDescriptors } from "../../../src/protobuf/descriptors.ts";
import { varintSize, WireWriter } from "../../../src/protobuf/wire-writer.ts";
import { descriptors } from "../../../src/wire/descriptors.ts";
import type { ServerReflectionRequest } from "../../../src/wire/generated/grpc/reflection/v1/ServerReflectionRequest.ts";
import type { ServerReflectionResponse__Output } from "../../../src/wire/generated/grpc/reflection/v1/ServerReflectionResponse.ts";
import { reflectionServices } from "../../../src/wire/services.ts";
import fc from "../../property.ts";
import { framed, type RawCall, RawConnection } from "../http2/raw-connection.ts";
import { serveThings } from "../served.ts";

/** Sends requests one after the other on one stream, and returns the responses. */
async function ask(
  port: number,
  version: number,
  ...questions: readonly ServerReflectionRequest[]
): Promise<ServerReflectionResponse__Output[]> {
  const client = new Client(`127.0.0.1:${port}`, credentials.createInsecure());
  onTestFinished(() => client.close());
  const method = reflectionServices[version]?.ServerReflectionInfo;
  if (method === undefined) throw new Error("no such version");
  const { path, requestSerialize, responseDeserialize } = method;
  const call = client.makeBidiStreamRequest(path, requestSerialize, responseDeserialize);
  for (const question of questions) call.write(question);
  call.end();
  const answers: ServerReflectionResponse__Output[] = [];
  for await (const answer of call) answers.push(answer as ServerReflectionResponse__Output);
  return answers;
}

/** The files of a response, parsed as a descriptor set. */
function filesOf(answer: ServerReflectionResponse__Output | undefined) {
  const files = answer?.file_descriptor_response?.file_descriptor_proto ?? [];
  return readDescriptors(
    Buffer.concat(
      files.map((file) => {
        const head = new WireWriter(Buffer.alloc(1 + varintSize(file.length)));
        head.byte(0x0a);
        head.varint(file.length);
        return Buffer.concat([head.bytes, file]);
      }),
    ),
  );
}

describe.each([
  ["v1", 0],
  ["v1alpha", 1],
])("Reflection %s", (_name, version) => {
  let port = 0;
  beforeEach(async () => {
    port = (await serveThings()).server.port;
  });

  test("lists all services, itself and health among them", async () => {
    const [answer] = await ask(port, version, { list_services: "" });
    const names = answer?.list_services_response?.service.map(({ name }) => name).sort();
    expect(names).toEqual([
      "grpc.health.v1.Health",
      "grpc.reflection.v1.ServerReflection",
      "grpc.reflection.v1alpha.ServerReflection",
      "watchfanout.v1.ListWatchService",
      "watchfanout.v1.WriteService",
    ]);
  });

  test("returns the file and everything that it imports, so that all types can be resolved", async () => {
    const [answer] = await ask(port, version, {
      host: "h",
      file_containing_symbol: "watchfanout.v1.ListWatchService",
    });
    expect(answer).toMatchObject({ valid_host: "h", original_request: { host: "h" } });
    const found = filesOf(answer);
    expect([...found.files.keys()]).toEqual([
      "watchfanout/v1/list_watch_service.proto",
      "google/protobuf/duration.proto",
      "google/protobuf/field_mask.proto",
      "google/rpc/status.proto",
      "watchfanout/v1/object.proto",
      "google/protobuf/any.proto",
    ]);
    for (const fields of found.messages.values()) {
      for (const { typeName } of fields) {
        if (typeName !== "") expect(found.declaredIn.has(typeName), typeName).toBe(true);
      }
    }
  });

  test("keeps proto3 optional fields and proto names", async () => {
    const [answer] = await ask(port, version, {
      file_containing_symbol: "watchfanout.v1.WatchRequest.after_revision",
    });
    const fields = filesOf(answer).messages.get("watchfanout.v1.WatchRequest");
    expect(fields?.map(({ name, oneof }) => [name, oneof])).toContainEqual([
      "after_revision",
      "_after_revision",
    ]);
  });

  test.each([
    "watchfanout.v1.WatchRequest",
    "watchfanout.v1.WatchRequest.key",
    "watchfanout.v1.ListWatchService.Watch",
    "watchfanout.v1.Delivery",
    "watchfanout.v1.DELIVERY_LATEST_STATE",
    "grpc.health.v1.HealthCheckResponse.ServingStatus",
    "grpc.health.v1.HealthCheckResponse.SERVING",
    "google.rpc.ErrorInfo",
    "google.protobuf.Duration",
  ])("finds %s", async (symbol) => {
    const [answer] = await ask(port, version, { file_containing_symbol: symbol });
    const [file] = filesOf(answer).files.keys();
    expect(file).toBe(descriptors.declaredIn.get(symbol)?.name);
  });

  test("finds files by name", async () => {
    const file = "watchfanout/v1/object.proto";
    const [answer] = await ask(port, version, { file_by_filename: file });
    expect([...filesOf(answer).files.keys()]).toEqual([file]);
  });

  test("answers requests in order, and continues after unanswerable ones", async () => {
    const answers = await ask(
      port,
      version,
      { file_containing_symbol: "nope" },
      { file_by_filename: "nope.proto" },
      { file_containing_extension: { containing_type: "x", extension_number: 1 } },
      { all_extension_numbers_of_type: "nope" },
      {},
      { all_extension_numbers_of_type: "watchfanout.v1.Event" },
    );
    expect(answers.map((answer) => answer.error_response?.error_code)).toEqual([
      ...[status.NOT_FOUND, status.NOT_FOUND, status.NOT_FOUND, status.NOT_FOUND],
      ...[status.INVALID_ARGUMENT, undefined],
    ]);
    expect(answers.at(-1)?.all_extension_numbers_response).toEqual({
      base_type_name: "watchfanout.v1.Event",
      extension_number: [],
    });
  });
});

describe("A reflection stream", () => {
  const { path, requestSerialize } = reflectionServices[0]?.ServerReflectionInfo ?? {
    path: "",
    requestSerialize: () => Buffer.of(),
  };

  test("does not read further requests while a response is not accepted", async () => {
    const { server, client } = await serveThings();
    const raw = new RawConnection(server.port, 0);
    const call = raw.open(path);
    const question = framed(requestSerialize({ list_services: "" }));
    for (let i = 0; i < 1_000; i++) call.stream.write(question);
    await call.answered;
    await client.list({ resource: "things" });
    expect(server.openStreams).toBe(1);
    call.cancel();
    await call.ended;
  });

  test.each([
    ["gets SLOW_CONSUMER if its client accepts nothing of a response for a minute", 0],
    ["is reset if it accepts a part only", 3],
  ])("%s, and counts as slow", async (_what, window) => {
    const { server, clock, client } = await serveThings();
    const call = new RawConnection(server.port, window).open(path);
    call.stream.write(framed(requestSerialize({ list_services: "" })));
    await call.answered;
    clock.advance(59_999);
    await client.list({ resource: "things" });
    expect(call.stream.closed).toBe(false);
    expect(server.stats().slowCalls).toBe(0);
    clock.advance(1);
    expect(server.stats().slowCalls).toBe(1);
    expect(await call.drain().ended).toMatchObject(
      window === 0
        ? { code: status.RESOURCE_EXHAUSTED, reset: 0 }
        : { reset: constants.NGHTTP2_ENHANCE_YOUR_CALM },
    );
    await expect.poll(() => server.openStreams).toBe(0);
  });

  test("waits for the rate of its caller only while it has a response to send", async () => {
    const { server, clock } = await serveThings({ server: { limits: { maxSendRate: 2048 } } });
    const call = new RawConnection(server.port).open(path);
    const messages = call.messages();
    const question = framed(
      requestSerialize({ file_containing_symbol: "watchfanout.v1.ListWatchService" }),
    );
    call.stream.write(question);
    expect((await messages.next()).value?.length).toBeGreaterThan(5 * 1024);
    for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve));
    expect(server.stats().callers.pacedStreams).toBe(0);
    call.stream.write(question);
    await expect.poll(() => server.stats().callers.pacedStreams).toBe(1);
    clock.advance(45_000);
    expect((await messages.next()).value?.length).toBeGreaterThan(5 * 1024);
  });

  test("is charged with 80 KiB of the bound for requests: of 205 the oldest is ended", async () => {
    const { server } = await serveThings();
    const raw = new RawConnection(server.port);
    const open = (): RawCall => raw.open(path).drain();
    const oldest = open();
    const others = Array.from({ length: 203 }, open);
    while (server.openStreams < 204) await new Promise((resolve) => setImmediate(resolve));
    expect(oldest.stream.closed).toBe(false);
    others.push(open());
    const { code, message } = await oldest.ended;
    expect(code).toBe(status.RESOURCE_EXHAUSTED);
    expect(message).toMatch(/^The requests of this connection.*16777216 bytes/);
    while (server.openStreams < 204) await new Promise((resolve) => setImmediate(resolve));
    expect(others.filter(({ stream }) => stream.closed)).toEqual([]);
    // Other connections have their own bound.
    expect(await ask(server.port, 0, { list_services: "" })).toHaveLength(1);
  });

  test("ends when it is cancelled, and releases everything", async () => {
    const { server, recorder } = await serveThings();
    const call = new RawConnection(server.port).open(path);
    call.stream.write(framed(requestSerialize({ list_services: "" })));
    await call.answered;
    call.cancel();
    await recorder.untilEnded(1);
    expect(server.openStreams).toBe(0);
    expect(recorder.logged).toEqual([]);
  });

  test("ends with INVALID_ARGUMENT on an invalid request", async () => {
    const { server } = await serveThings();
    const raw = new RawConnection(server.port);
    await fc.assert(
      fc.asyncProperty(fc.constantFrom("1a05", "1a01ff", "00", "7c"), async (hex) => {
        const call = raw.open(path);
        call.stream.write(framed(Buffer.from(hex, "hex")));
        expect((await call.drain().ended).code).toBe(status.INVALID_ARGUMENT);
      }),
      { numRuns: 10 },
    );
    expect(server.openStreams).toBe(0);
  });
});
