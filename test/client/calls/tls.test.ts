import { readFileSync } from "node:fs";
import { ServerCredentials } from "@grpc/grpc-js";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect } from "../../../src/client/connect.ts";
import type { ClientTls } from "../../../src/client/transport/client-certificates.ts";
import { run } from "../../cli/client/client-terminal.ts";
import { type ScriptedServer, startScriptedServer } from "../scripted-server.ts";
import { wireObject } from "../wire-messages.ts";

/** A certificate for localhost and 127.0.0.1 that is its own authority. */
const certFile = new URL("../../config/certificates/cert.pem", import.meta.url).pathname;
const keyFile = new URL("../../config/certificates/key.pem", import.meta.url).pathname;
const cert = readFileSync(certFile);
const key = readFileSync(keyFile);

/** Requires client certificates. */
let server: ScriptedServer;
beforeAll(async () => {
  const pair = [{ cert_chain: cert, private_key: key }];
  server = await startScriptedServer(
    { get: (_, callback) => callback(null, { revision: "1", object: wireObject("k", 1) }) },
    ServerCredentials.createSsl(cert, pair, true),
  );
});
afterAll(() => server.stop());

async function get(tls: ClientTls | undefined): Promise<number> {
  const client = connect({ address: server.address, tls });
  try {
    return (await client.get("r", "k")).revision;
  } finally {
    client.close();
  }
}

describe("A server with TLS that requires a client certificate", () => {
  test.each([
    ["by its address", { ca: cert, cert, key }],
    ["by another name of its certificate", { ca: cert, cert, key, serverName: "localhost" }],
  ])("answers a client that trusts it and has a certificate, %s.", async (_, tls) => {
    expect(await get(tls)).toBe(1);
  });

  test.each([
    ["without TLS", undefined],
    ["that does not trust it", { cert, key }],
    ["that has no certificate", { ca: cert }],
    ["that expects another name", { ca: cert, cert, key, serverName: "other.example" }],
  ])("is unavailable to a client %s.", async (_, tls) => {
    await expect(get(tls)).rejects.toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });
  });

  test("answers a client whose certificates are in files.", async () => {
    const [ca, key] = [{ file: certFile }, { file: keyFile }];
    expect(await get({ ca, cert: ca, key })).toBe(1);
    expect(await get({ ca: cert, cert: ca, key, serverName: "localhost" })).toBe(1);
  });

  test("answers the command with --tls-ca, --tls-client-cert and --tls-client-key.", async () => {
    const files = [
      "--tls-ca",
      certFile,
      "--tls-client-cert",
      certFile,
      "--tls-client-key",
      keyFile,
    ];
    const args = ["get", "k", "-o", "value", "--address", server.address];
    expect(await run([...args, ...files])).toEqual({ code: 0, stdout: "v", stderr: "" });
    expect(await run([...args, "--tls"])).toMatchObject({ code: 5, stdout: "" });
  });
});
