import { once } from "node:events";
import { type ConnectionOptions, connect } from "node:tls";
import { expect, onTestFinished, test } from "vitest";
import { nodeCiphers } from "../../src/config/value-types.ts";
import { Authority, type Issued } from "../identity/authority.ts";
import { ManualTimers } from "./limits/manual-timers.ts";
import { serve } from "./served.ts";

const authority = await Authority.create();
const issue = (): Promise<Issued> =>
  authority.issue({ cn: "server", names: [{ type: "ip", value: "127.0.0.1" }] });
const pair = await issue();

/** The version and the suite of a connection, or the code of the error that ends its handshake. */
async function handshake(port: number, options: ConnectionOptions): Promise<string> {
  const ca = authority.cert;
  const socket = connect({ port, host: "127.0.0.1", ca, ALPNProtocols: ["h2"], ...options });
  onTestFinished(() => void socket.destroy());
  try {
    await once(socket, "secureConnect");
    return `${socket.getProtocol()} ${socket.getCipher().standardName}`;
  } catch (error) {
    return String((error as NodeJS.ErrnoException).code);
  }
}

const only12: ConnectionOptions = { minVersion: "TLSv1.2", maxVersion: "TLSv1.2" };
const only13: ConnectionOptions = { minVersion: "TLSv1.3" };

test.each([
  ["TLSv1.2", "TLSv1.3", /^TLSv1.2 /, /^TLSv1.3 /],
  ["TLSv1.3", "TLSv1.3", /ALERT_PROTOCOL_VERSION/, /^TLSv1.3 /],
  ["TLSv1.2", "TLSv1.2", /^TLSv1.2 /, /ALERT_PROTOCOL_VERSION/],
] as const)(
  "A server with TLS from %s to %s accepts these versions alone, also after its certificate was replaced",
  async (minVersion, maxVersion, with12, with13) => {
    const tls = { ...pair, bounds: { minVersion, maxVersion } };
    const { server } = await serve(new Map(), new ManualTimers(), { tls });
    expect(await handshake(server.port, only12)).toMatch(with12);
    expect(await handshake(server.port, only13)).toMatch(with13);
    server.replaceCertificate(await issue());
    await new Promise((resolve) => setImmediate(resolve));
    expect(await handshake(server.port, only12)).toMatch(with12);
    expect(await handshake(server.port, only13)).toMatch(with13);
  },
);

test("Cipher suites of TLS 1.2 are those that are configured; TLS 1.3 keeps its own", async () => {
  // The certificate has a key of ECDSA.
  const ciphers = nodeCiphers(["ECDHE-ECDSA-AES256-GCM-SHA384"]);
  const tls = { ...pair, bounds: { ciphers } };
  const { server } = await serve(new Map(), new ManualTimers(), { tls });
  expect(await handshake(server.port, only12)).toBe(
    "TLSv1.2 TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
  );
  const other = { ...only12, ciphers: "ECDHE-ECDSA-AES128-GCM-SHA256" };
  expect(await handshake(server.port, other)).toMatch(/HANDSHAKE_FAILURE/);
  expect(await handshake(server.port, only13)).toMatch(/^TLSv1.3 /);
});
