import { writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { etcdMethods } from "../../../src/etcd/wire/methods.ts";
import { etcdOfFile } from "../../etcd/etcd-of-file.ts";
import { encode } from "../../foreign/protobuf.ts";
import { temporaryFiles } from "../../relay/tiers.ts";
import { frontOfFile, startFront, until, untilReady } from "../front.ts";
import { RawGrpc, statusOf } from "../raw-grpc.ts";
import { WatchClient } from "../watch-client.ts";
import { policyText, prefixes, tokensText } from "./limited-callers.ts";

const files = temporaryFiles(
  { policy: policyText, tokens: tokensText, audit: "", pods: podsPolicy() },
  afterAll,
);
const etcdOf = etcdOfFile();
const frontOf = frontOfFile(async () =>
  startFront([(await etcdOf()).url], {
    resource: Object.entries(prefixes).map(([name, prefix]) => `${name}=${prefix}`),
    ...{ policy: [files.policy], "token-file": [files.tokens] },
    ...{ "audit-log": [files.audit], "audit-level": ["reads"] },
  }),
);
let client: RawGrpc;

/** A caller may do everything with one resource. */
function podsPolicy(): string {
  const rules = [{ resources: ["pods"], prefixes: ["*"], verbs: ["*"] }];
  return JSON.stringify({
    roles: [{ name: "editor", rules }],
    bindings: [{ role: "editor", subjects: ["editor"] }],
  });
}

const as = (caller: string) => ({ authorization: `Bearer ${caller}` });
const unary = (caller: string, method: string, message: Buffer) =>
  client.unary(`/etcdserverpb.KV/${method}`, message, as(caller));

beforeAll(async () => {
  const front = await frontOf();
  await untilReady(front);
  client = new RawGrpc(front.url);
  return () => client.close();
});

test("Methods whose requests are not checked are for callers with every right", async () => {
  const checked = [
    ...["KV/Range", "KV/RangeStream", "KV/Put", "KV/DeleteRange", "KV/Txn", "Watch/Watch"],
    ...["Lease/LeaseGrant", "Lease/LeaseRevoke", "Lease/LeaseKeepAlive", "Lease/LeaseTimeToLive"],
    "Auth/Authenticate",
  ].map((name) => `/etcdserverpb.${name}`);
  const others = [...etcdMethods.keys()].filter((path) => !checked.includes(path));
  expect(others).toHaveLength(etcdMethods.size - checked.length);
  const unknown = ["/etcdserverpb.KV/New", "/etcdserverpb.Other/Range", "/v3lockpb.Lock/New"];
  for (const path of [...others, ...unknown]) {
    for (const caller of ["editor", "stranger"]) {
      const response = await client.unary(path, encode({ 1: "/r/pods/d/1" }), as(caller));
      expect([path, statusOf(response).code]).toEqual([path, "7"]);
    }
  }
});

test("A refusal names what was asked for, and is the same whether or not it exists", async () => {
  await unary("root", "Put", encode({ 1: "/r/pods/x/1", 2: "v" }));
  const texts: string[] = [];
  for (const [key, end] of [
    ["/r/pods/x/1", "/r/pods/x/2"],
    ["/r/pods/y/1", "/r/pods/y/2"],
    ["/none/y/1", "/none/y/2"],
  ] as const) {
    const response = await unary("reader", "Range", encode({ 1: key, 2: end }));
    expect(response.body).toHaveLength(0);
    const { code, message } = statusOf(response);
    expect(code).toBe("7");
    texts.push(decodeURIComponent(message).replace(key, "FROM").replace(end, "TO"));
  }
  expect(new Set(texts).size).toBe(1);
  expect(texts[0]).toContain('"reader" may not list the keys from "FROM" up to "TO" in etcd.');
});

test.each([
  ["an unknown field", "Put", { 1: "/r/pods/d/1", 9: 1 }],
  ["no key", "Range", { 2: "/r/pods/d/" }],
])("A request with %s is refused", async (_, method, fields) => {
  expect(statusOf(await unary("editor", method, encode(fields))).code).toBe("7");
});

test("A request that is compressed, of two messages, cut, or too large is refused", async () => {
  const message = encode({ 1: "/r/pods/d/1", 2: "v" });
  const framed = Buffer.concat([Buffer.alloc(5), message]);
  framed.writeUInt32BE(message.length, 1);
  const large = Buffer.alloc(2 * 1024 ** 2 + 100, 0x61);
  const compressed = Buffer.from(framed);
  compressed.writeUInt8(1, 0);
  for (const bytes of [
    compressed,
    Buffer.concat([framed, framed]),
    framed.subarray(0, framed.length - 1),
    framed.subarray(0, 3),
    Buffer.alloc(0),
    Buffer.alloc(5),
    large,
  ]) {
    const call = client.open("/etcdserverpb.KV/Put", as("editor"));
    call.stream.end(bytes);
    expect(statusOf(await call.response).code).toBe("7");
  }
  expect(statusOf(await unary("editor", "Put", message)).code).toBe("0");
});

test("Only an administrator may write the key of the history", async () => {
  // The marker is in a resource of a caller's own.
  const front = await startFront([(await etcdOf()).url], {
    ...{ resource: ["pods=/r/"], "etcd-history-key": ["/r/id"], "watch-fanout-api": ["off"] },
    ...{ policy: [files.pods], "token-file": [files.tokens] },
  });
  onTestFinished(() => front.stop());
  await untilReady(front);
  const own = new RawGrpc(front.url);
  onTestFinished(() => own.close());
  const call = async (method: string, fields: Parameters<typeof encode>[0]): Promise<string> =>
    statusOf(await own.unary(`/etcdserverpb.KV/${method}`, encode(fields), as("editor"))).code;
  expect(await call("Put", { 1: "/r/id" })).toBe("7");
  expect(await call("DeleteRange", { 1: "/r/id" })).toBe("7");
  expect(await call("DeleteRange", { 1: "/r/", 2: "/r0" })).toBe("7");
  expect(await call("Txn", { 2: encode({ 3: encode({ 1: "/r/a", 2: "/r/z" }) }) })).toBe("7");
  expect(await call("DeleteRange", { 1: "/r/pods/q/", 2: "/r/pods/q0" })).toBe("0");
  expect(await call("Range", { 1: "/r/", 2: "/r0" })).toBe("0");
});

test("A stream ends when the policy withdraws the right to one of its watches", async () => {
  const [kept, lost] = ["reader", "editor"].map((name) => new WatchClient(client, as(name)));
  kept?.create({ 1: "/r/pods/a/", 2: "/r/pods/a0" });
  lost?.create({ 1: "/r/pods/a/1" });
  lost?.create({ 1: "/r/pods/d/", 2: "/r/pods/d0" });
  // Refused, which ends nothing.
  lost?.create({ 1: "/r/pods/b/1" });
  await kept?.until(({ length }) => length === 1);
  await lost?.until(({ length }) => length === 3);
  expect(lost?.responses.map(({ canceled }) => canceled)).toEqual([false, false, true]);
  expect(lost?.responses[2]?.reason).toContain('may not watch the key "/r/pods/b/1" in etcd');
  writeFileSync(files.policy, policyText.replace('"keys":["a/1"]', '"keys":["a/2"]'));
  await until(async () => {
    const watch = new WatchClient(client, as("editor"));
    watch.create({ 1: "/r/pods/a/1" });
    await watch.until(({ length }) => length === 1);
    return watch.responses[0]?.canceled === true;
  });
  await expect(lost?.until(() => false)).rejects.toThrow();
  await unary("root", "Put", encode({ 1: "/r/pods/a/1", 2: "v" }));
  await kept?.until(() => kept.eventsOf().length > 0);
  writeFileSync(files.policy, policyText);
});

test("A watch with an unknown field is refused, and a stream may have others", async () => {
  const watch = new WatchClient(client, as("reader"));
  watch.create({ 1: "/r/pods/a/1", 12: 1 });
  watch.create({ 1: "/r/pods/a/1" });
  await watch.until(({ length }) => length === 2);
  expect(watch.responses.map(({ id, canceled }) => [id, canceled])).toEqual([
    ["-1", true],
    ["0", false],
  ]);
  expect(watch.responses[0]?.reason).toContain("may not make this request");
  watch.close();
});

test("A caller that may read nothing gets no watch stream, nor a revision", async () => {
  for (const caller of ["writer", "stranger"]) {
    const watch = new WatchClient(client, as(caller));
    watch.requestProgress();
    const response = await watch.call.response;
    expect([statusOf(response).code, response.body.length]).toEqual(["7", 0]);
  }
});

test("A watch stream without watches ends when its caller may read nothing any more", async () => {
  const watch = new WatchClient(client, as("watcher"));
  watch.create({ 1: "/r/pods/b/1" });
  watch.cancel(0);
  await watch.until(({ length }) => length === 2);
  const without = policyText.replace(
    '"prefixes":["b"],"verbs":["watch"]',
    '"keys":[],"verbs":["put"]',
  );
  writeFileSync(files.policy, without.replace('"keys":[]', '"keys":["b"]'));
  expect(statusOf(await watch.call.response).code).toBe("7");
  writeFileSync(files.policy, policyText);
});

test("Each key of a request is in the audit, with its rule, and what was refused with etcd's key", async () => {
  const put = encode({ 2: encode({ 1: "/r/pods/d/1", 2: "v", 4: true }) });
  const remove = encode({ 3: encode({ 1: "/r/pods/d/", 2: "/r/pods/d0" }) });
  await unary("editor", "Txn", encode({ 2: [put, remove] }));
  await unary("editor", "Put", encode({ 1: "/r/pods/elsewhere" }));
  type Line = Readonly<Record<string, unknown>>;
  let lines: readonly Line[] = [];
  await until(async () => {
    const text = await readFile(files.audit, "utf8");
    lines = text.split("\n").flatMap((line) => (line === "" ? [] : [JSON.parse(line) as Line]));
    return lines.some(({ key }) => key === "/r/pods/elsewhere");
  });
  const of = (method: string) =>
    lines
      .filter((line) => line["method"] === `etcdserverpb.KV/${method}`)
      .filter(({ identity }) => identity === "editor")
      .map(({ verb, resource, key, prefix, decision, rule }) => [
        ...[verb, resource, key ?? prefix, decision, rule],
      ]);
  expect(of("Txn").slice(-3)).toEqual([
    ["put", "pods", "d/1", "allowed", "editor[0]"],
    ["get", "pods", "d/1", "allowed", "editor[0]"],
    ["delete", "pods", "d/", "allowed", "editor[0]"],
  ]);
  expect(of("Put").at(-1)).toEqual(["put", "*", "/r/pods/elsewhere", "denied", undefined]);
});

test("Callers of the JSON gateway have the same rights", async () => {
  const { url } = await frontOf();
  const base64 = (text: string): string => Buffer.from(text).toString("base64");
  const post = async (caller: string, path: string, body: object): Promise<unknown> => {
    const headers = as(caller);
    const response = await fetch(`${url}${path}`, {
      ...{ method: "POST", headers, body: JSON.stringify(body) },
    });
    const { code = 0, kvs } = (await response.json()) as { code?: number; kvs?: unknown[] };
    return kvs === undefined ? code : kvs.length;
  };
  const own = { key: base64("/r/pods/d/gateway") };
  const other = { key: base64("/r/pods/w/gateway") };
  expect(await post("editor", "/v3/kv/put", { ...own, value: "YQ==" })).toBe(0);
  expect(await post("editor", "/v3/kv/range", own)).toBe(1);
  expect(await post("editor", "/v3/kv/range", { ...own, range_end: base64("/r/pods/e") })).toBe(7);
  for (const path of ["/v3/kv/range", "/v3/kv/put", "/v3/kv/deleterange"]) {
    expect([path, await post("editor", path, other)]).toEqual([path, 7]);
  }
  const success = [{ request_range: own }, { request_range: other }];
  expect(await post("editor", "/v3/kv/txn", { success })).toBe(7);
  expect(await post("editor", "/v3/cluster/member/list", {})).toBe(7);
  expect(await post("root", "/v3/kv/range", own)).toBe(1);
});
