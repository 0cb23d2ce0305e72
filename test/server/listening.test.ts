import { readFileSync } from "node:fs";
import { createConnection } from "node:net";
import { credentials } from "@grpc/grpc-js";
import { pino } from "pino";
import { describe, expect, onTestFinished, test } from "vitest";
import { startServer } from "../../src/server/server.ts";
import { ManualTimers } from "./limits/manual-timers.ts";
import { SetGauge } from "./pressure/set-gauge.ts";
import { serve, serveThings } from "./served.ts";
import { TestClient } from "./test-client.ts";

const certificates = new URL("../config/certificates/", import.meta.url);
const cert = readFileSync(new URL("cert.pem", certificates));
const key = readFileSync(new URL("key.pem", certificates));
const otherKey = readFileSync(new URL("other-key.pem", certificates));

const resource = "things";

function clientOf(port: number, ...channel: Parameters<typeof credentials.createSsl>): TestClient {
  const client = new TestClient(port, credentials.createSsl(...channel));
  onTestFinished(() => client.close());
  return client;
}

describe("With TLS", () => {
  test("serves clients that trust the certificate, and none in plain text", async () => {
    const { server, client } = await serveThings({ server: { tls: { cert, key } } });
    await clientOf(server.port, cert).list({ resource });
    await expect(clientOf(server.port, null).list({ resource })).rejects.toMatchObject({
      reason: "UPSTREAM_UNAVAILABLE",
    });
    await expect(client.list({ resource })).rejects.toMatchObject({
      reason: "UPSTREAM_UNAVAILABLE",
    });
  });

  test("with a client CA serves only clients with a certificate of it", async () => {
    const { server } = await serveThings({ server: { tls: { cert, key, clientCa: cert } } });
    await clientOf(server.port, cert, key, cert).list({ resource });
    await expect(clientOf(server.port, cert).list({ resource })).rejects.toMatchObject({
      reason: "UPSTREAM_UNAVAILABLE",
    });
  });

  test("drains connections that have not finished their handshake", async () => {
    const { server, clock, recorder } = await serveThings({ server: { tls: { cert, key } } });
    const mute = createConnection(server.port, "127.0.0.1");
    const closed = new Promise((resolve) => mute.once("close", resolve));
    await clientOf(server.port, cert).list({ resource });
    await recorder.untilEnded(1);
    const drained = server.drain(10_000);
    clock.advance(1_000);
    await Promise.all([drained, closed]);
  });
});

describe("A server does not start with", () => {
  const options = {
    resources: new Map(),
    clock: new ManualTimers(),
    logger: pino({ level: "silent" }),
  };

  test("an address in use", async () => {
    const { server } = await serve(new Map(), new ManualTimers());
    const listen = { host: "127.0.0.1", port: server.port };
    const gauge = new SetGauge();
    const clock = new ManualTimers();
    const starting = startServer({ ...options, clock, listen, memoryGauges: [gauge] });
    await expect(starting).rejects.toThrow(
      new RegExp(`Can't listen on 127.0.0.1:${server.port}: .*EADDRINUSE`),
    );
    // Nothing of it remains.
    expect([gauge.closed, clock.pendingTimers]).toEqual([1, 0]);
  });

  test("an address of another machine, which the error names as clients do", async () => {
    const starting = startServer({ ...options, listen: { host: "2001:db8::1", port: 50051 } });
    await expect(starting).rejects.toThrow("Can't listen on [2001:db8::1]:50051: ");
  });

  test.each([
    ["a key that is not the certificate's", { cert, key: otherKey }],
    ["an invalid certificate", { cert: Buffer.from("no"), key }],
    ["an invalid key", { cert, key: Buffer.from("no") }],
    [
      "an invalid client CA",
      { cert, key, clientCa: Buffer.from("-----BEGIN CERTIFICATE-----\nno") },
    ],
  ])("%s", async (_name, tls) => {
    const listen = { host: "127.0.0.1", port: 0 };
    await expect(startServer({ ...options, listen, tls })).rejects.toThrow(
      /^The TLS (certificate or key|CA) can't be used: /,
    );
  });
});
