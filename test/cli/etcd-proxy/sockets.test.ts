import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { proxyOptions } from "../../../src/cli/etcd-proxy/proxy-options.ts";
import { endpoint } from "../../../src/config/value-types.ts";
import { startEtcd } from "../../etcd/etcd.ts";
import { RawGrpc, statusOf } from "../../etcd-api/raw-grpc.ts";
import { encode, Message } from "../../foreign/protobuf.ts";
import { Authority } from "../../identity/authority.ts";
import { CommandProcess } from "../serve/serve-process.ts";

test("etcd-proxy connects and listens by Unix sockets, as etcd does, with TLS as well", async () => {
  const folder = await mkdtemp(join(tmpdir(), "wf-sockets-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  const pathOf = (name: string): string => join(folder, name);
  const authority = await Authority.create();
  const names = [{ type: "dns" as const, value: "localhost" }];
  const { cert, key } = await authority.issue({ cn: "proxy", names });
  await writeFile(pathOf("ca.crt"), authority.cert);
  await writeFile(pathOf("server.crt"), cert);
  await writeFile(pathOf("server.key"), key);
  const etcd = await startEtcd({ args: [`--listen-client-urls=unix://${pathOf("etcd")}`] });
  onTestFinished(() => etcd.stop());
  const metrics = ["--metrics-addr", "http://127.0.0.1:0"];
  await using secure = new CommandProcess([
    ...["etcd-proxy", "start", ...metrics, "--endpoints", `unix://${pathOf("etcd")}`],
    ...["--listen-addr", `unixs://${pathOf("tls")}`],
    ...["--cert-file", pathOf("server.crt"), "--key-file", pathOf("server.key")],
  ]);
  await secure.printed(/^started gRPC proxy$/m);
  await using plain = new CommandProcess([
    ...["etcd-proxy", "start", ...metrics, "--endpoints", `unixs://${pathOf("tls")}`],
    ...["--cacert", pathOf("ca.crt"), "--listen-addr", `unix:${pathOf("plain")}`],
  ]);
  await plain.printed(/^started gRPC proxy$/m);
  const client = new RawGrpc("http://localhost", undefined, {
    createConnection: () => connect(pathOf("plain")),
  });
  onTestFinished(() => client.close());
  const put = await client.unary("/etcdserverpb.KV/Put", encode({ 1: "a", 2: "b" }));
  expect(statusOf(put).code).toBe("0");
  const read = await client.unary("/etcdserverpb.KV/Range", encode({ 1: "a" }));
  const object = new Message(read.body.subarray(5)).message(2);
  expect(object?.bytes(5)?.toString()).toBe("b");
});

test.each([
  ["unix:///run/etcd.sock", "unix:/run/etcd.sock"],
  ["unix:/run/etcd.sock", "unix:/run/etcd.sock"],
  ["unixs:///run/etcd.sock", "https://unix:/run/etcd.sock"],
  ["unix://etcd:1", `unix:${join(process.cwd(), "etcd:1")}`],
])("the endpoint %s is the socket %s", (text, url) => {
  expect(endpoint.parse(text)).toBe(url);
});

test("a socket has TLS with any TLS option for etcd, and its own scheme otherwise", () => {
  const etcdOf = (typed: Record<string, string[]>) => proxyOptions(typed).flags.etcd;
  const endpoints = ["unix://etcd.sock,unixs:b"];
  expect(etcdOf({ endpoints })).toEqual(["unix://etcd.sock", "unixs:b"]);
  expect(etcdOf({ endpoints, cacert: ["ca"] })).toEqual(["unixs://etcd.sock", "unixs:b"]);
  expect(proxyOptions({ endpoints: ["unix:a"], cert: ["c"] }).warnings).toEqual([]);
});

test("a socket with TLS needs a certificate", () => {
  expect(proxyOptions({ "listen-addr": ["unixs://a"] }).problems).toEqual([
    "--listen-addr: a socket with TLS needs --cert-file and --key-file.",
  ]);
});
