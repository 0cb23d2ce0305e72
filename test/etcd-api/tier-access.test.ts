import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { tokenDigest } from "../../src/identity/token-file.ts";
import { startEtcd } from "../etcd/etcd.ts";
import { Relay as Network } from "../faults/relay.ts";
import { encode, type Fields, Message } from "../foreign/protobuf.ts";
import { Authority } from "../identity/authority.ts";
import { temporaryFiles } from "../relay/tiers.ts";
import { type Front, metricOf, startFront, startRelay, until, untilReady } from "./front.ts";
import { RawGrpc, type RawResponse, statusOf } from "./raw-grpc.ts";
import { WatchClient } from "./watch-client.ts";

const put = "/etcdserverpb.KV/Put";
const range = "/etcdserverpb.KV/Range";

const policy = `
roles:
  - name: all
    rules: [{ resources: ["*"], prefixes: ["*"], verbs: ["*"] }]
  - name: reader
    rules: [{ resources: ["*"], prefixes: ["*"], verbs: [get, list, watch] }]
bindings: [{ role: all, subjects: [relay] }, { role: reader, subjects: [reader] }]
`;

/** An etcd whose user root has the password "password", and a token of that user. */
async function etcdWithUsers(): Promise<{ readonly url: string; readonly token: string }> {
  const etcd = await startEtcd({ rootPassword: "password" });
  onTestFinished(() => etcd.stop());
  const direct = new RawGrpc(etcd.url);
  const credentials = encode({ 1: "root", 2: "password" });
  const response = await direct.unary("/etcdserverpb.Auth/Authenticate", credentials);
  direct.close();
  return { url: etcd.url, token: new Message(response.body.subarray(5)).text(2) };
}

function clientOf({ url }: { readonly url: string }): RawGrpc {
  const client = new RawGrpc(url);
  onTestFinished(() => client.close());
  return client;
}

async function started(front: Promise<Front>): Promise<Front> {
  const running = await front;
  onTestFinished(() => running.stop());
  return running;
}

const codeOf = async (response: Promise<RawResponse>): Promise<string> =>
  statusOf(await response).code;

test("A relay has its own credential at the root, and that of its client is for etcd", async () => {
  const etcd = await etcdWithUsers();
  const files = temporaryFiles({
    policy,
    tokens: `sha256:${tokenDigest("one")} relay\nsha256:${tokenDigest("few")} reader\n`,
    relay: "one\n",
    few: "few\n",
  });
  const withUser = { "etcd-username": ["root"], "etcd-password": ["password"] };
  const root = await started(
    startFront([etcd.url], {
      ...{ resource: ["a=/a/"], policy: [files.policy], "token-file": [files.tokens] },
      ...withUser,
    }),
  );
  await untilReady(root);
  const relayFlags = { "upstream-token-file": [files.relay], "watch-fanout-api": ["off"] };
  const relay = await started(startRelay([root.address], { ...relayFlags, ...withUser }));
  await untilReady(relay);
  const client = clientOf(relay);
  const request = encode({ 1: "/a/k", 2: "v" });
  // etcd's own refusal, and its own permission, by both names of the metadata.
  expect(statusOf(await client.unary(put, request)).message).toContain("user name is empty");
  expect(await codeOf(client.unary(put, request, { token: etcd.token }))).toBe("0");
  expect(await codeOf(client.unary(put, request, { authorization: etcd.token }))).toBe("0");
  expect(await codeOf(client.unary(put, request, { authorization: "nonsense" }))).toBe("16");
  const watch = new WatchClient(client, { authorization: etcd.token });
  watch.create({ 1: "/a/k" });
  await watch.until(({ length }) => length === 1);
  expect(await codeOf(client.unary(put, request, { token: etcd.token }))).toBe("0");
  await watch.until(() => watch.eventsOf().length === 1);
  expect(await metricOf(relay, "watch_fanout_etcd_api_watches", "cache")).toBe(1);
  const read = await client.unary(range, encode({ 1: "/a/k" }), { token: etcd.token });
  expect(new Message(read.body.subarray(5)).messages(2)).toHaveLength(1);
  expect(await metricOf(relay, "watch_fanout_etcd_api_ranges_total", "cache")).toBe(1);
  // Without a credential of etcd the cache is not for a client.
  const refused = new WatchClient(client);
  refused.create({ 1: "/a/k" });
  await refused.until(({ length }) => length === 1);
  expect(refused.responses[0]).toMatchObject({ created: true, canceled: true });
  // At the root etcd's API is for callers that may do everything.
  const atRoot = clientOf(root);
  expect(await codeOf(atRoot.unary(put, request, { token: etcd.token }))).toBe("7");
  const few = startRelay([root.address], { ...relayFlags, "upstream-token-file": [files.few] });
  await expect(few).rejects.toThrow("every verb on every key of every resource");
  // The root withdraws the relay's rights.
  writeFileSync(files.policy, policy.replace("subjects: [relay]", "subjects: [other]"));
  await until(async () => {
    const ready = await (await fetch(`${relay.admin}/readyz?verbose`)).text();
    return ready.includes("refuses the relay itself");
  });
  await watch.until((responses) => responses.at(-1)?.canceled === true).catch(() => {});
  expect(await codeOf(client.unary(put, request, { token: etcd.token }))).toBe("7");
});

