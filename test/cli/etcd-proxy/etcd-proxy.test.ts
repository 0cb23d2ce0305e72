import { expect, test } from "vitest";
import { proxyFlags } from "../../../src/cli/etcd-proxy/proxy-flags.ts";
import { proxyOptions, withProxyNames } from "../../../src/cli/etcd-proxy/proxy-options.ts";
import { startEtcd } from "../../etcd/etcd.ts";
import { etcdOfFile } from "../../etcd/etcd-of-file.ts";
import { RawGrpc, statusOf } from "../../etcd-api/raw-grpc.ts";
import { encode, Message } from "../../foreign/protobuf.ts";
import { CommandProcess } from "../serve/serve-process.ts";

const etcdOf = etcdOfFile();

test("etcd-proxy runs with the flags that etcd's own tests give to grpc-proxy", async () => {
  const etcd = await etcdOf();
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
  await etcd.kill();
  // A page may be half a second old.
  let failed = await fetch(`${admin}/health`);
  while (failed.ok) failed = await fetch(`${admin}/health`);
  expect([failed.status, await failed.json()]).toMatchObject([503, { health: "false" }]);
  proxy.kill("SIGTERM");
  expect((await proxy.exit).code).toBe(0);
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
  await using proxy = new CommandProcess(["etcd-proxy", "--namespace", "a/"]);
  expect(await proxy.exit).toMatchObject({
    code: 2,
    stderr: expect.stringContaining("error: --namespace: keys are passed on as they are"),
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
    listen: ["127.0.0.1:23790"],
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
  expect(
    proxyOptions({ "discovery-srv": ["a"], "insecure-discovery": ["true"] }).problems,
  ).toHaveLength(2);
});

test("every flag that is refused or ignored says why", () => {
  const reasons = Object.values(proxyFlags).flatMap((flag) => ("why" in flag ? [flag.why] : []));
  expect(reasons.length).toBeGreaterThan(15);
  for (const why of reasons) expect(why).toMatch(/^\S.*\.$/);
});

test("problems name the flags of grpc-proxy", () => {
  expect(withProxyNames("--etcd-cert: needs --etcd-key as well; see --etcd and --tls-cert.")).toBe(
    "--cert: needs --key as well; see --endpoints and --cert-file.",
  );
});
