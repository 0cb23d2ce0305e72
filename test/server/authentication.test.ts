import { inspect } from "node:util";
import { pino } from "pino";
import { describe, expect, test } from "vitest";
import { upstreamUnavailable } from "../../src/base/errors.ts";
import { FileKeySet, parseKeySet } from "../../src/identity/key-set.ts";
import { parseTokenFile, tokenDigest } from "../../src/identity/token-file.ts";
import type { AuditEntry, AuditLog } from "../../src/server/server.ts";
import { healthService } from "../../src/wire/services.ts";
import { Authority } from "../identity/authority.ts";
import { keySetContent } from "../identity/issuer.ts";
import {
  authority,
  bearer,
  clientWith,
  describeAuthentication,
  describeSpaces,
  headers,
  issuer,
  list,
  resource,
  serveAuthenticated,
} from "./authenticated-calls.ts";
import { Recorder } from "./served.ts";

describeAuthentication("directly");
describeSpaces();

const hour = 3_600_000;
const ago = new Date(Date.now() - hour);
const dns = (value: string) => ({ type: "dns", value }) as const;
const other = await Authority.create("CN=Another authority");
const nextWeek = new Date(Date.now() + 168 * hour);
const invalid = [
  ["that has expired", await authority.issue({ notBefore: new Date(0), notAfter: ago })],
  ["that is not valid yet", await authority.issue({ notBefore: nextWeek, notAfter: nextWeek })],
  ["of another authority", await other.issue()],
] as const;

describe("A client certificate", () => {
  test.each(invalid)("%s gets no connection where one is required", async (_, issued) => {
    const { server, authenticators } = await serveAuthenticated({ clientAuth: "require" });
    const client = clientWith(server.port, issued);
    await expect(list(client)).rejects.toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });
    expect(authenticators.identities).toEqual([]);
  });

  test.each(invalid)("%s is UNAUTHENTICATED where one is requested", async (_, issued) => {
    const { server } = await serveAuthenticated({ clientAuth: "request" });
    const client = clientWith(server.port, issued);
    await expect(list(client)).rejects.toMatchObject({ reason: "UNAUTHENTICATED" });
    await expect(list(client)).rejects.toMatchObject({ reason: "UNAUTHENTICATED" });
  });

  test.each([
    ["without a SPIFFE ID", { names: [dns("a.example")] }],
    ["without alternative names", {}],
  ])("%s is UNAUTHENTICATED where that is the name", async (_, content) => {
    const certificateNames = ["spiffe"] as const;
    const { server } = await serveAuthenticated({ clientAuth: "require", certificateNames });
    const refused = list(clientWith(server.port, await authority.issue(content)));
    await expect(refused).rejects.toMatchObject({ reason: "UNAUTHENTICATED" });
    await expect(refused).rejects.toThrow("one SPIFFE ID");
  });

  test("may be absent where one is requested, also on a resumed TLS session", async () => {
    const { server, authenticators } = await serveAuthenticated({ clientAuth: "request" });
    for (let i = 0; i < 2; i++) await list(clientWith(server.port));
    await list(clientWith(server.port), bearer("static"));
    expect(authenticators.identities.map(({ name }) => name)).toEqual([
      ...["anonymous", "anonymous", "machine"],
    ]);
  });

  test("is not asked for where client authentication is off", async () => {
    const { server, authenticators } = await serveAuthenticated({ clientAuth: "off" });
    await list(clientWith(server.port, await authority.issue({ cn: "a" })));
    expect(authenticators.identities).toMatchObject([{ name: "anonymous" }]);
  });

  test("ends its streams and refuses its calls when it expires", async () => {
    const { server, clock, time } = await serveAuthenticated({ clientAuth: "require" });
    const [notAfter, later] = [new Date(Date.now() + hour), new Date(Date.now() + 2 * hour)];
    const client = clientWith(server.port, await authority.issue({ notAfter }));
    const watch = client.watch({ resource });
    const { revision } = await watch.next();
    time.now = notAfter.getTime() + 1_000;
    clock.advance(1_000);
    expect(await watch.ended).toMatchObject({
      reason: "UNAUTHENTICATED",
      metadata: { resume_revision: revision },
    });
    await expect(list(client)).rejects.toMatchObject({ reason: "UNAUTHENTICATED" });
    // Closed, so that the client connects with the certificate that it has by then.
    while (server.connections > 0) await new Promise((resolve) => setImmediate(resolve));
    await list(clientWith(server.port, await authority.issue({ notAfter: later })));
  });

  test("of a trusted proxy forwards that of another client, and of another proxy does not", async () => {
    const trustedForwarders = { loopback: false, names: new Set(["proxy.example"]) };
    const served = await serveAuthenticated({ clientAuth: "require", trustedForwarders });
    const header = headers({ "x-forwarded-client-cert": "URI=spiffe://corp/client" });
    for (const name of ["proxy.example", "evil.example"]) {
      const issued = await authority.issue({ names: [dns(name)] });
      await list(clientWith(served.server.port, issued), header);
    }
    expect(served.authenticators.identities.map(({ name }) => name)).toEqual([
      ...["spiffe://corp/client", "evil.example"],
    ]);
  });
});

