import { credentials, Metadata } from "@grpc/grpc-js";
import type { Logger } from "pino";
import { describe, expect, onTestFinished, test } from "vitest";
import {
  Authenticators,
  type AuthenticatorsOptions,
  type Credentials,
} from "../../src/identity/authenticators.ts";
import type { Identity } from "../../src/identity/identity.ts";
import { JwtAuthenticator } from "../../src/identity/jwt-authenticator.ts";
import { FileKeySet, type KeySet, parseKeySet } from "../../src/identity/key-set.ts";
import { parseTokenFile, StaticTokens, tokenDigest } from "../../src/identity/token-file.ts";
import type { ClientAuth } from "../../src/server/listener/tls-handshakes.ts";
import type { AuditLog, RunningServer } from "../../src/server/server.ts";
import { healthService, listWatchService, reflectionServices } from "../../src/wire/services.ts";
import { Authority, type Issued } from "../identity/authority.ts";
import { Issuer, keySetContent } from "../identity/issuer.ts";
import { framed, RawConnection } from "./http2/raw-connection.ts";
import { type ServeBy, type Served, type ServedBy, serve, serveThingsBy } from "./served.ts";
import { TestClient } from "./test-client.ts";

export const resource = "things";
export const authority = await Authority.create();
export const serverCertificate = await authority.issueForServer();
export const issuer = await Issuer.create();

/** Authenticators that record the identity of each call. */
class Recording extends Authenticators {
  readonly identities: Identity[] = [];

  override authenticate(presented: Credentials): Identity | (() => Promise<Identity>) {
    const found = super.authenticate(presented);
    const record = (identity: Identity): Identity => {
      this.identities.push(identity);
      return identity;
    };
    return typeof found === "function" ? () => found().then(record) : record(found);
  }
}

export interface Authenticated<S extends ServedBy = RunningServer> extends Omit<Served, "server"> {
  readonly server: S;
  readonly authenticators: Recording;
  readonly tokens: StaticTokens;
  /** The time of day of the server, in milliseconds since the epoch. */
  readonly time: { now: number };
}

type AuthenticatedOptions = {
  readonly clientAuth?: ClientAuth;
  readonly keys?: KeySet;
  readonly audit?: AuditLog;
  readonly logger?: Logger;
} & Partial<AuthenticatorsOptions>;

/** Serves `things` to callers with a certificate of `authority`, the token `static`, or a token of `issuer`. */
export async function serveAuthenticated(
  options: AuthenticatedOptions = {},
): Promise<Authenticated> {
  let server: RunningServer | undefined;
  const onRevoked = (identity: Identity): void => server?.revoke(identity);
  const served = await serveAuthenticatedBy(serve, options, onRevoked);
  server = served.server;
  return served;
}

async function serveAuthenticatedBy<S extends ServedBy>(
  by: ServeBy<S>,
  options: AuthenticatedOptions,
  onRevoked: (identity: Identity) => void = () => {},
): Promise<Authenticated<S>> {
  const publicKeys = new FileKeySet(parseKeySet(keySetContent(issuer)));
  const { clientAuth, keys = publicKeys, audit, logger, ...own } = options;
  const time = { now: Date.now() };
  const now = () => time.now;
  const lines = parseTokenFile(Buffer.from(`sha256:${tokenDigest("static")} machine`));
  const tokens = new StaticTokens(lines, onRevoked);
  const audience = { issuer: "https://issuer.example", audience: "watch-fanout" };
  const authenticators = new Recording({
    ...{ certificateNames: ["spiffe", "dns", "cn"], tokens, now },
    jwt: new JwtAuthenticator({ ...audience, groupsClaim: "groups", keys, now }),
    ...own,
  });
  const tls = clientAuth && { ...serverCertificate, clientCa: authority.cert, clientAuth };
  const served = await serveThingsBy(by, {
    server: { authenticators, now, tls, audit, ...(logger && { logger }) },
  });
  return { ...served, authenticators, tokens, time };
}

/** A client over TLS that trusts `authority`, with this certificate. */
export function clientWith(port: number, issued?: Issued, ca: Buffer = authority.cert): TestClient {
  const channel = credentials.createSsl(ca, issued?.key ?? null, issued?.cert ?? null);
  const client = new TestClient(port, channel);
  onTestFinished(() => client.close());
  return client;
}

/** Metadata of calls by these headers. */
export function headers(fields: Readonly<Record<string, string>>): { metadata: Metadata } {
  const metadata = new Metadata();
  for (const [name, value] of Object.entries(fields)) metadata.set(name, value);
  return { metadata };
}

export const bearer = (token: string) => headers({ authorization: `Bearer ${token}` });

/** Lists `things` with metadata. */
export function list(client: TestClient, call: { metadata?: Metadata } = {}) {
  return client.withMetadata(call.metadata).list({ resource });
}

const { Check, Watch: HealthWatch } = healthService;
const { ServerReflectionInfo: Reflection } = reflectionServices[0] ?? {};
const spiffe = "spiffe://corp/ns/a/sa/b";

