import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import type { Status } from "../../../src/server/admin/status/status.ts";
import { type Etcd, startEtcd } from "../../etcd/etcd.ts";
import { Authority, type Issued } from "../../identity/authority.ts";
import { until } from "../../relay/tiers.ts";
import { startServe } from "./serve-process.ts";

const folder = mkdtempSync(join(tmpdir(), "etcd-connection-errors-"));
let secured: Etcd;
let plain: Etcd;

/** Writes a file, and returns its path. */
function file(name: string, content: Buffer): string {
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
}

function pairOf(name: string, { cert, key }: Issued) {
  return { cert: file(`${name}.crt`, cert), key: file(`${name}.key`, key) };
}

const pathOf = (name: string): string => join(folder, name);

beforeAll(async () => {
  const [authority, other] = [await Authority.create(), await Authority.create("CN=Other")];
  const names = [{ type: "ip" as const, value: "127.0.0.1" }];
  const server = pairOf("server", await authority.issue({ cn: "server", names }));
  pairOf("foreign", await other.issue({ cn: "client" }));
  file("other.crt", other.cert);
  const clientCa = file("ca.crt", authority.cert);
  [secured, plain] = await Promise.all([startEtcd({ tls: { ...server, clientCa } }), startEtcd()]);
});

afterAll(async () => {
  await Promise.all([secured?.stop(), plain?.stop()]);
  rmSync(folder, { recursive: true });
});

const https = (etcd: Etcd): string => etcd.url.replace(/^http:/, "https:");
const http = (etcd: Etcd): string => etcd.url.replace(/^https:/, "http:");

test.each([
  [
    "TLS that etcd wants",
    () => ["--etcd", http(secured)],
    "it closed the connection without a response. If it uses TLS: write https:// in --etcd, and set --etcd-ca.",
  ],
  [
    "TLS that etcd does not use",
    () => ["--etcd", https(plain), "--etcd-ca", pathOf("ca.crt")],
    "it closed the connection in the TLS handshake. If it does not use TLS: write http:// in --etcd.",
  ],
  [
    "an authority that is not trusted",
    () => ["--etcd", https(secured), "--etcd-ca", pathOf("other.crt")],
    "its certificate is not of a trusted authority. Set --etcd-ca to the authority that has signed it.",
  ],
  [
    "a client certificate that is missing",
    () => ["--etcd", https(secured), "--etcd-ca", pathOf("ca.crt")],
    "it requires a client certificate. Set --etcd-cert and --etcd-key to one that an authority of the server has signed.",
  ],
  [
    "a client certificate that is refused",
    () => [
      ...["--etcd", https(secured), "--etcd-ca", pathOf("ca.crt")],
      ...["--etcd-cert", pathOf("foreign.crt"), "--etcd-key", pathOf("foreign.key")],
    ],
    "it refuses the client certificate. Set --etcd-cert and --etcd-key to one that an authority of the server has signed.",
  ],
])(
  "A service that can't reach etcd names %s, in readyz and in its verdict",
  async (_, flags, cause) => {
    const args = flags();
    const { process, admin } = await startServe([...args, "--resource", "things=/things/"]);
    onTestFinished(() => process[Symbol.asyncDispose]());
    let readyz = "";
    await until(async () => {
      readyz = await (await fetch(`${admin}/readyz?verbose`)).text();
      return readyz.includes(" failed: ");
    });
    const failure = `The etcd at ${args[1]} failed: ${cause}`;
    expect(readyz).toContain(failure);
    const { verdict } = (await (await fetch(`${admin}/status.json`)).json()) as Status;
    expect(verdict).toMatchObject({
      level: "failing",
      summary: expect.stringMatching(
        `^the resource things is not served: not synced with etcd at ${args[1]}, since .* UTC `,
      ),
    });
    // The event loop of a busy machine may be another reason.
    expect(verdict.reasons[0]?.detail).toBe(failure.slice(0, -1));
  },
);
