import { Code, ConnectError } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { Authenticators } from "../../src/identity/authenticators.ts";
import type { AuditEntry } from "../../src/server/server.ts";
import { ConnectDoor } from "../../src/web/connect-door.ts";
import { authority, serverCertificate } from "../server/authenticated-calls.ts";
import { headersOf } from "../server/rights/callers.ts";
import { serveGuarded } from "../server/rights/guarded.ts";
import { serveThings } from "../server/served.ts";
import { nameOf, reasonOf, type WebClient, webClient, webProtocols } from "./web-clients.ts";

/*
 * Callers of Connect and gRPC-Web have the identities, rights and audit of those of gRPC.
 */

const protocols = webProtocols.map((how) => [nameOf(how), how] as const);

const policy = `
roles:
  - name: reader
    rules: [{ resources: [pods], prefixes: ["a/"], verbs: [get, list, watch] }]
bindings:
  - { role: reader, subjects: ["s/ann"] }
`;

async function failureOf(call: Promise<unknown>): Promise<{ code: Code; reason?: string }> {
  const error = ConnectError.from(await call.catch((thrown: unknown) => thrown));
  const reason = reasonOf(error);
  return { code: error.code, ...(reason === undefined ? {} : { reason }) };
}

async function firstOf(watch: ReturnType<WebClient["watch"]>): Promise<void> {
  for await (const _message of watch) return;
}

test.each(protocols)("%s: tokens, rights and the audit", async (_, how) => {
  const { server, put, audited, change } = await serveGuarded(policy);
  await put("pods", "a/1");
  const client = webClient(server.port, how);
  const ann = { headers: headersOf("s/ann") };
  const allowed = { resource: "pods", key: "a/1" };
  expect((await client.get(allowed, ann)).object?.key).toBe("a/1");
  const denied = { code: Code.PermissionDenied, reason: "PERMISSION_DENIED" };
  expect(await failureOf(client.get({ resource: "pods", key: "b" }, ann))).toEqual(denied);
  const other = { resource: "secrets" };
  expect(await failureOf(firstOf(client.watch(other, ann)))).toEqual(denied);
  const written = client.put({ resource: "pods", key: "a/1", value: Buffer.of(1) }, ann);
  expect(await failureOf(written)).toEqual(denied);
  const unknown = { headers: { authorization: "Bearer unknown" } };
  const unauthenticated = { code: Code.Unauthenticated, reason: "UNAUTHENTICATED" };
  expect(await failureOf(client.get(allowed, unknown))).toEqual(unauthenticated);
  const entries = audited.map(({ identity: { name }, method, allowed: isAllowed }) => [
    name,
    method.slice(method.indexOf("/") + 1),
    isAllowed,
  ]);
  expect(entries.slice(0, 4)).toEqual([
    ["s/ann", "Get", true],
    ["s/ann", "Get", false],
    ["s/ann", "Watch", false],
    ["s/ann", "Put", false],
  ]);
  // A stream ends when its right is lost.
  const watch = async (): Promise<void> => {
    for await (const _message of client.watch(
      { resource: "pods", scope: { case: "prefix", value: "a/" } },
      ann,
    )) {
      change(policy.replace("s/ann", "s/bob"));
    }
  };
  expect(await failureOf(watch())).toEqual(denied);
});

test.each(protocols)("%s: a certificate identifies its caller", async (_, how) => {
  const authenticators = new Authenticators({ certificateNames: ["cn"], now: Date.now });
  const tls = { ...serverCertificate, clientCa: authority.cert, clientAuth: "request" as const };
  const named: string[] = [];
  const record = ({ identity }: AuditEntry): void => void named.push(identity.name);
  const audit = { level: "all" as const, record };
  const { server } = await serveThings({
    server: { authenticators, tls, audit, webDoor: new ConnectDoor() },
  });
  const { cert, key } = await authority.issue({ cn: "ann" });
  const nodeOptions = { ca: authority.cert, cert, key, servername: "localhost" };
  const baseUrl = `https://localhost:${server.port}`;
  const client = webClient(server.port, how, { baseUrl, nodeOptions });
  expect((await client.put({ resource: "things", key: "a" })).revision).toBe(2n);
  const { cert: _cert, key: _key, ...without } = nodeOptions;
  const anonymous = webClient(server.port, how, { baseUrl, nodeOptions: without });
  expect((await anonymous.list({ resource: "things" })).items.length).toBe(1);
  expect(named).toEqual(["ann", "anonymous"]);
});
