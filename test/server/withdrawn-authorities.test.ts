import { once } from "node:events";
import { connect as connectTcp } from "node:net";
import { connect as connectTls, type TLSSocket } from "node:tls";
import { describe, expect, onTestFinished, test } from "vitest";
import { healthService, listWatchService, writeService } from "../../src/wire/services.ts";
import { Authority, type Issued } from "../identity/authority.ts";
import {
  authority,
  bearer,
  clientWith,
  headers,
  list,
  resource,
  serveAuthenticated,
} from "./authenticated-calls.ts";
import { framed, RawConnection } from "./http2/raw-connection.ts";

const other = await Authority.create("CN=Another authority");
const both = Buffer.concat([authority.cert, other.cert]);
const alice = await authority.issue({ cn: "alice" });
const intermediate = await other.intermediate("CN=Intermediate");
const next = Buffer.concat([other.cert, intermediate.cert]);
/** Has a certificate of an intermediate authority, and sends the certificate of that with its own. */
const ofIntermediate = await intermediate.issue({ cn: "bob" });
const bob: Issued = {
  key: ofIntermediate.key,
  cert: Buffer.concat([ofIntermediate.cert, intermediate.cert]),
};
const revoked = {
  reason: "UNAUTHENTICATED",
  metadata: { resume_revision: expect.stringMatching(/^\d+$/) },
};

/** Serves clients of both authorities. */
async function serveBoth(options: Parameters<typeof serveAuthenticated>[0] = {}) {
  const served = await serveAuthenticated({ clientAuth: "require", ...options });
  served.server.replaceClientCa(both);
  await new Promise((resolve) => setImmediate(resolve));
  return served;
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setImmediate(resolve));
}

describe("When a client authority is withdrawn", () => {
  test("the streams and connections of its certificates end, and those of others continue", async () => {
    const { server, storage, clock } = await serveBoth();
    const [ending, idle, staying] = [alice, await authority.issue({ cn: "idle" }), bob].map(
      (issued) => clientWith(server.port, issued),
    );
    const watches = Array.from({ length: 50 }, () => ending?.watch({ resource }));
    const health = ending?.stream(healthService.Watch, { service: "" });
    const withToken = ending?.watch({ resource }, bearer("static"));
    const others = staying?.watch({ resource });
    await Promise.all([...watches, health, withToken, others].map((stream) => stream?.next()));
    await idle?.list({ resource });
    expect(server.connections).toBe(3);

    server.replaceClientCa(next);
    for (const watch of [...watches, withToken]) {
      expect(await watch?.ended).toMatchObject(revoked);
    }
    expect(await health?.ended).toMatchObject({ reason: "UNAUTHENTICATED" });
    await until(() => server.connections === 1);
    expect(server.openStreams).toBe(1);
    expect(clock.pendingTimers).toBeGreaterThan(0);
    await storage.put({ key: "a", value: Buffer.from("1") });
    expect((await others?.next())?.events).toHaveLength(1);
    others?.cancel();
    await expect(ending?.list({ resource })).rejects.toMatchObject({
      reason: "UPSTREAM_UNAVAILABLE",
    });
    await list(clientWith(server.port, await other.issue()));
  });

  test("the streams of callers that a proxy of it forwards end as well", async () => {
    const trustedForwarders = { loopback: false, names: new Set(["alice"]) };
    const { server, authenticators } = await serveBoth({
      ...{ clientAuth: "request", trustedForwarders },
    });
    const header = headers({ "x-forwarded-client-cert": "URI=spiffe://corp/a" });
    const watch = clientWith(server.port, alice).watch({ resource }, header);
    await watch.next();
    expect(authenticators.identities).toMatchObject([{ source: "forwarded-certificate" }]);
    server.replaceClientCa(other.cert);
    expect(await watch.ended).toMatchObject(revoked);
  });

  test("calls that have begun on its connections have no effect, whatever their identity is", async () => {
    const trustedForwarders = { loopback: false, names: new Set(["alice"]) };
    const { server, storage } = await serveBoth({ trustedForwarders });
    const before = await storage.currentRevision();
    const { cert, key } = alice;
    const raw = new RawConnection(server.port, { cert, key, ca: authority.cert });
    const { Put, Get } = { ...writeService, ...listWatchService };
    const message = Put.requestSerialize({ resource, key: "a", value: Buffer.from("1") });
    const puts = [
      { "x-forwarded-client-cert": "URI=spiffe://corp/a" },
      { authorization: "Bearer static" },
      {},
    ].map((fields) => raw.open(Put.path, fields).drain());
    // The server has got their headers once it answers a later call.
    await raw.call(Get.path, Get.requestSerialize({ resource, key: "a" })).drain().ended;
    server.replaceClientCa(other.cert);
    await once(raw.session, "goaway");
    for (const { stream } of puts) stream.end(framed(message));
    for (const { ended } of puts) expect(await ended).toMatchObject({ code: 16 });
    expect(await storage.currentRevision()).toBe(before);
  });

  test("an intermediate that is not in the file is not known: its clients connect again, and are verified", async () => {
    const { server, clock } = await serveBoth();
    const client = clientWith(server.port, bob);
    const watch = client.watch({ resource });
    await watch.next();
    server.replaceClientCa(other.cert);
    expect(await watch.ended).toMatchObject(revoked);
    clock.advance(1);
    const again = client.watch({ resource });
    await again.next();
    again.cancel();
  });

  test("nothing ends if another one is added, or its certificate is renewed", async () => {
    const { server, storage } = await serveAuthenticated({ clientAuth: "require" });
    const watch = clientWith(server.port, alice).watch({ resource });
    await watch.next();
    const renewed = await authority.renewed();
    for (const ca of [both, authority.cert, renewed.cert]) server.replaceClientCa(ca);
    await storage.put({ key: "a", value: Buffer.from("1") });
    expect((await watch.next()).events).toHaveLength(1);
    // Its identity is still valid as well.
    expect(server.openStreams).toBe(1);
    watch.cancel();
  });

  /** A TLS connection as the holder of a certificate. */
  function tls(port: number, { cert, key }: Issued, options: object): TLSSocket {
    const socket = connectTls({
      ...{ port, host: "localhost", ca: authority.cert, cert, key, ALPNProtocols: ["h2"] },
      ...options,
    });
    socket.on("error", () => {}).resume();
    onTestFinished(() => void socket.destroy());
    return socket;
  }

  test("a TLS session of before can't be resumed", async () => {
    const { server } = await serveBoth();
    const first = tls(server.port, alice, {});
    const [session] = await once(first, "session");
    const resumed = tls(server.port, alice, { session });
    await once(resumed, "secureConnect");
    expect(resumed.isSessionReused()).toBe(true);
    server.replaceClientCa(other.cert);
    await Promise.all([first, resumed].map((socket) => socket.closed || once(socket, "close")));
    const again = tls(server.port, alice, { session });
    await once(again, "close");
    expect(server.connections).toBe(0);
  });

  test("a connection whose handshake began before ends at once", async () => {
    const { server } = await serveBoth();
    const raw = connectTcp(server.port, "localhost");
    await once(raw, "connect");
    await until(() => server.connections === 1);
    server.replaceClientCa(other.cert);
    await new Promise((resolve) => setImmediate(resolve));
    const late = tls(server.port, alice, { socket: raw });
    await once(late, "close");
    await until(() => server.connections === 0);
  });
});
