import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { connect } from "../../../src/client/connect.ts";
import { Authority } from "../../identity/authority.ts";
import { authority, resource, serveAuthenticated } from "../../server/authenticated-calls.ts";
import { ManualTimers } from "../../server/limits/manual-timers.ts";

/** A client with certificates from files, of a server that requires them. */
async function setUp() {
  const served = await serveAuthenticated({ clientAuth: "require" });
  const folder = mkdtempSync(join(tmpdir(), "client-certificates-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const file = (name: string): string => join(folder, name);
  const write = (name: string, content: Buffer | string): void =>
    writeFileSync(file(name), content);
  const issue = async (cn: string, by: Authority = authority): Promise<void> => {
    const { cert, key } = await by.issue({ cn });
    write("cert", cert);
    write("key", key);
  };
  write("ca", authority.cert);
  await issue("first");
  const clock = new ManualTimers();
  const tls = {
    ca: { file: file("ca") },
    cert: { file: file("cert") },
    key: { file: file("key") },
  };
  const client = connect({
    address: `localhost:${served.server.port}`,
    tls,
    clock,
    maxAttempts: 1,
  });
  onTestFinished(() => client.close());
  /** Lists, and returns the name by which the server knows the client. */
  const name = async (): Promise<string | undefined> => {
    for await (const _page of client.list(resource)) break;
    return served.authenticators.identities.at(-1)?.name;
  };
  /** Closes the connections of the client, which then needs another one. */
  const disconnect = async (): Promise<void> => {
    served.server.replaceClientCa(other.cert);
    while (served.server.connections > 0) await new Promise((resolve) => setImmediate(resolve));
    served.clock.advance(1);
    served.server.replaceClientCa(authority.cert);
    await new Promise((resolve) => setImmediate(resolve));
  };
  return { ...served, client, clock, write, issue, name, disconnect };
}

const other = await Authority.create("CN=Another authority");

describe("Certificates of a client from files", () => {
  test("are read again for new connections, and open connections keep theirs", async () => {
    const { clock, issue, name, disconnect } = await setUp();
    expect(await name()).toBe("first");
    await issue("second");
    clock.advance(1_000);
    expect(await name()).toBe("first");
    await disconnect();
    clock.advance(1_000);
    expect(await name()).toBe("second");
  });

  test("are read at most once a second", async () => {
    const { clock, issue, name, disconnect } = await setUp();
    await issue("second");
    clock.advance(999);
    expect(await name()).toBe("first");
    await issue("third");
    await disconnect();
    clock.advance(1);
    expect(await name()).toBe("third");
  });

  test("stay in use while a new version can't be read or used", async () => {
    const { clock, write, issue, name, disconnect } = await setUp();
    write("cert", (await authority.issue({ cn: "without its key" })).cert);
    clock.advance(1_000);
    expect(await name()).toBe("first");
    write("ca", "nonsense");
    await disconnect();
    clock.advance(1_000);
    expect(await name()).toBe("first");
    write("ca", authority.cert);
    await issue("second");
    await disconnect();
    clock.advance(1_000);
    expect(await name()).toBe("second");
  });

  test("may be a new authority: the server's new certificate is trusted", async () => {
    const { server, clock, write, name, disconnect } = await setUp();
    expect(await name()).toBe("first");
    server.replaceCertificate(await other.issueForServer());
    await disconnect();
    await expect(name()).rejects.toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });
    write("ca", other.cert);
    // gRPC waits before it connects again.
    for (;;) {
      clock.advance(1_000);
      const found = await name().catch(() => undefined);
      if (found !== undefined) break;
    }
  });
});

describe("A client is refused", () => {
  test("without a readable file, with its name", async () => {
    const tls = { ca: { file: "/gone/ca.pem" } };
    expect(() => connect({ address: "localhost:1", tls })).toThrow(
      'tls.ca can\'t be read from "/gone/ca.pem": ENOENT',
    );
  });

  test("with a key that is not the certificate's", async () => {
    const { cert } = await authority.issue();
    const folder = mkdtempSync(join(tmpdir(), "client-certificates-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    writeFileSync(join(folder, "key"), (await authority.issue()).key);
    const tls = { cert, key: { file: join(folder, "key") } };
    expect(() => connect({ address: "localhost:1", tls })).toThrow("can't be used");
  });
});