/** The rules of authentication, by whatever serves the calls. */
export function describeAuthentication(served: string, by: ServeBy<ServedBy> = serve): void {
  describe(`Calls served ${served} are authenticated`, () => {
    const serveAuthenticated = (options: AuthenticatedOptions = {}) =>
      serveAuthenticatedBy(by, options);

    test("by the client's certificate, whose SPIFFE ID is the name", async () => {
      const { server, authenticators } = await serveAuthenticated({ clientAuth: "require" });
      const names = [{ type: "url", value: spiffe } as const];
      await list(clientWith(server.port, await authority.issue({ names })));
      expect(authenticators.identities).toMatchObject([{ name: spiffe, source: "certificate" }]);
    });

    test("by their token", async () => {
      const { client, authenticators } = await serveAuthenticated();
      await list(client, bearer("static"));
      await list(client, bearer(await issuer.sign({ exp: Date.now() / 1_000 + 60 })));
      await list(client);
      expect(authenticators.identities.map(({ name }) => name)).toEqual([
        ...["machine", "alice", "anonymous"],
      ]);
    });

    test("by the certificate that a trusted proxy forwards, and a forged header is ignored", async () => {
      const header = headers({ "x-forwarded-client-cert": `By=spiffe://corp/p;URI=${spiffe}` });
      const trusted = { loopback: true, names: new Set<string>() };
      for (const [trustedForwarders, name] of [
        [trusted, spiffe],
        [undefined, "anonymous"],
      ] as const) {
        const { client, authenticators } = await serveAuthenticated({ trustedForwarders });
        await list(client, header);
        expect(authenticators.identities).toMatchObject([{ name }]);
      }
    });

    test("in every service: a wrong token is refused", async () => {
      const { client, server } = await serveAuthenticated();
      const wrong = bearer("wrong");
      const refused = { reason: "UNAUTHENTICATED" };
      await expect(list(client, wrong)).rejects.toMatchObject(refused);
      const put = { resource, key: "a", value: Buffer.from("1") };
      await expect(client.withMetadata(wrong.metadata).put(put)).rejects.toMatchObject(refused);
      await expect(client.unary(Check, { service: "" }, wrong)).rejects.toMatchObject(refused);
      expect(await client.watch({ resource }, wrong).ended).toMatchObject(refused);
      const health = client.stream(HealthWatch, { service: "" }, wrong);
      expect(await health.ended).toMatchObject(refused);
      const raw = new RawConnection(server.port);
      const call = raw.open(Reflection?.path ?? "", { authorization: "Bearer wrong" });
      call.stream.write(framed(Reflection?.requestSerialize({ list_services: "" }) ?? Buffer.of()));
      expect((await call.drain().ended).code).toBe(16);
      expect(server.openStreams).toBe(0);
    });

    test("before they have an effect: a write with a wrong token writes nothing", async () => {
      const { client, storage } = await serveAuthenticated();
      const before = await storage.currentRevision();
      const put = { resource, key: "a", value: Buffer.from("1") };
      const wrong = bearer(await issuer.sign({ exp: 1 }));
      await expect(client.withMetadata(wrong.metadata).put(put)).rejects.toThrow("has expired");
      expect(await storage.currentRevision()).toBe(before);
    });

    test("while an open stream lasts: it ends when its token expires, with its resume point", async () => {
      const { client, clock, time, storage } = await serveAuthenticated();
      const exp = Math.ceil(time.now / 1_000) + 60;
      const watch = client.watch({ resource }, bearer(await issuer.sign({ exp })));
      const others = client.watch({ resource }, bearer("static"));
      await Promise.all([watch.next(), others.next()]);
      await storage.put({ key: "a", value: Buffer.from("1") });
      const { revision } = await watch.next();
      await others.next();
      time.now = exp * 1_000 - 1;
      clock.advance(1_000);
      await storage.put({ key: "a", value: Buffer.from("2") });
      expect(Number((await watch.next()).revision)).toBe(Number(revision) + 1);
      time.now = exp * 1_000;
      clock.advance(1_000);
      expect(await watch.ended).toMatchObject({
        reason: "UNAUTHENTICATED",
        metadata: { resume_revision: String(Number(revision) + 1) },
      });
      await storage.put({ key: "a", value: Buffer.from("3") });
      await others.next();
      await others.next();
      others.cancel();
    });
  });
}

/** Node.js drops headers with a space at either end by default, so that the caller would be anonymous. */
export function describeSpaces(): void {
  describe("Calls are authenticated", () => {
    test.each([
      ["with a space at its end", "Bearer static "],
      ["with a space at its beginning", " Bearer static"],
      ["of nothing but a space", " "],
      ["that is empty", ""],
    ])("by a credential %s, which is wrong, not absent", async (_, authorization) => {
      const { server, authenticators } = await serveAuthenticated();
      const raw = new RawConnection(server.port);
      const request = listWatchService.List.requestSerialize({ resource });
      const call = raw.call(listWatchService.List.path, request, { authorization });
      expect((await call.drain().ended).code).toBe(16);
      expect(authenticators.identities).toEqual([]);
    });

    test("by the certificate that a trusted proxy forwards, also between spaces", async () => {
      const trustedForwarders = { loopback: true, names: new Set<string>() };
      const { server, authenticators } = await serveAuthenticated({ trustedForwarders });
      const raw = new RawConnection(server.port);
      const request = listWatchService.List.requestSerialize({ resource });
      const { path } = listWatchService.List;
      const forwarded = (value: string) => ({ "x-forwarded-client-cert": value });
      const good = raw.call(path, request, forwarded(` URI=${spiffe} `));
      expect((await good.drain().ended).code).toBe(0);
      expect(authenticators.identities).toMatchObject([{ name: spiffe }]);
      const empty = raw.call(path, request, forwarded(" "));
      expect((await empty.drain().ended).code).toBe(16);
    });
  });
}
