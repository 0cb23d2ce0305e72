import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { startUpText } from "../../../src/cli/serve/start-up-text.ts";
import type { ReadinessCheck } from "../../../src/server/admin/admin.ts";
import { certificates, load } from "../../config/sources.ts";
import { Authority, type CertificateContent } from "../../identity/authority.ts";
import { CommandProcess } from "./serve-process.ts";

const admin = { host: "127.0.0.1", port: 8080 };

test.each([
  ["0.0.0.0", "serves gRPC on 0.0.0.0:7", "--address 127.0.0.1:7"],
  ["::", "serves gRPC on [::]:7", "--address [::1]:7"],
  ["10.0.0.1", "serves gRPC on 10.0.0.1:7", "--address 10.0.0.1:7"],
])(
  "a server that listens on %s has an address that a client can reach",
  (host, served, reached) => {
    const text = startUpText(load({}), { grpc: { host, port: 7 }, admin });
    expect(text).toContain(served);
    expect(text).toContain(reached);
  },
);

test("a server on a Unix socket has commands that connect to it", () => {
  const text = startUpText(load({}), { grpc: { path: "/run/wf.sock" }, admin });
  expect(text).toContain("serves gRPC on unix:/run/wf.sock (plaintext)");
  expect(text).toMatch(/ watch --initial --address unix:\/run\/wf.sock\n/);
  expect(text).toMatch(/grpcurl -plaintext -unix -d '.*' \/run\/wf.sock watchfanout/);
});

test.each([
  [[], "watch-fanout.data/store.db, kept when this process ends (--data :memory: keeps nothing)"],
  [["--data", ":memory:"], "in memory, lost when this process ends"],
])("the data of an embedded store with %j are where they are", (flags, expected) => {
  const text = startUpText(load({ flags }), { grpc: { host: "127.0.0.1", port: 7 }, admin });
  expect(text).toContain(`\n  data       ${expected}\n`);
});

test("the commands leave out defaults", () => {
  const text = startUpText(load({}), { grpc: { host: "127.0.0.1", port: 50051 }, admin });
  expect(text).toMatch(/ watch --initial\n/);
});

test("every command names a resource with another name", () => {
  const config = load({ flags: ["--resource", "nodes=/nodes/"] });
  const text = startUpText(config, { grpc: { host: "127.0.0.1", port: 50051 }, admin });
  expect(text).toMatch(/ watch --initial --resource nodes\n/);
  expect(text).toContain('"resource":"nodes"');
});

test("the commands of etcd's client name keys as the namespace has them", () => {
  const etcd = ["--etcd", "http://127.0.0.1:2379", "--etcd-api", "on", "--resource", "a=ns/a/"];
  const config = load({ flags: [...etcd, "--etcd-api-namespace", "ns/"] });
  const text = startUpText(config, { grpc: { host: "127.0.0.1", port: 50051 }, admin });
  expect(text).toContain(" put a/greeting hello");
});

test("the etcd API says what it answers", () => {
  const flags = [
    "--etcd",
    "http://127.0.0.1:2379",
    "--etcd-api",
    "on",
    "--resource",
    "nodes=/nodes/",
  ];
  const config = load({ flags });
  const service = { grpc: { host: "127.0.0.1", port: 7 }, admin };
  expect(startUpText(config, service)).toMatch(/etcd API +watches and reads of resources from/);
  const relay = { ...config, resources: [] };
  expect(startUpText(relay, service)).toMatch(/etcd API +every call is passed to etcd\n/);
});

test.each([
  [{ host: "0.0.0.0", port: 7 }, "http://127.0.0.1:7"],
  [{ path: "/run/wf.sock" }, "unix:///run/wf.sock"],
])("without the service's own API, the commands are etcd's: on %j", (grpc, endpoint) => {
  const etcd = ["--etcd", "http://127.0.0.1:2379", "--etcd-api", "on"];
  const resources = ["--resource", "nodes=/nodes/", "--watch-fanout-api", "off"];
  const cases = [
    [etcd, "greeting"],
    [[...etcd, ...resources], "/nodes/greeting"],
  ] as const;
  for (const [flags, key] of cases) {
    const text = startUpText(load({ flags }), { grpc, admin });
    expect(text).toContain(`\n  etcdctl --endpoints ${endpoint} watch --prefix ${key}\n`);
    expect(text).not.toMatch(/watchfanout\.|bin\/watch-fanout (?!top)/);
  }
});

