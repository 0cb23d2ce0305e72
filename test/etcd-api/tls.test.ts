import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { connect as connectHttp2 } from "node:http2";
import { request as httpsRequest } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { json } from "node:stream/consumers";
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

/** A range by the JSON gateway, by HTTP/1.1 or HTTP/2. */
async function rangeByTls(address: string, protocol: string, body: string): Promise<unknown> {
  const options = { ca: authority.cert, method: "POST", ALPNProtocols: [protocol] };
  const { promise, resolve } = Promise.withResolvers<Readable>();
  if (protocol === "h2") {
    const session = connectHttp2(`https://${address}`, { ca: authority.cert });
    onTestFinished(() => session.destroy());
    resolve(session.request({ ":method": "POST", ":path": "/v3/kv/range" }).end(body));
  } else {
    httpsRequest(`https://${address}/v3/kv/range`, { ...options, agent: false }, resolve).end(body);
  }
  return json(await promise);
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
  const body = JSON.stringify({ key: "YQ==" });
  const found = { kvs: [{ key: "YQ==", value: "Yg==" }] };
  for (const protocol of ["http/1.1", "h2"]) {
    expect(await rangeByTls(front.address, protocol, body)).toMatchObject(found);
  }
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
