import { createHash } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Etcd3 } from "etcd3";
import { expect, onTestFinished, test } from "vitest";
import { proxyFlags } from "../../../src/cli/etcd-proxy/proxy-flags.ts";
import { proxyOptions, withProxyNames } from "../../../src/cli/etcd-proxy/proxy-options.ts";
import { startEtcd } from "../../etcd/etcd.ts";
import { etcdOfFile } from "../../etcd/etcd-of-file.ts";
import { RawGrpc, statusOf } from "../../etcd-api/raw-grpc.ts";
import { encode, Message } from "../../foreign/protobuf.ts";
import { CommandProcess } from "../serve/serve-process.ts";

const etcdOf = etcdOfFile();

test("etcd-proxy runs with the flags that etcd's own tests give to grpc-proxy", async () => {
  const etcd = await startEtcd();
  onTestFinished(() => etcd.stop());
  await using proxy = new CommandProcess([
    ...["etcd-proxy", "start"],
    ...["--listen-addr", "127.0.0.1:0", "--endpoints", etcd.url],
    ...["--advertise-client-url", "", "--data-dir", "/tmp/proxy"],
    ...["--metrics-addr", "http://127.0.0.1:0"],
  ]);
  await proxy.printed(/^started gRPC proxy$/m);
  await proxy.printed(/^warning: --data-dir has no effect: nothing is stored\.$/m);
  const [, address = ""] = await proxy.printed(/serves gRPC on (\S+)/);
  const [, admin = ""] = await proxy.printed(/admin +(\S+)\/readyz/);
  const client = new RawGrpc(`http://${address}`);
  const put = await client.unary("/etcdserverpb.KV/Put", encode({ 1: "a", 2: "b" }));
  expect(statusOf(put).code).toBe("0");
  // grpc-proxy serves nothing but etcd's API.
  const own = await client.unary("/watchfanout.v1.WriteService/Put", encode({ 1: "all", 2: "a" }));
  expect(statusOf(own).code).toBe("12");
  const health = await client.unary("/grpc.health.v1.Health/Check", Buffer.of());
  expect([statusOf(health).code, health.body.toString("hex")]).toEqual(["0", "00000000020801"]);
  client.close();
  expect(await (await fetch(`${admin}/health`)).json()).toEqual({ health: "true", reason: "" });
  expect(await (await fetch(`${admin}/version`)).json()).toMatchObject({
    etcdserver: etcd.version,
  });
  expect((await fetch(`${admin}/metrics`)).status).toBe(200);
  // As with grpc-proxy, probes may use the port of clients.
  expect(await (await fetch(`http://${address}/health`)).json()).toEqual({
    health: "true",
    reason: "",
  });
  for (const port of [admin, `http://${address}`]) {
    const own = await fetch(`${port}/proxy/health`);
    expect([own.status, await own.json()]).toEqual([200, { health: "true", reason: "" }]);
    const metrics = await (await fetch(`${port}/proxy/metrics`)).text();
    expect(metrics).toMatch(/^watch_fanout_etcd_api_calls /m);
  }
  // The member's metrics are on the port of clients, as with grpc-proxy.
  const ofMember = await (await fetch(`http://${address}/metrics`)).text();
  expect(ofMember).toMatch(/^etcd_server_has_leader 1$/m);
  const read = await fetch(`http://${address}/v3/kv/range`, {
    method: "POST",
    body: `{"key":"YQ=="}`,
  });
  expect(await read.json()).toMatchObject({ kvs: [{ key: "YQ==", value: "Yg==" }] });
  await etcd.kill();
  // A page may be half a second old.
  let failed = await fetch(`${admin}/health`);
  for (; failed.ok; await delay(5)) failed = await fetch(`${admin}/health`);
  expect([failed.status, await failed.json()]).toMatchObject([503, { health: "false" }]);
  failed = await fetch(`http://${address}/proxy/health`);
  for (; failed.ok; await delay(5)) failed = await fetch(`http://${address}/proxy/health`);
  expect([failed.status, await failed.json()]).toMatchObject([503, { health: "false" }]);
  proxy.kill("SIGTERM");
  expect((await proxy.exit).code).toBe(0);
});

/** What the service says of its open watches on the etcd API: all, and those of them that etcd serves. */
async function watchesOf(admin: string): Promise<Record<string, number>> {
  const text = await (await fetch(`${admin}/metrics`)).text();
  const lines = text.matchAll(/^watch_fanout_etcd_api_watches\{[^}]*="(\w+)"\} (\d+)/gm);
  return Object.fromEntries([...lines].map(([, by = "", count]) => [by, Number(count)]));
}

