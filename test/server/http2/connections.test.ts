import { readFileSync } from "node:fs";
import { createConnection, type Socket } from "node:net";
import { describe, expect, onTestFinished, test } from "vitest";
import { listWatchService } from "../../../src/wire/services.ts";
import { serveThings } from "../served.ts";
import { RawConnection } from "./raw-connection.ts";

const resource = "things";
const { Watch, List } = listWatchService;
const things = Watch.requestSerialize({ resource });
const certificates = new URL("../../config/certificates/", import.meta.url);
const cert = readFileSync(new URL("cert.pem", certificates));
const key = readFileSync(new URL("key.pem", certificates));

/** A connection that sends nothing. */
async function mute(
  port: number,
  localAddress: string = "127.0.0.1",
): Promise<{ socket: Socket; closed: Promise<unknown> }> {
  const socket = createConnection({ port, host: "127.0.0.1", localAddress })
    .on("error", () => {})
    .resume();
  onTestFinished(() => void socket.destroy());
  const closed = new Promise((resolve) => socket.once("close", resolve));
  await new Promise((resolve) => socket.once("connect", resolve));
  return { socket, closed };
}

/** A connection with an open watch. */
async function stream(port: number, localAddress?: string): Promise<RawConnection> {
  const raw = new RawConnection(port, undefined, localAddress);
  await raw.call(Watch.path, things).drain().answered;
  return raw;
}

describe("Beyond its bound a server", () => {
  const limits = { maxConnections: 3 };

  test("closes the connection that has been without a call for longest for a new one", async () => {
    const { server } = await serveThings({ server: { limits } });
    const watch = await stream(server.port);
    const first = await mute(server.port);
    const second = await mute(server.port);
    await stream(server.port);
    await first.closed;
    expect(second.socket.destroyed).toBe(false);
    expect(watch.session.destroyed).toBe(false);
  });

  test("closes the oldest connection of the host with the most for another host, while all have calls", async () => {
    const { server } = await serveThings({ server: { limits } });
    const ofHost: RawConnection[] = [];
    for (let i = 0; i < 3; i++) ofHost.push(await stream(server.port));
    const closed = new Promise((resolve) => ofHost[0]?.session.once("close", resolve));
    const others = [await stream(server.port, "127.0.0.2")];
    await closed;
    expect(ofHost.map(({ session }) => session.destroyed)).toEqual([true, false, false]);
    // With a connection more it would have as many as the first host.
    const refused = new RawConnection(server.port, undefined, "127.0.0.2");
    await new Promise((resolve) => refused.session.once("close", resolve));
    expect([...ofHost.slice(1), ...others].map(({ session }) => session.destroyed)).toEqual(
      new Array(3).fill(false),
    );
  });

  test("closes no connection of other hosts for those of the host with the most, and counts them", async () => {
    const { server } = await serveThings({ server: { limits: { maxConnections: 4 } } });
    const other = await mute(server.port, "127.0.0.2");
    const watch = await stream(server.port, "127.0.0.3");
    const flood = [];
    for (let i = 0; i < 20; i++) flood.push(await mute(server.port));
    await Promise.all(flood.slice(0, -2).map(({ closed }) => closed));
    expect(other.socket.destroyed).toBe(false);
    expect(watch.session.destroyed).toBe(false);
    expect(flood.slice(-2).map(({ socket }) => socket.destroyed)).toEqual([false, false]);
    expect(server.stats().attacks.get("too_many_connections")).toBe(18);
  });

  test("refuses new ones while all have calls, and accepts again when one is idle", async () => {
    const { server } = await serveThings({ server: { limits } });
    const [idle] = [await stream(server.port), await stream(server.port)];
    const last = await stream(server.port);
    const refused = await mute(server.port);
    await refused.closed;
    last.session.destroy();
    while (server.connections > 2) await new Promise((resolve) => setImmediate(resolve));
    const raw = new RawConnection(server.port);
    const list = raw.call(List.path, List.requestSerialize({ resource })).drain();
    expect((await list.ended).code).toBe(0);
    expect(idle?.session.destroyed).toBe(false);
    expect(server.connections).toBe(3);
  });
});

test("A connection that does not answer a ping is closed, also a silent one", async () => {
  const limits = { keepaliveTimeMs: 10, keepaliveTimeoutMs: 10 };
  const { server, clock } = await serveThings({ server: { limits } });
  const { closed } = await mute(server.port);
  const advancing = setInterval(() => clock.advance(10), 1);
  onTestFinished(() => clearInterval(advancing));
  await closed;
  while (server.connections > 0) await new Promise((resolve) => setImmediate(resolve));
});

describe("With TLS", () => {
  test("a connection has 10 s to finish its handshake", async () => {
    const { server, clock } = await serveThings({ server: { tls: { cert, key } } });
    const { closed, socket } = await mute(server.port);
    while (server.connections < 1) await new Promise((resolve) => setImmediate(resolve));
    clock.advance(9_000);
    expect(socket.destroyed).toBe(false);
    clock.advance(3_000);
    await closed;
    expect(server.connections).toBe(0);
  });
});
