import { connect } from "node:http2";
import { expect, onTestFinished, test, vi } from "vitest";
import { listWatchService, writeService } from "../../src/wire/services.ts";
import { connectTo, requestOf } from "../etcd-api/gateway/http.ts";
import fc, { runs } from "../property.ts";
import { enveloped, json, paths, serveWeb, type WebServed } from "./http.ts";

/*
 * Clients by HTTP that send half a request, pipeline, never read, or send anything.
 */

const type = "Content-Type: application/json";
const watchBody = enveloped('{"resource":"things","sendInitialEvents":true}');

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise(setImmediate);
}

/** Lets up to ten minutes pass until the condition holds. A socket may need longer than the turns of these. */
async function pass({ clock }: WebServed, condition: () => boolean): Promise<void> {
  for (let second = 0; second < 600 && !condition(); second++) {
    clock.advance(1_000);
    for (let i = 0; i < 20; i++) await new Promise(setImmediate);
  }
  await until(condition);
}

test("Half a request of HTTP/1 is refused after a while, and its connection is closed.", async () => {
  const served = await serveWeb("1.1");
  const { server, storage } = served;
  const half = requestOf(paths.put, "x".repeat(1_000), [type]).slice(0, -10);
  const client = connectTo(`127.0.0.1:${server.port}`, half);
  await until(() => server.stats().requests.bytes > 0);
  await pass(served, () => client.received() !== "");
  expect(await client.until(/\}$/)).toMatch(/^HTTP\/1.1 504 [\s\S]*\r\nconnection: close/i);
  await client.closed;
  await until(() => server.connections === 0);
  expect(server.stats().requests.bytes).toBe(0);
  expect(await storage.currentRevision()).toBe(1);
});

test("Pipelined requests of HTTP/1 are answered in order, up to a bound.", async () => {
  const { server } = await serveWeb("1.1");
  const put = (key: string) =>
    requestOf(paths.put, JSON.stringify({ resource: "things", key, value: "" }), [type]);
  const few = Array.from({ length: 20 }, (_, i) => put(`k${String(i).padStart(2, "0")}`));
  const client = connectTo(`127.0.0.1:${server.port}`, few.join(""));
  const received = await client.until(/"k19"[\s\S]*\}$/);
  const keys = [...received.matchAll(/"key":"(k\d\d)"/g)].map(([, key]) => key);
  expect(keys).toEqual(few.map((_, i) => `k${String(i).padStart(2, "0")}`));
  const many = connectTo(`127.0.0.1:${server.port}`, put("a").repeat(200));
  await many.closed;
  expect(server.stats().requests.bytes).toBe(0);
});

test("Of the pipelined requests of a connection one is handled in each turn of the event loop.", async () => {
  let handled = 0;
  const tracer = {
    begin: () => {
      handled++;
      return undefined;
    },
  };
  const { server } = await serveWeb("1.1", {}, { server: { tracer } });
  const get = requestOf(paths.get, '{"resource":"things","key":"a"}', [type]);
  connectTo(`127.0.0.1:${server.port}`, get.repeat(20));
  let most = 0;
  for (let before = 0; before < 20; ) {
    await new Promise(setImmediate);
    most = Math.max(most, handled - before);
    before = handled;
  }
  expect(most).toBe(1);
});

test.each([
  ["1.1", "connect+json"],
  ["2", "connect+json"],
  ["2", "connect+proto"],
  ["1.1", "grpc-web-text"],
  ["2", "grpc-web"],
] as const)("Over HTTP/%s a client of %s that reads nothing is ended.", async (version, codec) => {
  const served = await serveWeb(version);
  const { server, storage, recorder } = served;
  const value = Buffer.alloc(1024 ** 2, "x");
  const watch = { resource: "things", send_initial_events: true };
  const binary = enveloped(listWatchService.Watch.requestSerialize(watch));
  const body = codec.endsWith("json")
    ? watchBody
    : codec.endsWith("text")
      ? binary.toString("base64")
      : binary;
  if (version === "2") {
    const session = connect(`http://127.0.0.1:${server.port}`);
    onTestFinished(() => session.destroy());
    session.on("error", () => {});
    const headers = { ":method": "POST", ":path": paths.watch };
    const stream = session.request({ ...headers, "content-type": `application/${codec}` });
    stream.on("error", () => {}).end(body);
  } else {
    const head = [`Content-Type: application/${codec}`];
    const client = connectTo(
      `127.0.0.1:${server.port}`,
      requestOf(paths.watch, body.toString("latin1"), head),
    );
    client.socket.pause();
  }
  await until(() => server.openStreams === 1);
  let puts = 0;
  let most = 0;
  await pass(served, () => {
    if (puts++ < 40) void storage.put({ key: `k${puts % 4}`, value });
    most = Math.max(most, server.stats().unsent.bytes);
    return puts > 40 && server.openStreams === 0;
  });
  // One batch, and its other form.
  expect(most).toBeGreaterThan(0);
  expect(most).toBeLessThan(16 * 1024 ** 2);
  await pass(served, () => server.stats().unsent.bytes === 0);
  await recorder.untilEnded(1);
  expect(recorder.calls[0]?.code).toBe("RESOURCE_EXHAUSTED");
});