test("mTLS is shown", () => {
  const { cert, key } = certificates;
  const config = load({
    flags: ["--tls-cert", "cert", "--tls-key", "key", "--tls-client-ca", "cert"],
    files: { cert, key },
  });
  const text = startUpText(config, { grpc: { host: "127.0.0.1", port: 50051 }, admin });
  expect(text).toContain("(TLS, clients need a certificate)");
  expect(text).toContain("(names in capitals are yours):\n");
  expect(text).toMatch(
    / watch --initial --tls-ca \S+ .*--tls-client-cert CLIENT.pem --tls-client-key CLIENT.key\n/,
  );
  expect(text).toMatch(/grpcurl -cacert \S+ .*-cert CLIENT.pem -key CLIENT.key -d /);
  expect(text).not.toContain("-plaintext");
});

const local = { grpc: { host: "127.0.0.1", port: 50051 }, admin };

/** The text of a service with a certificate for these names, of an authority that clients do not trust by default. */
async function textWith(names: Required<CertificateContent>["names"], ...flags: readonly string[]) {
  const { cert, key } = await (await Authority.create()).issue({ cn: "server", names });
  const tokens = `sha256:${"0".repeat(64)} alice`;
  const files = { cert, key, tokens, policy: "roles: []\nbindings: []" };
  const given = ["--tls-cert", "cert", "--tls-key", "key", ...flags];
  return startUpText(load({ flags: given, files }), local);
}

test("with a certificate of a private authority the commands name that, and the certificate's name", async () => {
  const text = await textWith([{ type: "dns", value: "watch.example" }]);
  expect(text).toMatch(/ watch --initial --tls-ca CA.pem --tls-server-name watch.example\n/);
  expect(text).toMatch(/ put greeting hello --tls-ca CA.pem --tls-server-name watch.example\n/);
  expect(text).toContain("grpcurl -cacert CA.pem -servername watch.example -d ");
  const named = await textWith([{ type: "ip", value: "127.0.0.1" }]);
  expect(named).toMatch(/ watch --initial --tls-ca CA.pem\n/);
});

test("with a self-signed certificate the commands trust that", () => {
  const { cert, key } = certificates;
  const flags = ["--tls-cert", "server.pem", "--tls-key", "key"];
  const text = startUpText(load({ flags, files: { "server.pem": cert, key } }), local);
  expect(text).toMatch(/ watch --initial --tls-ca server.pem/);
  expect(text).not.toContain("capitals");
});

test("with tokens and a policy the commands need a token", async () => {
  const flags = ["--token-file", "tokens", "--policy", "policy"];
  const text = await textWith([{ type: "ip", value: "127.0.0.1" }], ...flags);
  expect(text).toMatch(/ put greeting hello --tls-ca CA.pem --bearer-token-file TOKEN\n/);
  expect(text).toContain('-H "authorization: Bearer $(cat TOKEN)"');
});

test("a resource without a cache has no watch to try", () => {
  const text = startUpText(
    load({ yaml: 'resources: [{name: a, prefix: "/a/", cache: off}]' }),
    local,
  );
  expect(text).toMatch(/ list --resource a\n/);
  expect(text).not.toContain(" watch ");
  expect(text).toContain("watchfanout.v1.ListWatchService/List\n");
});

const withEtcdApi = [
  ...["--etcd", "http://127.0.0.1:2379", "--etcd-api", "on", "--watch-fanout-api", "off"],
  ...["--resource", "a=/a/"],
];

test("in front of an etcd with authentication the commands of etcdctl need a user", () => {
  const given = ["--etcd-username", "cache", "--etcd-password-file", "password"];
  const flags = [...withEtcdApi, ...given];
  const text = startUpText(load({ flags, files: { password: "secret" } }), local);
  expect(text).toContain(" (names in capitals are yours):\n");
  expect(text).toMatch(/^ {2}etcdctl --endpoints \S+ --user USER watch --prefix \/a\/greeting$/m);
  expect(text).toMatch(/^ {2}etcdctl --endpoints \S+ --user USER put \/a\/greeting hello$/m);
});

