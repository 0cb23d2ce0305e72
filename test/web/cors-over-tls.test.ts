import { expect, test } from "vitest";
import type { AuditEntry } from "../../src/server/server.ts";
import { ConnectDoor } from "../../src/web/connect-door.ts";
import { authority, serverCertificate } from "../server/authenticated-calls.ts";
import { authenticatorsOf, headersOf } from "../server/rights/callers.ts";
import { serveThings } from "../server/served.ts";
import { ask, type ClientTls, type Headers, json, paths } from "./http.ts";

/*
 * A page calls over TLS: its browser asks first, without a certificate and without a token, then calls with them.
 */

const origin = "https://app.example";
const preflight = {
  ...{ ":method": "OPTIONS", origin, "access-control-request-method": "POST" },
  "access-control-request-headers": "authorization,content-type",
};
const token = headersOf("ann");

test.each([
  ["1.1", "a certificate"],
  ["1.1", "a token"],
  ["2", "a certificate"],
  ["2", "a token"],
] as const)("Over HTTP/%s a page calls with %s.", async (version, credential) => {
  const named: string[] = [];
  const { server } = await serveThings({
    server: {
      authenticators: authenticatorsOf(["ann"]),
      tls: { ...serverCertificate, clientCa: authority.cert, clientAuth: "request" },
      audit: { level: "all", record: ({ identity }: AuditEntry) => void named.push(identity.name) },
      webDoor: new ConnectDoor({ allowedOrigins: [origin] }),
    },
  });
  const trusting = { ca: authority.cert };
  const request = (headers: Headers, body: string, tls: ClientTls = trusting) =>
    ask(version, server.port, paths.put, headers, body, tls);
  const asked = await request(preflight, "");
  expect(asked.code).toBe(204);
  expect(asked.headers).toMatchObject({
    "access-control-allow-origin": origin,
    "access-control-allow-credentials": "true",
    "access-control-allow-headers": expect.stringContaining("authorization"),
  });
  const own = credential === "a token" ? token : {};
  const tls =
    credential === "a token"
      ? trusting
      : { ...trusting, ...(await authority.issue({ cn: "ann" })) };
  const put = '{"resource":"things","key":"a"}';
  const written = await request({ ...json, ...own, origin }, put, tls);
  expect([written.code, written.headers["access-control-allow-origin"]]).toEqual([200, origin]);
  expect(named).toEqual(["ann"]);
  const ofOther = { ...json, ...own, origin: "https://other.example" };
  expect((await request(ofOther, put, tls)).code).toBe(403);
});