/** Large requests in JSON of a unary method and of a stream of requests, without their last byte, and what is answered. */
const largeRequests = [
  {
    ...{ shape: "unary", path: paths.put, head: type, prefix: "", answer: /"version":"1"/ },
    json: (key: string) => ({ resource: "things", key, value: "" }),
    ...{ late: /^HTTP\/1.1 504 /, heldOnceEnded: 0 },
  },
  {
    ...{ shape: "stream", path: paths.subscribe, head: "Content-Type: application/connect+json" },
    // The length of what follows.
    ...{ prefix: "\0\0\x14\0\0", answer: /"historyId"/ },
    json: () => ({ add: { id: "1", watch: { resource: "things" } } }),
    // A stream counts until it is closed.
    ...{ late: /"deadline_exceeded"/, heldOnceEnded: 64 * 1024 + 5 + 0x140000 },
  },
].map(({ path, head, prefix, json, ...expected }) => ({
  ...expected,
  requestFor: (key: string, ...heads: string[]) => {
    const text = JSON.stringify(json(key)).slice(0, -1).padEnd(0x13ffff);
    return requestOf(path, `${prefix}${text}}`, [head, ...heads]).slice(0, -1);
  },
}));

/** Sends requests at once, each on a connection of its own. Resolves once the server has all of them. */
async function connectWith({ server }: WebServed, requests: readonly string[]) {
  const clients = requests.map((request) => connectTo(`127.0.0.1:${server.port}`, request));
  const received = (): number =>
    clients.reduce((sum, { socket }) => sum + socket.bytesWritten - socket.writableLength, 0);
  const size = requests.reduce((sum, { length }) => sum + length, 0);
  await until(() => received() === size);
  // The system has all of it. The server reads a part of each in a turn.
  for (let i = 0; i < 500; i++) await new Promise(setImmediate);
  return clients;
}

/** Counts the large requests that are converted. Each takes longer than a turn may. */
function countConverted({ clock }: WebServed): { count: number } {
  const converted = { count: 0 };
  const { parse } = JSON;
  const spy = vi.spyOn(JSON, "parse").mockImplementation((text, reviver) => {
    if (text.length > 1_000_000) {
      converted.count++;
      clock.advance(20);
    }
    return parse(text, reviver);
  });
  onTestFinished(() => spy.mockRestore());
  return converted;
}

test.each(largeRequests)(
  "Large requests in JSON ($shape) that arrive together are converted in turns of their own.",
  async ({ requestFor, answer }) => {
    const served = await serveWeb("1.1");
    const requests = ["a", "b", "c", "d"].map((key) => requestFor(key));
    const clients = await connectWith(served, requests);
    const converted = countConverted(served);
    for (const { socket } of clients) socket.write("}");
    let most = 0;
    for (let before = 0; before < clients.length; ) {
      await new Promise(setImmediate);
      most = Math.max(most, converted.count - before);
      before = converted.count;
    }
    expect(most).toBe(1);
    for (const client of clients) await client.until(answer);
    expect(served.server.stats().requests.bytes).toBe(0);
  },
);

test.each(largeRequests)(
  "A large request in JSON ($shape) is not converted, and does not count, once its call has ended.",
  async ({ requestFor, late, heldOnceEnded }) => {
    const served = await serveWeb("1.1");
    const { server, clock } = served;
    const requests = [..."abcdefgh"].map((key) => requestFor(key, "Connect-Timeout-Ms: 10000"));
    const clients = await connectWith(served, requests);
    const converted = countConverted(served);
    for (const { socket } of clients) socket.write("}");
    await until(() => converted.count > 0);
    const { count } = converted;
    expect(count).toBeLessThan(clients.length);
    clock.advance(10_000);
    expect(server.stats().requests.bytes).toBeLessThanOrEqual(clients.length * heldOnceEnded);
    for (const client of clients.slice(count)) await client.until(late);
    expect(converted.count).toBe(count);
    await until(() => server.stats().requests.bytes === 0);
  },
);