test("no command of etcdctl is suggested where callers need a token of this service", async () => {
  const flags = [...withEtcdApi, "--token-file", "tokens", "--policy", "policy"];
  const text = await textWith([{ type: "ip", value: "127.0.0.1" }], ...flags);
  expect(text).not.toContain("etcdctl");
  expect(text).not.toContain("Watch changes");
});

test("the etcd API has commands of etcdctl, for keys of a cache", () => {
  const flags = ["--etcd", "http://127.0.0.1:2379", "--etcd-api", "on", "--resource", "a=/a/"];
  const text = startUpText(load({ flags }), local);
  expect(text).toContain(
    "  etcdctl --endpoints http://127.0.0.1:50051 watch --prefix /a/greeting\n",
  );
  expect(text).toContain("  etcdctl --endpoints http://127.0.0.1:50051 put /a/greeting hello\n");
});

test("the status page is named, with the command for a terminal where that works", async () => {
  expect(startUpText(load({}), local)).toMatch(
    /status +http:\/\/127.0.0.1:8080\/ in a browser, or \S*watch-fanout top\n/,
  );
  const everywhere = { ...local, admin: { host: "0.0.0.0", port: 81 } };
  expect(startUpText(load({}), everywhere)).toMatch(
    /status +http:\/\/127.0.0.1:81\/ in a browser, or \S*watch-fanout top --url http:\/\/127.0.0.1:81\n/,
  );
});

test("the commands of a service with TLS work, with the file of the authority", async () => {
  const folder = await mkdtemp(join(tmpdir(), "start-up-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  const authority = await Authority.create();
  const names = [{ type: "dns" as const, value: "watch.example" }];
  const { cert, key } = await authority.issue({ cn: "server", names });
  const path = (name: string): string => join(folder, name);
  await writeFile(path("cert.pem"), cert);
  await writeFile(path("key.pem"), key);
  await writeFile(path("CA.pem"), authority.cert);
  await using service = new CommandProcess([
    ...["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"],
    ...["--tls-cert", path("cert.pem"), "--tls-key", path("key.pem")],
  ]);
  const [, line = ""] = await service.printed(/watch-fanout (put greeting .*)\n/);
  await using put = new CommandProcess(line.replace("CA.pem", path("CA.pem")).split(" "));
  expect(await put.exit).toMatchObject({ code: 0, stderr: "" });
});

test("a service whose etcd is away says that it is not ready, and why", async () => {
  await using service = new CommandProcess([
    ...["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"],
    ...["--etcd", "http://127.0.0.1:1", "--resource", "a=/a/"],
  ]);
  await service.printed(/^ {2}not ready {2}resource\/a: .*http:\/\/127.0.0.1:1 /m);
});

test("the start-up text has the first check that fails, or else the first warning", () => {
  const ok = { name: "serving", failure: undefined };
  const warned = { name: "a", failure: undefined, warning: "late" };
  const failed = { name: "b", failure: "away" };
  const text = (...checks: ReadinessCheck[]) => startUpText(load({}), local, checks);
  expect(text(ok)).not.toMatch(/not ready|warning/);
  expect(text(ok, warned)).toContain("  warning    a: late\n");
  expect(text(ok, warned, failed)).toContain("  not ready  b: away\n");
  expect(text(ok, warned, failed)).not.toContain("warning");
});

test("a prefix with control characters is escaped", () => {
  const config = load({ yaml: 'resources: [{name: a, prefix: "\\e[2J\\n/a/"}]' });
  const text = startUpText(config, { grpc: { host: "127.0.0.1", port: 50051 }, admin });
  expect(text).toContain("a (\\u{1b}[2J\\n/a/)");
});

test("a relay shows what it follows, and the names of its resources there", () => {
  const flags = ["--upstream", "root:1,other:2", "--resource", "pods", "--resource", "mine=theirs"];
  const text = startUpText(load({ flags }), { grpc: { host: "127.0.0.1", port: 50051 }, admin });
  expect(text).toContain("  resources  pods, mine (theirs there)\n");
  expect(text).toContain("  data       watch-fanout at root:1, other:2\n");
});
