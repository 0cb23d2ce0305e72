import { once } from "node:events";
import { request } from "node:https";
import { connect } from "node:net";
import { pino } from "pino";
import { beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { parseTokenFile, StaticTokens, tokenDigest } from "../../../src/identity/token-file.ts";
import {
  type ReadinessCheck,
  type RunningAdmin,
  startAdmin,
} from "../../../src/server/admin/admin.ts";
import { Authority } from "../../identity/authority.ts";

const [authority, other] = [await Authority.create(), await Authority.create("CN=Other")];
const tokens = new StaticTokens(
  parseTokenFile(Buffer.from(`sha256:${tokenDigest("prometheus-token")} prometheus`)),
  () => {},
);
const checks: readonly ReadinessCheck[] = [
  { name: "resource/secret", failure: "etcd at 10.0.0.1 is down" },
];
let admin: RunningAdmin;

beforeAll(async () => {
  admin = await startAdmin({
    listen: { host: "127.0.0.1", port: 0 },
    tls: await authority.issueForServer(),
    tokens,
    readiness: () => checks,
    metrics: { contentType: "text/plain", render: async () => "some_metric 1\n" },
    logger: pino({ level: "silent" }),
  });
  return () => admin.close();
});

interface Reply {
  readonly status: number | undefined;
  readonly body: string;
}

/** Requests a path over a new connection. */
function ask(path: string, authorization?: string, ca: Buffer = authority.cert): Promise<Reply> {
  const headers = authorization === undefined ? {} : { authorization };
  const options = { host: "127.0.0.1", port: admin.port, path, headers, ca, agent: false };
  return new Promise((resolve, reject) => {
    const outgoing = request(options, (response) => {
      let body = "";
      response.setEncoding("utf8");
      response.on("data", (chunk: string) => {
        body += chunk;
      });
      response.on("end", () => resolve({ status: response.statusCode, body }));
    });
    outgoing.on("error", reject);
    outgoing.end();
  });
}

const right = "Bearer prometheus-token";

describe("With tokens and TLS the admin port", () => {
  test.each([
    ["no token", undefined],
    ["an empty token", "Bearer "],
    ["another token", "Bearer prometheus-tokem"],
    ["the digest of the token", `Bearer ${tokenDigest("prometheus-token")}`],
    ["another scheme", "Basic prometheus-token"],
  ])("has only the status of the probes for a request with %s", async (_, authorization) => {
    for (const path of ["/metrics", "/metrics?x", "/debug", "/", "/livez/", "//metrics"]) {
      expect(await ask(path, authorization)).toEqual({
        status: 401,
        body: "Send a token of --admin-token-file.\n",
      });
    }
    expect(await ask("/livez", authorization)).toEqual({ status: 200, body: "ok\n" });
    for (const path of ["/readyz", "/readyz?verbose"]) {
      expect(await ask(path, authorization)).toEqual({ status: 503, body: "not ready\n" });
    }
  });

  test("has everything for a request with a token", async () => {
    expect(await ask("/metrics", right)).toEqual({ status: 200, body: "some_metric 1\n" });
    expect((await ask("/readyz", right)).body).toContain("resource/secret: etcd at 10.0.0.1");
    expect((await ask("/debug", right)).status).toBe(404);
  });

  test("presents a replaced certificate to new connections, and refuses an unusable one", async () => {
    const before = await authority.issueForServer();
    onTestFinished(() => admin.replaceCertificate(before));
    const next = await other.issueForServer();
    expect(() => admin.replaceCertificate({ ...next, key: before.key })).toThrow("can't be used");
    await ask("/livez", undefined, authority.cert);
    admin.replaceCertificate(next);
    await ask("/livez", undefined, other.cert);
    await expect(ask("/livez", undefined, authority.cert)).rejects.toThrow();
  });

  test("answers a probe beside 1,000 connections that do not finish their handshake", async () => {
    const mute = Array.from({ length: 1_000 }, () =>
      connect(admin.port, "127.0.0.1").on("error", () => {}),
    );
    onTestFinished(() => {
      for (const socket of mute) socket.destroy();
    });
    await Promise.all(
      mute.map((socket) => socket.readyState === "open" || once(socket, "connect")),
    );
    expect((await ask("/livez")).status).toBe(200);
  });
});