test("JSON of a large response counts until it is accepted, beside what it is made of.", async () => {
  const served = await serveWeb("2");
  const { server, storage } = served;
  const value = Buffer.alloc(1024 ** 2, "x");
  for (const key of ["a", "b", "c"]) await storage.put({ key, value });
  const session = connect(`http://127.0.0.1:${server.port}`, {
    settings: { initialWindowSize: 0 },
  });
  onTestFinished(() => session.destroy());
  session.on("error", () => {});
  const stream = session.request({ ":method": "POST", ":path": paths.list, ...json });
  stream.on("error", () => {}).end('{"resource":"things"}');
  let isAnswered = false;
  stream.on("response", () => {
    isAnswered = true;
  });
  await until(() => isAnswered);
  expect(server.stats().unsent.bytes).toBeGreaterThan(3 * (value.length * (1 + 4 / 3)));
  session.destroy();
  await pass(served, () => server.stats().unsent.bytes === 0);
});

const contentTypes = [
  ...["application/json", "application/proto", "application/connect+json"],
  ...["application/connect+proto", "application/grpc-web", "application/grpc-web-text+proto"],
];
const methods = [...Object.values(paths), "/a.B/C"];
const headers = fc.record(
  {
    "content-encoding": fc.constantFrom("gzip", "identity", "x"),
    "connect-content-encoding": fc.constantFrom("gzip", "deflate", "x"),
    "grpc-encoding": fc.constantFrom("gzip", "x"),
    "connect-timeout-ms": fc.constantFrom("1000", "0", "-1", "99999999999", "9999999999"),
    "grpc-timeout": fc.constantFrom("1S", "0n", "x", "99999999H"),
    "connect-protocol-version": fc.constantFrom("1", "2"),
    "accept-encoding": fc.constantFrom("gzip", "*", "zstd, gzip"),
  },
  { requiredKeys: [] },
);
const bytes = fc.uint8Array({ maxLength: 200 }).map((each) => Buffer.from(each));
const message = fc.oneof(
  bytes,
  fc.json().map((each) => Buffer.from(each)),
  fc.constant(Buffer.from('{"resource":"things","key":"a"}')),
  fc.constant(Buffer.from(writeService.Put.requestSerialize({ resource: "things", key: "a" }))),
);
const content = fc.oneof(
  message,
  fc.tuple(message, fc.constantFrom(0, 1, 2, 0x80)).map(([each, flags]) => enveloped(each, flags)),
  message.map((each) => Buffer.from(enveloped(each).toString("base64"))),
  fc.tuple(message, message).map((each) => Buffer.concat(each.map((one) => enveloped(one)))),
);

test.each(["1.1", "2"] as const)("Over HTTP/%s anything gets a response.", async (version) => {
  const served = await serveWeb(version);
  const { request, server, recorder } = served;
  const given = fc.tuple(fc.constantFrom(...methods), fc.constantFrom(...contentTypes));
  await fc.assert(
    fc.asyncProperty(given, headers, content, async ([path, contentType], others, body) => {
      const answer = request(path, { "content-type": contentType, ...others }, body);
      // Those of a watch that is valid end at a deadline.
      const ended = answer.catch((error: Error) => error);
      let isOver = false;
      void ended.then(() => {
        isOver = true;
      });
      // A timeout of 0 passes at once, and its response needs turns to arrive.
      for (let i = 0; i < 5_000 && !isOver; i++) {
        if (i % 500 === 499) served.clock.advance(1);
        await new Promise(setImmediate);
      }
      await pass(served, () => isOver);
      const { code } = (await ended) as { code?: unknown };
      expect([200, 400, 404, 409, 415, 429, 499, 500, 501, 503, 504, 505]).toContain(code);
    }),
    { numRuns: runs(600) },
  );
  const { requests, retained, unsent } = server.stats();
  expect([requests.bytes, retained.bytes, unsent.bytes]).toEqual([0, 0, 0]);
  expect(server.openStreams).toBe(0);
  expect(recorder.logged.filter((line) => line.includes("internal error"))).toEqual([]);
  const works = await request(paths.list, json, '{"resource":"things"}');
  expect(works.code).toBe(200);
});