test("A relay reaches its root by TLS, with a client certificate, also after its connections were cut", async () => {
  const etcd = await startEtcd();
  onTestFinished(() => etcd.stop());
  const authority = await Authority.create();
  const server = await authority.issueForServer();
  const own = await authority.issue({ cn: "relay" });
  const files = temporaryFiles({
    ...{ ca: authority.cert.toString(), cert: server.cert.toString(), key: server.key.toString() },
    ...{ "relay-cert": own.cert.toString(), "relay-key": own.key.toString() },
  });
  const root = await started(
    startFront([etcd.url], {
      ...{ resource: ["a=/a/"], "tls-cert": [files.cert], "tls-key": [files.key] },
      "tls-client-ca": [files.ca],
    }),
  );
  const network = await Network.to(Number(new URL(root.url).port));
  onTestFinished(() => network.close());
  const relay = await started(
    startRelay([`127.0.0.1:${network.port}`], {
      ...{ "upstream-tls-ca": [files.ca], "upstream-tls-cert": [files["relay-cert"]] },
      "upstream-tls-key": [files["relay-key"]],
    }),
  );
  await untilReady(relay);
  const client = clientOf(relay);
  const written = async (value: string): Promise<boolean> =>
    (await codeOf(client.unary(put, encode({ 1: "/a/k", 2: value })))) === "0";
  // A busy machine may take too long for its first connection.
  await until(() => written("0"));
  const watch = new WatchClient(client);
  watch.create({ 1: "/a/k" });
  await watch.until(({ length }) => length === 1);
  expect(await written("1")).toBe(true);
  await watch.until(() => watch.eventsOf().length === 1);
  await until(async () => (await metricOf(relay, "watch_fanout_etcd_api_watches", "cache")) === 1);

  network.cut();
  await until(() => written("2"));
  await watch.until(() => watch.eventsOf().at(-1)?.kv.value === "2");
  watch.close();
});

test("A relay passes calls to a root at a socket, and fills its caches there", async () => {
  const etcd = await startEtcd();
  onTestFinished(() => etcd.stop());
  const folder = mkdtempSync(join(tmpdir(), "etcd-socket-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const listen = [`unix:${join(folder, "root.sock")}`];
  const root = await started(startFront([etcd.url], { resource: ["a=/a/"], listen }));
  const relay = await started(startRelay([root.address]));
  await untilReady(relay);
  const client = clientOf(relay);
  expect(await codeOf(client.unary(put, encode({ 1: "/a/k", 2: "v" })))).toBe("0");
  expect(await codeOf(client.unary(range, encode({ 1: "/a/k" })))).toBe("0");
  expect(await metricOf(relay, "watch_fanout_etcd_api_ranges_total", "cache")).toBe(1);
  const health = await fetch(`${relay.url}/health`);
  expect(await health.json()).toMatchObject({ health: "true" });
});

test("A front without the own API is followed as etcd, also with users", async () => {
  const etcd = await etcdWithUsers();
  const flags = {
    ...{ resource: ["all="], "watch-fanout-api": ["off"] },
    ...{ "etcd-username": ["root"], "etcd-password": ["password"] },
  };
  const root = await started(startFront([etcd.url], flags));
  const front = await started(startFront([root.url], { ...flags, "etcd-history-create": ["off"] }));
  await untilReady(front);
  const client = clientOf(front);
  const call = async (path: string, fields: Fields): Promise<void> => {
    expect(await codeOf(client.unary(path, encode(fields), { token: etcd.token }))).toBe("0");
  };
  const watch = new WatchClient(client, { token: etcd.token });
  watch.create({ 1: "k" });
  await watch.until(({ length }) => length === 1);
  await call(put, { 1: "k", 2: "v" });
  await call(range, { 1: "k" });
  await watch.until(() => watch.eventsOf().length === 1);
  for (const each of [root, front]) {
    // A watch that comes before the front follows etcd begins there, and moves.
    await until(async () => (await metricOf(each, "watch_fanout_etcd_api_watches", "etcd")) === 0);
  }
  expect(await codeOf(client.unary(range, encode({ 1: "k" })))).toBe("3");
});