describe("Behind a proxy that is trusted by its certificate", () => {
  const proxied = headers({ "x-forwarded-client-cert": "URI=spiffe://corp/client" });
  const trustedForwarders = { loopback: false, names: new Set(["proxy"]) };

  test("identities end with the proxy's certificate, whose expiry their streams do not outlive", async () => {
    const served = await serveAuthenticated({ clientAuth: "require", trustedForwarders });
    // A certificate has whole seconds.
    const notAfter = new Date(Math.floor(Date.now() / 1_000) * 1_000 + hour);
    const client = clientWith(served.server.port, await authority.issue({ cn: "proxy", notAfter }));
    const watches = [client.watch({ resource }, proxied), client.watch({ resource }, proxied)];
    await Promise.all(watches.map((watch) => watch.next()));
    served.time.now = notAfter.getTime() - 1;
    served.clock.advance(1_000);
    expect(served.server.openStreams).toBe(2);
    served.time.now = notAfter.getTime();
    served.clock.advance(1_000);
    for (const watch of watches) {
      const end = await watch.ended;
      expect(end).toMatchObject({ reason: "UNAUTHENTICATED", metadata: { resume_revision: "1" } });
      expect(end?.message).toContain("certificate of this client's proxy has expired");
    }
  });

  test("a caller without a certificate is anonymous, and has not the rights of the proxy", async () => {
    const served = await serveAuthenticated({ clientAuth: "require", trustedForwarders });
    const client = clientWith(served.server.port, await authority.issue({ cn: "proxy" }));
    await list(client);
    await list(client, bearer("static"));
    await list(client, proxied);
    expect(served.authenticators.identities.map(({ name }) => name)).toEqual([
      ...["anonymous", "machine", "spiffe://corp/client"],
    ]);
  });
});

test("Of many streams those of an expired token end, with their resume points, and no others", async () => {
  const served = await serveAuthenticated({ clientAuth: "request" });
  const exp = Math.ceil(served.time.now / 1_000) + 60;
  const token = bearer(await issuer.sign({ exp }));
  const clients = [1, 2, 3, 4].map(() => clientWith(served.server.port));
  const open = (call: object, length: number) =>
    Array.from({ length }, (_, i) => clients[i % 4]?.watch({ resource }, call));
  const [ending, staying] = [open(token, 1_000), open(bearer("static"), 100)];
  await Promise.all([...ending, ...staying].map((watch) => watch?.next()));
  served.time.now = exp * 1_000;
  served.clock.advance(500);
  const ends = await Promise.all(ending.map((watch) => watch?.ended));
  expect(new Set(ends.map((end) => end?.reason))).toEqual(new Set(["UNAUTHENTICATED"]));
  expect(ends.every((end) => end?.metadata["resume_revision"] === "1")).toBe(true);
  expect(served.server.openStreams).toBe(100);
  await served.storage.put({ key: "a", value: Buffer.from("1") });
  await Promise.all(staying.map((watch) => watch?.next()));
  for (const watch of staying) watch?.cancel();
});

