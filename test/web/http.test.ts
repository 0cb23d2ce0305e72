import { gzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { writeService } from "../../src/wire/services.ts";
import { enveloped, json, jsonStream, messagesIn, paths, serveWeb } from "./http.ts";

/*
 * What clients without a library of Connect send: curl, browsers, and requests that are wrong.
 */

const putRequest = { resource: "things", key: "a", value: Buffer.from("1").toString("base64") };
const putText = JSON.stringify(putRequest);
const page = "https://app.example";

describe.each(["1.1", "2"] as const)("HTTP/%s", (version) => {
  test("JSON is a request, and the response is JSON", async () => {
    const { request, storage } = await serveWeb(version);
    const type = { "content-type": "application/json; charset=utf-8" };
    const written = await request(paths.put, type, putText);
    expect(written.code).toBe(200);
    expect(written.headers["content-type"]).toBe("application/json");
    expect(written.headers["content-length"]).toBe(String(written.body.length));
    expect(written.trailers).toEqual({});
    expect(JSON.parse(written.body.toString())).toMatchObject({
      revision: "2",
      object: { key: "a", value: "MQ==", modRevision: "2", version: "1" },
    });
    expect(await storage.currentRevision()).toBe(2);
    const { body } = await request(paths.list, json, '{"resource":"things","page_size":5}');
    expect(JSON.parse(body.toString())).toMatchObject({ revision: "2", items: [{ key: "a" }] });
  });

  test("an error is the response, with the reason in readable form", async () => {
    const { request } = await serveWeb(version);
    const { code, body } = await request(paths.get, json, '{"resource":"others","key":"a"}');
    expect(code).toBe(404);
    const { details, ...error } = JSON.parse(body.toString()) as { details: object[] };
    expect(error).toMatchObject({ code: "not_found", message: expect.stringContaining("others") });
    expect(details[0]).toMatchObject({
      type: "google.rpc.ErrorInfo",
      value: expect.stringMatching(/^[A-Za-z\d+/]+$/),
      debug: { reason: "UNKNOWN_RESOURCE", domain: "watchfanout" },
    });
  });

  test.each([
    ["is not JSON", "{", "it is not one JSON object"],
    ["has two values", "{}{}", "it is not one JSON object"],
    ["is empty", "", "it is not one JSON object"],
    ["is a list", "[]", "unexpected token"],
    ["has an unknown field", '{"resourse":"things"}', 'unknown field "resourse"'],
    ["has an unknown name", '{"view":"VIEW_ALL"}', 'unknown value "VIEW_ALL"'],
    ["has another type", '{"key":1}', "invalid value for string field key: 1"],
    ["has half a character", '{"key":"a\\ud800"}', 'for string field key: "a\\ud800"'],
    ["has a number of 300 digits", `{"revision":1${"0".repeat(299)}}`, "invalid value for int64"],
    ["has a field twice", '{"history_id":"a","historyId":"a"}', 'duplicate field "historyId"'],
    ["is not UTF-8", Buffer.of(0x7b, 0x22, 0xff, 0x22, 0x7d), "invalid UTF-8"],
    ["is deep", `{"readMask":${"[".repeat(9_000)}`, "it is not one JSON object"],
    [
      "has a long mask",
      `{"readMask":"${"a,".repeat(1_000_000)}"}`,
      "2000000 characters, above 65536",
    ],
    ["has many parts", `{"a":[${"0,".repeat(10_001)}0]}`, "more than 10000 values"],
  ])("a request that %s is refused with what is wrong", async (_, text, why) => {
    const { request } = await serveWeb(version);
    const { code, body } = await request(paths.get, json, text);
    expect(code).toBe(400);
    const error = JSON.parse(body.toString()) as { code: string; message: string };
    expect(error.code).toBe("invalid_argument");
    expect(error.message).toContain("Invalid JSON of watchfanout.v1.GetRequest");
    expect(error.message).toContain(why);
  });

  test("a request that is too large is refused", async () => {
    const { request, storage } = await serveWeb(version);
    const value = Buffer.alloc(2 * 1024 ** 2, "x").toString("base64");
    const text = JSON.stringify({ ...putRequest, value });
    const { code, body } = await request(paths.put, json, text);
    expect(code).toBe(429);
    expect(JSON.parse(body.toString())).toMatchObject({ code: "resource_exhausted" });
    expect(await storage.currentRevision()).toBe(1);
  });

  test("the largest value that a gRPC client can write is one of JSON, too", async () => {
    const { request } = await serveWeb(version);
    const value = Buffer.alloc(1.5 * 1024 ** 2 - 1_000, "x").toString("base64");
    const text = JSON.stringify({ ...putRequest, value });
    expect((await request(paths.put, json, text)).code).toBe(200);
    const { body } = await request(paths.get, json, '{"resource":"things","key":"a"}');
    expect(JSON.parse(body.toString())).toMatchObject({ object: { value } });
  });

  test("a compressed request is inflated", async () => {
    const { request } = await serveWeb(version);
    const headers = { ...json, "content-encoding": "gzip" };
    expect((await request(paths.put, headers, gzipSync(putText))).code).toBe(200);
    const unknown = await request(paths.put, { ...json, "content-encoding": "br" }, "x");
    expect(unknown.code).toBe(501);
  });

  test("a request that can't be inflated is refused, with the code of the protocol", async () => {
    const { request } = await serveWeb(version);
    const compressed = enveloped("no gzip", 1);
    const unary = await request(paths.put, { ...json, "content-encoding": "gzip" }, "no gzip");
    expect([unary.code, unary.body.toString()]).toEqual([
      400,
      expect.stringContaining('"code":"invalid_argument","message":"Failed to decompress'),
    ]);
    for (const path of [paths.watch, paths.subscribe]) {
      const headers = { ...jsonStream, "connect-content-encoding": "gzip" };
      const [end] = messagesIn((await request(path, headers, compressed)).body);
      expect(end?.content.toString()).toContain('"error":{"code":"invalid_argument"');
    }
    const headers = { "content-type": "application/grpc-web", "grpc-encoding": "gzip" };
    const [end] = messagesIn((await request(paths.put, headers, compressed)).body);
    expect(end?.content.toString()).toMatch(/^grpc-status: 13\r\n/);
  });

  test.each([
    ["in its prefix", enveloped("{}").subarray(0, 3), "3 of 5 bytes"],
    ["behind its prefix", enveloped("{}").subarray(0, 6), "6 of 7 bytes"],
  ])("a message that ends %s is refused", async (_, body, parts) => {
    const { request } = await serveWeb(version);
    for (const path of [paths.watch, paths.subscribe]) {
      const [end] = messagesIn((await request(path, jsonStream, body)).body);
      expect(JSON.parse(end?.content.toString() ?? "")).toMatchObject({
        error: { code: "invalid_argument", message: expect.stringContaining(parts) },
      });
    }
  });

  test("a token of 12 KiB is accepted, and more than 16 KiB of headers are refused", async () => {
    const { request, storage } = await serveWeb(version);
    const token = (bytes: number) => ({ ...json, authorization: `Bearer ${"x".repeat(bytes)}` });
    expect((await request(paths.put, token(12 * 1024), putText)).code).toBe(200);
    const many = Object.fromEntries(Array.from({ length: 500 }, (_, i) => [`x-${i}`, ""]));
    for (const headers of [token(16 * 1024), { ...json, ...many }]) {
      const refused = request(paths.put, headers, putText);
      if (version === "2") await expect(refused).rejects.toThrow("ENHANCE_YOUR_CALM");
      else expect((await refused).code).toBe(431);
    }
    expect(await storage.currentRevision()).toBe(2);
  });

  test("a stream ends with its error, behind its messages", async () => {
    const { request } = await serveWeb(version);
    const body = enveloped('{"resource":"others"}');
    const answer = await request(paths.watch, jsonStream, body);
    expect(answer.code).toBe(200);
    expect(answer.headers["content-type"]).toBe("application/connect+json");
    const [end, ...rest] = messagesIn(answer.body);
    expect(rest).toEqual([]);
    expect(end?.flags).toBe(2);
    expect(JSON.parse(end?.content.toString() ?? "")).toMatchObject({
      error: { code: "not_found", details: [{ debug: { reason: "UNKNOWN_RESOURCE" } }] },
    });
  });

  test("the responses of a stream may be lines of JSON", async () => {
    const { request, storage, server, clock, recorder } = await serveWeb(version);
    await storage.put({ key: "a", value: Buffer.from("1") });
    const lines = { "content-type": "application/x-ndjson" };
    const body = '{"resource":"things","sendInitialEvents":true}';
    const watched = request(paths.watch, lines, body);
    // The position, and the initial state.
    while (recorder.sentMessages < 2) await new Promise(setImmediate);
    void server.drain(10_000);
    clock.advance(0);
    const answer = await watched;
    expect([answer.code, answer.headers["content-type"]]).toEqual([200, "application/x-ndjson"]);
    const [, initial, ...rest] = answer.body.toString().trim().split("\n");
    expect(JSON.parse(initial ?? "")).toMatchObject({
      ...{ revision: "2", initialEventsEnd: true },
      events: [{ type: "EVENT_TYPE_ADDED", object: { key: "a", value: "MQ==" } }],
    });
    expect(JSON.parse(rest.at(-1) ?? "")).toMatchObject({
      error: { code: "unavailable", details: [{ debug: { reason: "DRAINING" } }, {}] },
    });
  });

  test("a stream of lines that is refused has the status of HTTP", async () => {
    const { request } = await serveWeb(version);
    const lines = { "content-type": "application/x-ndjson" };
    const { code, body } = await request(paths.watch, lines, '{"resource":"others"}');
    expect(code).toBe(404);
    expect(JSON.parse(body.toString())).toMatchObject({ error: { code: "not_found" } });
  });

  test("gRPC-Web's text is base64 in both directions", async () => {
    const { request } = await serveWeb(version);
    const message = writeService.Put.requestSerialize({ ...putRequest, value: Buffer.from("1") });
    const headers = { "content-type": "application/grpc-web-text" };
    const text = enveloped(message).toString("base64");
    const answer = await request(paths.put, headers, text);
    expect(answer.code).toBe(200);
    expect(answer.headers["content-type"]).toBe("application/grpc-web-text");
    const parts = answer.body.toString().match(/[^=]+={0,2}/g) ?? [];
    const [response, trailers] = messagesIn(
      Buffer.concat(parts.map((part) => Buffer.from(part, "base64"))),
    );
    const decoded = writeService.Put.responseDeserialize(response?.content ?? Buffer.alloc(0));
    expect(decoded.revision).toBe("2");
    expect(trailers?.flags).toBe(0x80);
    expect(trailers?.content.toString()).toBe("grpc-status: 0\r\n");
    const invalid = await request(paths.put, headers, `${text.slice(0, 8)}!`);
    const [end] = messagesIn(Buffer.from(invalid.body.toString(), "base64"));
    expect(end?.content.toString()).toMatch(/^grpc-status: 12\r\ngrpc-message: Received%20no%20/);
  });

  test.each([
    ["the version", { "connect-protocol-version": "2" }, "connect-protocol-version"],
    ["the timeout", { "connect-timeout-ms": "1s" }, "connect-timeout-ms"],
  ])("%s of a request is checked", async (_, headers, named) => {
    const { request, storage } = await serveWeb(version);
    const { code, body } = await request(paths.put, { ...json, ...headers }, putText);
    expect(code).toBe(400);
    expect(body.toString()).toContain(named);
    expect(await storage.currentRevision()).toBe(1);
  });

  test.each([
    ["GET", { ":method": "GET", ...json }, 405],
    ["what a form sends", { "content-type": "application/x-www-form-urlencoded" }, 415],
    ["what a page may send without asking", { "content-type": "text/plain" }, 415],
    ["the content type of streams", jsonStream, 415],
    ["no content type", {}, 415],
    ["an unknown codec", { "content-type": "application/grpc-web+json" }, 415],
  ])("a write by %s is refused", async (_, headers, expected) => {
    const { request, storage } = await serveWeb(version);
    const { code } = await request(paths.put, headers, putText);
    expect(code).toBe(expected);
    expect(await storage.currentRevision()).toBe(1);
  });

  test("a method that does not exist is not found", async () => {
    const { request } = await serveWeb(version);
    const { code, body } = await request("/watchfanout.v1.WriteService/Drop", json, "{}");
    expect(code).toBe(404);
    expect(body.toString()).toContain("/watchfanout.v1.WriteService/Drop");
  });

  test.each([
    ["no origin is allowed", [], page],
    ["another origin is allowed", [page], "https://other.example"],
    ["a part of it is allowed", [page], `${page}.attacker.example`],
    ["the page has no origin", [page], "null"],
  ])("a page can't call if %s", async (_, allowedOrigins, origin) => {
    const { request, storage } = await serveWeb(version, { allowedOrigins });
    const preflight = { ":method": "OPTIONS", origin, "access-control-request-method": "POST" };
    const asked = await request(paths.put, preflight);
    expect(asked.code).toBe(403);
    expect(asked.headers["access-control-allow-origin"]).toBeUndefined();
    // As if its host resolved to this server: then the browser does not ask.
    const written = await request(paths.put, { ...json, origin }, putText);
    expect(written.code).toBe(403);
    expect(written.body.toString()).toContain("--web-origin");
    expect(await storage.currentRevision()).toBe(1);
  });

  test("a page of an allowed origin may call, and see errors", async () => {
    const { request } = await serveWeb(version, { allowedOrigins: [page, "*"] });
    const origin = page;
    const preflight = { ":method": "OPTIONS", origin, "access-control-request-method": "POST" };
    const asked = await request(paths.put, preflight);
    expect(asked.code).toBe(204);
    expect(asked.headers).toMatchObject({
      "access-control-allow-origin": page,
      "access-control-allow-methods": "POST",
      "access-control-allow-headers": expect.stringContaining("authorization"),
      "access-control-allow-credentials": "true",
      vary: "origin",
    });
    const written = await request(paths.put, { ...json, origin }, putText);
    expect(written.code).toBe(200);
    expect(written.headers["access-control-allow-origin"]).toBe(page);
    const failed = await request(paths.get, { ...json, origin }, "{}");
    expect(failed.code).toBe(404);
    expect(failed.headers).toMatchObject({
      "access-control-allow-origin": page,
      "access-control-expose-headers": expect.stringContaining("grpc-status"),
    });
    const untyped = await request(paths.get, { "content-type": "text/plain", origin }, "{}");
    expect(untyped).toMatchObject({ code: 415, headers: { "access-control-allow-origin": page } });
    const other = await request(paths.get, { ...json, origin: "https://b.example" }, "{}");
    expect(other.headers["access-control-allow-origin"]).toBe("*");
    expect(other.headers["access-control-allow-credentials"]).toBeUndefined();
  });
});

test("a stream of requests needs HTTP/2, unless all of them are there at once", async () => {
  const { request } = await serveWeb("1.1");
  const chunked = { ...jsonStream, "transfer-encoding": "chunked" };
  expect((await request(paths.subscribe, chunked, enveloped("{}"))).code).toBe(505);
  const { code, body } = await request(paths.subscribe, jsonStream, enveloped("{}"));
  expect([code, messagesIn(body).at(-1)?.flags]).toEqual([200, 2]);
});

test("requests on one connection of HTTP/1 are answered in their order", async () => {
  const { request, server } = await serveWeb("1.1");
  const answers = await Promise.all(
    Array.from({ length: 20 }, (_, i) =>
      request(paths.put, json, JSON.stringify({ ...putRequest, key: `k${i}` })),
    ),
  );
  expect(answers.every(({ code }) => code === 200)).toBe(true);
  expect(server.stats().requests.bytes).toBe(0);
});
