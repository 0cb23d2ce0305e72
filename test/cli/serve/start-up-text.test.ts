import { expect, test } from "vitest";
import { startUpText } from "../../../src/cli/serve/start-up-text.ts";
import { certificates, load } from "../../config/sources.ts";

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
  for (const flags of [etcd, [...etcd, ...resources]]) {
    const text = startUpText(load({ flags }), { grpc, admin });
    expect(text).toContain(`\n  etcdctl --endpoints ${endpoint} watch --prefix ""\n`);
    expect(text).not.toMatch(/watchfanout|bin\/watch-fanout/);
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
  expect(text).toMatch(/ watch --initial --tls\n/);
  expect(text).not.toContain("-plaintext");
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