describe("While streams are open", () => {
  test("the server's certificate is replaced: they continue, and new clients see the new one", async () => {
    const { server, storage } = await serveAuthenticated({ clientAuth: "require" });
    const issued = await authority.issue();
    const watches = Array.from({ length: 20 }, () =>
      clientWith(server.port, issued).watch({ resource }),
    );
    await Promise.all(watches.map((watch) => watch.next()));
    server.replaceCertificate(await other.issueForServer());
    await new Promise((resolve) => setImmediate(resolve));
    await list(clientWith(server.port, issued, other.cert));
    const old = list(clientWith(server.port, issued));
    await expect(old).rejects.toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });
    await storage.put({ key: "a", value: Buffer.from("1") });
    const events = await Promise.all(watches.map((watch) => watch.next()));
    expect(events.map(({ events: { length } }) => length)).toEqual(watches.map(() => 1));
    for (const watch of watches) watch.cancel();
  });

  test("an unusable certificate is refused, and the one before stays", async () => {
    const { server } = await serveAuthenticated({ clientAuth: "require" });
    const { cert } = await other.issueForServer();
    const { key } = await other.issueForServer();
    expect(() => server.replaceCertificate({ cert, key })).toThrow("can't be used");
    expect(() => server.replaceClientCa(Buffer.from("no"))).toThrow("can't be used");
    await list(clientWith(server.port, await authority.issue()));
  });

  test("a static token is removed: its streams end with their resume point, and others do not", async () => {
    const { client, tokens } = await serveAuthenticated();
    const watch = client.watch({ resource }, bearer("static"));
    const health = client.stream(healthService.Watch, { service: "" }, bearer("static"));
    const anonymous = client.watch({ resource });
    const [{ revision }] = await Promise.all([watch.next(), anonymous.next(), health.next()]);
    tokens.replace(parseTokenFile(Buffer.from(`sha256:${tokenDigest("other")} machine`)));
    expect(await watch.ended).toMatchObject({
      reason: "UNAUTHENTICATED",
      metadata: { resume_revision: revision },
    });
    expect(await health.ended).toMatchObject({ reason: "UNAUTHENTICATED" });
    await expect(list(client, bearer("static"))).rejects.toThrow("not a signed");
    await list(client, bearer("other"));
    anonymous.cancel();
  });
});

/** Keys that the test provides later. */
function laterKeys() {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const keys = new FileKeySet(parseKeySet(keySetContent(issuer)));
  const find: typeof keys.find = async (header, token) => {
    await promise;
    return keys.find(header, token);
  };
  return { keys: { find, onChange: () => {} }, resolve, reject };
}

const inAnHour = Date.now() / 1_000 + 3_600;