const grpcProxy = (url: string): string[] => [
  ...["etcd-proxy", "--endpoints", url, "--listen-addr", "127.0.0.1:0"],
  ...["--metrics-addr", "http://127.0.0.1:0"],
];

test("the port of clients shows no metrics where callers need a credential", async () => {
  const { url } = await etcdOf();
  const folder = await mkdtemp(join(tmpdir(), "wf-tokens-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  const tokens = join(folder, "tokens");
  await writeFile(tokens, `sha256:${createHash("sha256").update("t").digest("hex")} ann\n`);
  await using proxy = new CommandProcess([...grpcProxy(url), "--token-file", tokens]);
  const [, admin = ""] = await proxy.printed(/(http:\S+:\d+)\/readyz/);
  const [, address = ""] = await proxy.printed(/serves gRPC on (\S+)/);
  for (const path of ["/metrics", "/proxy/metrics"]) {
    expect((await fetch(`http://${address}${path}`)).status).toBe(404);
    expect((await fetch(`${admin}${path}`)).status).toBe(200);
  }
  expect((await fetch(`http://${address}/proxy/health`)).status).toBe(200);
});

test("etcd-proxy with grpc-proxy's own flags serves watches from a cache", async () => {
  const { url } = await etcdOf();
  await using proxy = new CommandProcess(grpcProxy(url));
  const [, admin = ""] = await proxy.printed(/(http:\S+:\d+)\/readyz/);
  const [, address = ""] = await proxy.printed(/serves gRPC on (\S+)/);
  while (!(await fetch(`${admin}/readyz`)).ok) await delay(5);
  const client = new RawGrpc(`http://${address}`);
  onTestFinished(() => client.close());
  // So that the ids of the cluster are known.
  await client.unary("/etcdserverpb.KV/Put", encode({ 1: "a/1", 2: "b" }));
  const watches = Array.from({ length: 10 }, () => {
    const call = client.open("/etcdserverpb.Watch/Watch");
    call.send(encode({ 1: encode({ 1: "a/", 2: "a0" }) }));
    return call;
  });
  for (const watch of watches) await watch.untilMessages(1);
  while ((await watchesOf(admin))["etcd"] !== 0) await delay(5);
  expect(await watchesOf(admin)).toEqual({ cache: 10, etcd: 0 });
});

test("etcd-proxy --cache=false caches nothing, and warns of it", async () => {
  const { url } = await etcdOf();
  await using proxy = new CommandProcess([...grpcProxy(url), "--cache=false"]);
  await proxy.printed(/^started gRPC proxy$/m);
  await proxy.printed(/nothing is cached, so each watch and read of the etcd API is one of etcd/);
  await proxy.printed(/resources +none/);
});

test("etcd-proxy that may read nothing of etcd is ready, and passes calls on", async () => {
  const etcd = await startEtcd({ rootPassword: "r" });
  onTestFinished(() => etcd.stop());
  await using proxy = new CommandProcess(grpcProxy(etcd.url));
  const [, admin = ""] = await proxy.printed(/(http:\S+:\d+)\/readyz/);
  const [, address = ""] = await proxy.printed(/serves gRPC on (\S+)/);
  while (!(await fetch(`${admin}/readyz`)).ok) await delay(5);
  expect(await (await fetch(`${admin}/readyz?verbose`)).text()).toMatch(
    /^resource\/all: etcd serves these keys: .*user name is empty/m,
  );
  await proxy.printed(/^ {2}warning {4}resource\/all: etcd serves these keys: .*--etcd-username/m);
  // As of grpc-proxy: etcd answers, if only that it needs a user.
  const health = await fetch(`http://${address}/proxy/health`);
  expect([health.status, await health.json()]).toMatchObject([200, { health: "true" }]);
  const root = new Etcd3({ hosts: `http://${address}`, auth: { username: "root", password: "r" } });
  onTestFinished(() => root.close());
  await root.put("a").value("1");
  expect(await root.get("a").string()).toBe("1");
});

test("etcd-proxy writes nothing of its own, also with a cache", async ({ onTestFinished }) => {
  const etcd = await startEtcd();
  onTestFinished(() => etcd.stop());
  await using proxy = new CommandProcess([
    ...["etcd-proxy", "--listen-addr", "127.0.0.1:0", "--endpoints", etcd.url],
    ...["--metrics-addr", "http://127.0.0.1:0", "--resource", "all="],
  ]);
  await proxy.printed(/^started gRPC proxy$/m);
  await proxy.printed(/etcd's history has no id, and --etcd-history-create is off/);
  const [, address = ""] = await proxy.printed(/serves gRPC on (\S+)/);
  const client = new RawGrpc(`http://${address}`);
  const counted = await client.unary(
    "/etcdserverpb.KV/Range",
    encode({ 1: Buffer.of(0), 2: Buffer.of(0), 9: true }),
  );
  expect(statusOf(counted).code).toBe("0");
  const response = new Message(counted.body.subarray(5));
  // The revision of an etcd that has never been written to.
  expect([response.message(1)?.number(3), response.number(4)]).toEqual([1, 0]);
  client.close();
});

test("etcd-proxy refuses a flag that it can't honour, and names flags as they were typed", async () => {
  await using proxy = new CommandProcess(["etcd-proxy", "--auto-tls"]);
  expect(await proxy.exit).toMatchObject({
    code: 2,
    stderr: expect.stringContaining("error: --auto-tls: certificates are not generated"),
  });
});

test("the flags of grpc-proxy become those of serve", () => {
  const { flags, defaults, problems, warnings } = proxyOptions({
    endpoints: ["a:2379,b"],
    cacert: ["ca.crt"],
    "insecure-skip-tls-verify": ["true"],
    "auto-tls": ["false"],
    "metrics-addr": ["http://[::1]:8080"],
    "cert-file": ["server.crt"],
    debug: ["true"],
    "max-send-bytes": ["1"],
  });
  expect(flags).toEqual({
    ...{ "etcd-api": ["on"], insecure: ["on"] },
    ...{ etcd: ["https://a:2379", "https://b"], "etcd-ca": ["ca.crt"] },
    ...{ "etcd-insecure-skip-verify": ["on"], admin: ["[::1]:8080"], "tls-cert": ["server.crt"] },
    "log-level": ["debug"],
  });
  expect(defaults).toEqual({
    ...{ "etcd-history-create": ["off"], "watch-fanout-api": ["off"] },
    ...{ listen: ["127.0.0.1:23790"], resource: ["all="] },
  });
  expect(problems).toEqual([]);
  expect(warnings).toEqual([
    "--max-send-bytes has no effect: etcd's own limits of messages apply.",
  ]);
});

test("an address without a host is one of all interfaces", () => {
  expect(proxyOptions({ "listen-addr": [":23790"] }).flags.listen).toEqual(["0.0.0.0:23790"]);
});

test.each([
  ["metrics-addr", "https://a:1", '--metrics-addr: "https://a:1" is not http://HOST:PORT.'],
  ["debug", "maybe", '--debug: "maybe" is neither true nor false.'],
])("--%s %s is refused", (name, value, problem) => {
  expect(proxyOptions({ [name]: [value] }).problems).toEqual([problem]);
});

test("flags of TLS and of keepalive pings take the values of Go", () => {
  const flagsOf = (typed: Record<string, string>) =>
    proxyOptions(Object.fromEntries(Object.entries(typed).map(([name, text]) => [name, [text]])));
  const { flags, problems, warnings } = flagsOf({
    ...{ "cert-file": "server.crt", "key-file": "server.key" },
    ...{ "tls-min-version": "TLS1.2", "tls-max-version": "TLS1.3" },
    "listen-cipher-suites": "TLS_A,TLS_B",
    ...{ "dial-keepalive-time": "1m30.5s", "dial-keepalive-timeout": "900ms" },
    "permit-without-stream": "1",
  });
  expect(flags).toMatchObject({
    ...{ "tls-min-version": ["TLS1.2"], "tls-max-version": ["TLS1.3"] },
    "tls-cipher-suites": ["TLS_A,TLS_B"],
    ...{ "etcd-keepalive-time": ["90500ms"], "etcd-keepalive-timeout": ["900ms"] },
    "etcd-keepalive-without-calls": ["on"],
  });
  expect([problems, warnings]).toEqual([[], []]);
  // As in grpc-go, which raises it, and takes zero for none.
  expect(flagsOf({ "dial-keepalive-time": "3s" }).flags["etcd-keepalive-time"]).toEqual([
    "10000ms",
  ]);
  expect(flagsOf({ "dial-keepalive-timeout": "1ns" }).flags["etcd-keepalive-timeout"]).toEqual([
    "100ms",
  ]);
  expect(flagsOf({ "dial-keepalive-time": "0" }).flags["etcd-keepalive-time"]).toBeUndefined();
  expect(flagsOf({ "dial-keepalive-time": "5" }).problems).toEqual([
    '--dial-keepalive-time: "5" is not a duration as Go writes it, such as 500ms, 30s or 1m30s.',
  ]);
});

test("certificates for etcd have no effect with http endpoints, as with etcd", async () => {
  const { url } = await etcdOf();
  const { flags, problems, warnings } = proxyOptions({
    endpoints: [url],
    ...{ cacert: ["ca.crt"], cert: ["a.crt"], key: ["a.key"] },
    "insecure-skip-tls-verify": ["true"],
  });
  expect(problems).toEqual([]);
  expect(Object.keys(flags).sort()).toEqual(["etcd", "etcd-api", "insecure"]);
  expect(warnings).toEqual(
    ["cacert", "cert", "key", "insecure-skip-tls-verify"].map(
      (name) => `--${name} has no effect with http endpoints.`,
    ),
  );
  await using proxy = new CommandProcess([
    ...["etcd-proxy", "--endpoints", url, "--cacert", "/nowhere/ca.crt"],
    ...["--listen-addr", "127.0.0.1:0", "--metrics-addr", "http://127.0.0.1:0"],
  ]);
  await proxy.printed(/^started gRPC proxy$/m);
});

test("flags that etcd would not heed are not refused", () => {
  const { problems, warnings } = proxyOptions({
    "auto-tls": ["true"],
    "cert-file": ["server.crt"],
    "resolver-ttl": ["0"],
    "insecure-discovery": ["true"],
    "discovery-srv-name": ["etcd"],
  });
  expect(problems).toEqual([]);
  expect(warnings).toEqual([
    "--auto-tls has no effect with --cert-file.",
    "--resolver-ttl has no effect.",
    "--discovery-srv-name has no effect without --discovery-srv.",
    "--insecure-discovery has no effect without --discovery-srv.",
  ]);
  const refused = { "auto-tls": ["true"], "client-crl-file": ["crl"], "cert-file": [""] };
  expect(proxyOptions(refused).problems).toHaveLength(1);
  expect(proxyOptions({ "client-crl-file": ["crl"], "cert-file": ["a"] }).problems).toHaveLength(1);
});

test("every flag that is refused or ignored says why", () => {
  const reasons = Object.values(proxyFlags).flatMap(
    ({ refused, ignored }) => refused ?? ignored ?? [],
  );
  expect(reasons.length).toBeGreaterThan(10);
  for (const why of reasons) expect(why).toMatch(/^\S.*\.$/);
});

test("problems name the flags of grpc-proxy", () => {
  expect(withProxyNames("--etcd-cert: needs --etcd-key as well; see --etcd and --tls-cert.")).toBe(
    "--cert: needs --key as well; see --endpoints and --cert-file.",
  );
});

test.each([
  ["listen-addr", "metrics-addr"],
  ["metrics-addr", "listen-addr"],
])("a --%s in use is reported with that flag", async (flag, other) => {
  const { port } = new URL((await etcdOf()).url);
  await using proxy = new CommandProcess([
    ...["etcd-proxy", `--${flag}`, `127.0.0.1:${port}`, `--${other}`, "127.0.0.1:0"],
    ...["--endpoints", (await etcdOf()).url],
  ]);
  expect(await proxy.exit).toMatchObject({
    code: 1,
    stderr: expect.stringContaining(
      `error: --${flag}: can't listen on 127.0.0.1:${port}: the address is in use. ` +
        `Choose another with --${flag} HOST:PORT; port 0 selects a free port.\n`,
    ),
  });
});

test("etcd-proxy --namespace caches the namespace, also with workers", async () => {
  const { url } = await etcdOf();
  await using proxy = new CommandProcess([
    ...[...grpcProxy(url), "--namespace", "spaced/", "--workers", "2"],
  ]);
  await proxy.printed(/^started gRPC proxy$/m);
  const [, admin = ""] = await proxy.printed(/(http:\S+:\d+)\/readyz/);
  const [, address = ""] = await proxy.printed(/serves gRPC on (\S+)/);
  while (!(await fetch(`${admin}/readyz`)).ok) await delay(5);
  const client = new Etcd3({ hosts: `http://${address}` });
  onTestFinished(() => client.close());
  const direct = new Etcd3({ hosts: url });
  onTestFinished(() => direct.close());
  await direct.put("outside").value("1");
  await client.put("a").value("2");
  expect(await direct.get("spaced/a").string()).toBe("2");
  expect(await client.getAll().strings()).toEqual({ a: "2" });
  const watcher = await client.watch().prefix("").create();
  const changed = new Promise((resolve) => watcher.on("put", resolve));
  await direct.put("outside").value("3");
  await direct.put("spaced/b").value("4");
  expect(await changed).toMatchObject({ key: Buffer.from("b"), value: Buffer.from("4") });
});
