import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { type AddressInfo, createServer as createTcpServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ServerCredentials } from "@grpc/grpc-js";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect } from "../../../src/client/connect.ts";
import { run } from "../../cli/client/client-terminal.ts";
import { type Etcd, startEtcd } from "../../etcd/etcd.ts";
import { Authority, type Issued } from "../../identity/authority.ts";
import { type ScriptedServer, startScriptedServer } from "../scripted-server.ts";
import { wireObject } from "../wire-messages.ts";

const folder = mkdtempSync(join(tmpdir(), "connection-errors-"));
const closing: (() => Promise<unknown>)[] = [];

/** Writes a file, and returns its path. */
function file(name: string, content: Buffer): string {
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
}

async function listening(server: Server): Promise<string> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  closing.push(() => new Promise((resolve) => server.close(resolve)));
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

let ca: string;
let otherCa: string;
let signed: readonly string[];
let foreign: readonly string[];
let authority: Authority;
let serverPair: Issued;
/** The addresses of servers: with TLS, with client certificates, with an expired certificate, without TLS, of others. */
let tls: string;
let mutual: string;
let expired: string;
let plain: string;
let http: string;
let silent: string;
let etcd: Etcd;

beforeAll(async () => {
  authority = await Authority.create();
  const other = await Authority.create("CN=Other");
  ca = file("ca.crt", authority.cert);
  otherCa = file("other.crt", other.cert);
  const names = [
    { type: "ip" as const, value: "127.0.0.1" },
    { type: "dns" as const, value: "localhost" },
  ];
  serverPair = await authority.issue({ cn: "server", names });
  const past = new Date(Date.now() - 1_000);
  const old = await authority.issue({ cn: "server", names, notAfter: past });
  const flagsOf = (name: string, { cert, key }: Issued): readonly string[] => [
    ...["--tls-client-cert", file(`${name}.crt`, cert)],
    ...["--tls-client-key", file(`${name}.key`, key)],
  ];
  signed = flagsOf("signed", await authority.issue({ cn: "client" }));
  foreign = flagsOf("foreign", await other.issue({ cn: "client" }));
  const start = async (credentials?: ServerCredentials): Promise<string> => {
    const server: ScriptedServer = await startScriptedServer(
      { get: (_, callback) => callback(null, { revision: "1", object: wireObject("k", 1) }) },
      credentials,
    );
    closing.push(async () => server.stop());
    return server.address;
  };
  const pairOf = ({ cert, key }: Issued) => [{ cert_chain: cert, private_key: key }];
  tls = await start(ServerCredentials.createSsl(null, pairOf(serverPair), false));
  mutual = await start(ServerCredentials.createSsl(authority.cert, pairOf(serverPair), true));
  expired = await start(ServerCredentials.createSsl(null, pairOf(old), false));
  plain = await start();
  http = await listening(createServer((_, response) => void response.end("hello")));
  silent = await listening(createTcpServer((socket) => void socket.destroy()));
  etcd = await startEtcd({
    tls: { cert: file("s.crt", serverPair.cert), key: file("s.key", serverPair.key), clientCa: ca },
  });
});

afterAll(async () => {
  await Promise.all(closing.map((close) => close()));
  await etcd?.stop();
  rmSync(folder, { recursive: true });
});

/** What the command prints. */
async function errorOf(address: string, ...flags: readonly string[]): Promise<string> {
  const { code, stderr } = await run(["get", "k", "--address", address, ...flags]);
  expect(code).toBe(5);
  return stderr;
}

/** Of a server at the address: the cause, and what to do. */
const message = (address: string, text: string): string =>
  `watch-fanout: No response from watch-fanout at ${address}: ${text}\n`;

const on = "set tls (--tls, and --tls-ca for a private authority)";
const certificate = "tls.cert and tls.key (--tls-client-cert, --tls-client-key)";
const signedBy = `Set ${certificate} to one that an authority of the server has signed.`;
const closed = "it closed the connection without a response.";

