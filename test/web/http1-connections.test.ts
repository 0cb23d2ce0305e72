import { createConnection } from "node:net";
import { text } from "node:stream/consumers";
import { connect as connectTls } from "node:tls";
import { expect, onTestFinished, test, vi } from "vitest";
import { ConnectDoor } from "../../src/web/connect-door.ts";
import { connectTo, requestOf } from "../etcd-api/gateway/http.ts";
import { authority, serverCertificate } from "../server/authenticated-calls.ts";
import { ManualTimers } from "../server/limits/manual-timers.ts";
import { ScriptedResource } from "../server/scripted-resource.ts";
import { serve } from "../server/served.ts";
import { paths, serveWeb, type WebServed } from "./http.ts";

/*
 * No response of HTTP/1.1 is lost to what else happens on its connection.
 */

const type = "Content-Type: application/json";
const putOf = (key: string): string =>
  requestOf(paths.put, JSON.stringify({ resource: "things", key, value: "" }), [type]);

function connection({ server }: WebServed, request: string): ReturnType<typeof connectTo> {
  return connectTo(`127.0.0.1:${server.port}`, request);
}

test("A client that sends all of its request before it reads gets the refusal.", async () => {
  const served = await serveWeb("1.1");
  // More than the operating system takes for a peer that does not read.
  const body = "x".repeat(16 * 1024 ** 2);
  const client = connection(served, requestOf(paths.put, body, ["Content-Type: text/plain"]));
  client.socket.pause();
  while (client.socket.writableLength > 0) await new Promise(setImmediate);
  client.socket.resume();
  await client.closed;
  expect(client.received()).toMatch(
    /^HTTP\/1.1 415 [\s\S]*\r\nconnection: close\r\n[\s\S]*proto\.\n$/i,
  );
});

test("A request whose rest does not come is not waited for.", async () => {
  const served = await serveWeb("1.1");
  const text = requestOf(paths.put, "x".repeat(1_000), ["Content-Type: text/plain"]).slice(0, -10);
  const client = connection(served, text);
  await client.until(/proto\.\n$/);
  expect(served.server.connections).toBe(1);
  while (served.server.connections > 0) {
    served.clock.advance(1_000);
    await new Promise(setImmediate);
  }
  await client.closed;
});

test("Connections that are refused, and that their clients leave open, give way to others.", async () => {
  const limits = { maxConnections: 10, maxConnectionsPerIdentity: 1 };
  const served = await serveWeb("1.1", {}, { server: { limits } });
  const first = connection(served, putOf("a"));
  await first.until(/"version":"1"/);
  for (let i = 0; i < 30; i++) {
    const address = { port: served.server.port, host: "127.0.0.1" };
    const refused = createConnection({ ...address, allowHalfOpen: true });
    onTestFinished(() => void refused.destroy());
    refused.on("error", () => {}).write(putOf("a"));
    expect(await text(refused)).toMatch(/^HTTP\/1\.1 429 [\s\S]*\r\nconnection: close\r\n/i);
    expect(served.server.connections).toBe(Math.min(i + 2, 10));
  }
  first.socket.write(putOf("a"));
  await first.until(/"version":"2"/);
});

test("A response is sent whole if another request arrives while its connection ends.", async () => {
  const served = await serveWeb("1.1");
  const value = Buffer.alloc(1024 ** 2, "x");
  for (let i = 0; i < 16; i++) await served.storage.put({ key: `k${i}`, value });
  const list = requestOf(paths.list, '{"resource":"things"}', [type]);
  const client = connection(served, list);
  client.socket.pause();
  while (served.server.stats().unsent.bytes === 0) await new Promise(setImmediate);
  served.server.drainOldest(1);
  client.socket.write(putOf("later"));
  for (let i = 0; i < 100; i++) await new Promise(setImmediate);
  client.socket.resume();
  await client.until(/"historyId":"[^"]*"\}/);
});

test("The connection of a stream that ended with DRAINING answers one more request, and says that it closes.", async () => {
  const served = await serveWeb("1.1");
  const watch = requestOf(paths.watch, '{"resource":"things"}', [
    "Content-Type: application/x-ndjson",
  ]);
  const client = connection(served, watch);
  await client.until(/historyId/);
  served.server.drainOldest(1);
  await client.until(/DRAINING[\s\S]*\r\n0\r\n\r\n$/);
  client.socket.write(putOf("a"));
  const received = await client.until(/"key":"a"[\s\S]*\}$/);
  expect(received.slice(received.indexOf("DRAINING"))).toMatch(/\r\nconnection: close\r\n/i);
  await client.closed;
});

test("The connection of a stream that ended with DRAINING closes if no request comes.", async () => {
  const served = await serveWeb("1.1");
  const lines = "Content-Type: application/x-ndjson";
  const client = connection(served, requestOf(paths.watch, '{"resource":"things"}', [lines]));
  await client.until(/historyId/);
  served.server.drainOldest(1);
  await client.until(/DRAINING[\s\S]*\r\n0\r\n\r\n$/);
  while (served.server.connections > 0) {
    served.clock.advance(1_000);
    await new Promise(setImmediate);
  }
  await client.closed;
});

test("Over TLS a request in several records is read while the response before it is not accepted yet.", async () => {
  const served = await serveWeb("1.1", {}, { server: { tls: serverCertificate } });
  const value = Buffer.alloc(1024 ** 2, "x");
  for (let i = 0; i < 16; i++) await served.storage.put({ key: `k${i}`, value });
  const socket = connectTls({
    ...{ port: served.server.port, host: "127.0.0.1" },
    ...{ ca: authority.cert, servername: "localhost" },
  });
  onTestFinished(() => void socket.destroy());
  let received = "";
  socket.setEncoding("latin1").on("data", (chunk: string) => {
    received += chunk;
  });
  socket.pause().write(requestOf(paths.list, '{"resource":"things"}', [type]));
  while (socket.readableLength === 0) await new Promise(setImmediate);
  // A record has 16 KiB at most.
  const put = { resource: "things", key: "later", value: "eHh4".repeat(10_000) };
  socket.write(requestOf(paths.put, JSON.stringify(put), [type]));
  for (let i = 0; i < 100; i++) await new Promise(setImmediate);
  socket.resume();
  await vi.waitFor(() => expect(received.slice(-1_000)).toContain('"version":"1"'), 60_000);
  expect(received).toContain('"key":"later"');
});

test("A pipelined request is finished while the server shuts down, if it takes long as well.", async () => {
  const scripted = new ScriptedResource();
  const finish: (() => void)[] = [];
  scripted.answer = () =>
    new Promise((_resolve, reject) => finish.push(() => reject(new Error("at last"))));
  const clock = new ManualTimers();
  const webDoor = new ConnectDoor();
  const { server } = await serve(new Map([["things", scripted]]), clock, { webDoor });
  const get = requestOf(paths.get, '{"resource":"things","key":"a"}', [type]);
  const client = connectTo(`127.0.0.1:${server.port}`, get.repeat(2));
  const untilHandled = async (count: number): Promise<void> => {
    while (finish.length < count) await new Promise(setImmediate);
  };
  await untilHandled(1);
  const drained = server.drain(60_000);
  finish[0]?.();
  await untilHandled(2);
  // A server without calls cuts its connections after 1 s.
  clock.advance(2_000);
  finish[1]?.();
  await client.closed;
  expect(client.received().match(/"reason":"INTERNAL"/g)).toHaveLength(2);
  await drained;
});