describe("While their token is verified", () => {
  test("calls wait: none is lost, and those with a known token overtake them", async () => {
    const { keys, resolve } = laterKeys();
    const { client, server, authenticators } = await serveAuthenticated({ keys });
    const token = bearer(await issuer.sign({ exp: inAnHour }));
    const writer = client.withMetadata(token.metadata);
    const puts = Array.from({ length: 100 }, (_, i) =>
      writer.put({ resource, key: `k${i}`, value: Buffer.alloc(1_000) }),
    );
    while (server.stats().requests.bytes < 100_000) await list(client, bearer("static"));
    expect(authenticators.identities.every(({ name }) => name === "machine")).toBe(true);
    resolve();
    expect(await Promise.all(puts)).toHaveLength(100);
    expect((await list(client)).items).toHaveLength(100);
    while (server.stats().requests.bytes > 0) await list(client);
  });

  test("calls of one connection are handled in the order in which they arrived", async () => {
    const { keys, resolve } = laterKeys();
    const { client, server, storage } = await serveAuthenticated({ keys });
    const token = bearer(await issuer.sign({ exp: inAnHour }));
    const writer = client.withMetadata(token.metadata);
    const puts = Array.from({ length: 50 }, (_, i) =>
      writer.put({ resource, key: "a", value: Buffer.from(`${i}`) }),
    );
    while (server.stats().requests.bytes < 50) await list(client);
    resolve();
    await Promise.all(puts);
    const { object } = await storage.get({ key: "a", at: { match: "LINEARIZABLE" } });
    expect(Buffer.from(object?.value ?? []).toString()).toBe("49");
  });

  test("a call has 10 s, and then no effect", async () => {
    const { keys } = laterKeys();
    const audited: AuditEntry[] = [];
    const audit = {
      level: "writes",
      record: (entry: AuditEntry) => void audited.push(entry),
    } as const;
    const { client, clock, server, storage } = await serveAuthenticated({ keys, audit });
    const token = bearer(await issuer.sign({ exp: inAnHour }));
    const put = { resource, key: "a", value: Buffer.from("1") };
    const written = client.withMetadata(token.metadata).put(put);
    while (server.stats().requests.bytes === 0) await list(client);
    clock.advance(9_999);
    expect(server.stats().requests.bytes).toBeGreaterThan(0);
    clock.advance(1);
    await expect(written).rejects.toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });
    await expect(written).rejects.toThrow("could not be verified within 10 s");
    expect(audited).toMatchObject([{ allowed: false, code: "UNAVAILABLE" }]);
    expect((await storage.get({ key: "a", at: { match: "LINEARIZABLE" } })).object).toBeUndefined();
    expect(server.stats().requests.bytes).toBe(0);
  });

  test("a call that its client cancels is not handled", async () => {
    const { keys, resolve } = laterKeys();
    const { client, server } = await serveAuthenticated({ keys });
    const token = bearer(await issuer.sign({ exp: inAnHour }));
    const watch = client.watch({ resource }, token);
    while (server.stats().requests.bytes === 0) await list(client);
    watch.cancel();
    while (server.stats().requests.bytes > 0) await list(client);
    resolve();
    await list(client, token);
    expect(server.openStreams).toBe(0);
  });

  test("their requests are bounded in bytes per connection", async () => {
    const { keys } = laterKeys();
    const { client } = await serveAuthenticated({ keys });
    const token = bearer(await issuer.sign({ exp: inAnHour }));
    const writer = client.withMetadata(token.metadata);
    const value = Buffer.alloc(1_900_000);
    const puts = Array.from({ length: 10 }, () => writer.put({ resource, key: "a", value }));
    await expect(Promise.race(puts)).rejects.toMatchObject({ reason: "TOO_MANY_STREAMS" });
    for (const put of puts) put.catch(() => {});
  });

  test("a failure to get the keys is not the client's", async () => {
    const { keys, reject } = laterKeys();
    const { client, server } = await serveAuthenticated({ keys });
    const call = list(client, bearer(await issuer.sign({ exp: inAnHour })));
    while (server.stats().requests.bytes === 0) await list(client);
    reject(upstreamUnavailable("The keys can't be fetched."));
    await expect(call).rejects.toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });
  });
});

test("Neither a token nor a part of it reaches the log, an error or the audit log", async () => {
  const recorder = new Recorder();
  const logger = pino({ level: "trace" }, recorder);
  const record = (entry: AuditEntry): void => void recorder.logged.push(JSON.stringify(entry));
  const audit: AuditLog = { level: "all", record };
  const { client } = await serveAuthenticated({ logger, audit });
  const token = await issuer.sign({ exp: 1 });
  const accepted = await issuer.sign({ exp: Math.floor(Date.now() / 1_000) + 3_600 });
  for (const given of [token, "secret-token", accepted]) {
    const ended = await list(client, bearer(given)).catch((error: unknown) => error);
    recorder.logged.push(inspect(ended));
  }
  // The response, two errors, and the calls in the audit log.
  expect(recorder.logged.length).toBeGreaterThanOrEqual(6);
  const all = recorder.logged.join("\n");
  for (const part of [...token.split("."), ...accepted.split("."), "secret-token"]) {
    expect(all).not.toContain(part);
  }
});
