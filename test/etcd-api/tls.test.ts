import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { type Etcd, startEtcd } from "../etcd/etcd.ts";
import { encode } from "../foreign/protobuf.ts";
import { Authority } from "../identity/authority.ts";
import { startFront } from "./front.ts";
import { RawGrpc, type RawResponse, statusOf } from "./raw-grpc.ts";

let folder: string;
let etcd: Etcd;
let authority: Authority;

const pathOf = (name: string): string => join(folder, name);

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "etcd-api-"));
  authority = await Authority.create();
  const issue = async (name: string, cn: string): Promise<void> => {
    const names = [{ type: "ip" as const, value: "127.0.0.1" }];
    const { cert, key } = await authority.issue({ cn, names });
    await writeFile(pathOf(`${name}.crt`), cert);
    await writeFile(pathOf(`${name}.key`), key);
  };
  await writeFile(pathOf("ca.crt"), authority.cert);
  await writeFile(pathOf("other.crt"), (await Authority.create("CN=Other")).cert);
  await Promise.all([issue("server", "server"), issue("client", ""), issue("named", "ann")]);
  etcd = await startEtcd({
    tls: { cert: pathOf("server.crt"), key: pathOf("server.key"), clientCa: pathOf("ca.crt") },
  });
});

afterAll(async () => {
  await etcd.stop();
  await rm(folder, { recursive: true });
});

const clientCertificate = (name: string) => ({
  "etcd-cert": [pathOf(`${name}.crt`)],
  "etcd-key": [pathOf(`${name}.key`)],
});

async function put(url: string, ca?: Buffer): Promise<RawResponse> {
  const client = new RawGrpc(url, ca);
  onTestFinished(() => client.close());
  return client.unary("/etcdserverpb.KV/Put", encode({ 1: "a", 2: "b" }));
}

test("etcd and clients may both use TLS", async () => {
  const front = await startFront([etcd.url], {
    ...clientCertificate("client"),
    "etcd-ca": [pathOf("ca.crt")],
    "tls-cert": [pathOf("server.crt")],
    "tls-key": [pathOf("server.key")],
  });
  onTestFinished(() => front.stop());
  const response = await put(`https://${front.address}`, authority.cert);
  expect(statusOf(response).code).toBe("0");
  expect(await (await fetch(`${front.admin}/version`)).json()).toMatchObject({
    etcdserver: etcd.version,
  });
});

test("an etcd with a certificate of another authority gets no call, unless that is accepted", async () => {
  const options = { ...clientCertificate("client"), "etcd-ca": [pathOf("other.crt")] };
  const careful = await startFront([etcd.url], options);
  onTestFinished(() => careful.stop());
  expect(statusOf(await put(careful.url)).code).toBe("14");
  const careless = await startFront([etcd.url], {
    ...options,
    "etcd-insecure-skip-verify": ["on"],
  });
  onTestFinished(() => careless.stop());
  expect(statusOf(await put(careless.url)).code).toBe("0");
});

test("a client certificate with a common name is refused: it would lend its rights to every client (etcd issue 10343)", async () => {
  await expect(startFront([etcd.url], clientCertificate("named"))).rejects.toThrow(
    /--etcd-cert: the certificate has the common name "ann"/,
  );
});