describe("The error of a client that made a connection", () => {
  test("names TLS if the server wants it", async () => {
    for (const address of [tls, mutual, etcd.url.replace("https://", ""), silent]) {
      expect(await errorOf(address)).toBe(message(address, `${closed} If it uses TLS: ${on}.`));
    }
  });

  test("names TLS if the server does not use it, in one line", async () => {
    const off = "leave out tls (--tls and the other flags with that name).";
    for (const address of [plain, http]) {
      expect(await errorOf(address, "--tls")).toBe(
        message(address, `it does not use TLS. Use the port with TLS, or ${off}`),
      );
    }
  });

  test("says what may be wrong if the server closes the connection in the handshake", async () => {
    expect(await errorOf(silent, "--tls")).toBe(
      message(
        silent,
        "it closed the connection in the TLS handshake. If it does not use TLS: leave out tls (--tls and the other " +
          "flags with that name).",
      ),
    );
  });

  test("names the authority that is not trusted", async () => {
    const text =
      "its certificate is not of a trusted authority. Set tls.ca (--tls-ca) to the authority that has signed it.";
    expect(await errorOf(tls, "--tls")).toBe(message(tls, text));
    expect(await errorOf(tls, "--tls-ca", otherCa)).toBe(message(tls, text));
  });

  test("names a client certificate that is missing, or refused", async () => {
    expect(await errorOf(mutual, "--tls-ca", ca)).toBe(
      message(mutual, `it requires a client certificate. ${signedBy}`),
    );
    const refused = await errorOf(mutual, "--tls-ca", ca, ...foreign);
    expect(refused).toBe(
      message(
        mutual,
        `${closed} It may require a client certificate, or refuse this one: set ${certificate}.`,
      ),
    );
    const { code } = await run(["get", "k", "--address", mutual, "--tls-ca", ca, ...signed]);
    expect(code).toBe(0);
  });

  test("names the client certificate that etcd, in Go, requires or refuses", async () => {
    const address = etcd.url.replace("https://", "");
    expect(await errorOf(address, "--tls-ca", ca)).toMatch(/it requires a client certificate\./);
    expect(await errorOf(address, "--tls-ca", ca, ...foreign)).toMatch(
      /it refuses the client certificate\. Set tls\.cert and tls\.key/,
    );
  });

  test("names the certificate's own fault", async () => {
    expect(await errorOf(expired, "--tls-ca", ca)).toBe(
      message(
        expired,
        "its certificate has expired. Renew it, or check the clock of this machine.",
      ),
    );
    expect(await errorOf(tls, "--tls-ca", ca, "--tls-server-name", "x.example")).toBe(
      message(
        tls,
        "its certificate is for another name (Host: x.example. is not in the cert's altnames: IP Address:127.0.0.1, " +
          "DNS:localhost). Use a name of the certificate as the host, or set tls.serverName (--tls-server-name).",
      ),
    );
  });

  test("says that the server speaks another protocol", async () => {
    expect(await errorOf(http)).toBe(
      message(http, "it speaks another protocol. Is this the right port?"),
    );
  });

  test("names the flags of a relay to a relay", async () => {
    const client = connect({ address: tls, maxAttempts: 1, relayId: "relay.1" });
    await expect(client.resources()).rejects.toMatchObject({
      message: expect.stringContaining(`${closed} If it uses TLS: set --upstream-tls-ca.`),
    });
    client.close();
  });

  test("is the same in the library", async () => {
    const client = connect({ address: plain, tls: { ca: authority.cert }, maxAttempts: 1 });
    await expect(client.get("r", "k")).rejects.toMatchObject({
      reason: "UPSTREAM_UNAVAILABLE",
      message: expect.stringContaining(
        `${plain}: it does not use TLS. Use the port with TLS, or leave out tls (`,
      ),
    });
    client.close();
  });
});

test("The question whether the server is running is for addresses where no connection was made", async () => {
  expect(await errorOf("127.0.0.1:1")).toBe(
    message("127.0.0.1:1", "connect ECONNREFUSED 127.0.0.1:1. Is it running there?"),
  );
  expect(await errorOf("no-such-host.invalid:1")).toMatch(/Is it running there\?\n$/);
});

test("An address with a scheme is refused with the flag that sets TLS", async () => {
  const { code, stderr } = await run(["get", "k", "--address", `https://${tls}`]);
  expect(code).toBe(2);
  expect(stderr).toContain(
    "Write HOST:PORT, for example 127.0.0.1:50051, and set TLS by the option",
  );
  expect(stderr).toContain("tls (--tls).");
});
