import { readFile } from "node:fs/promises";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { type Etcd, startEtcd } from "../../etcd/etcd.ts";
import { etcdOfFile } from "../../etcd/etcd-of-file.ts";
import { encode, type Fields, Message } from "../../foreign/protobuf.ts";
import { temporaryFiles } from "../../relay/tiers.ts";
import { FakeMember } from "../fake-member.ts";
import { frontOfFile, startBefore, startFront, until, untilReady } from "../front.ts";
import { RawGrpc, statusOf } from "../raw-grpc.ts";
import { policyText, prefixes, tokensText } from "./limited-callers.ts";

const files = temporaryFiles({ policy: policyText, tokens: tokensText, audit: "" }, afterAll);
const resource = Object.entries(prefixes).map(([name, prefix]) => `${name}=${prefix}`);
const facing = { resource, policy: [files.policy], "token-file": [files.tokens] };
const etcdOf = etcdOfFile();
const frontOf = frontOfFile(async () =>
  startFront([(await etcdOf()).url], { ...facing, "audit-log": [files.audit] }),
);
let client: RawGrpc;

beforeAll(async () => {
  const front = await frontOf();
  await untilReady(front);
  client = new RawGrpc(front.url);
  return () => client.close();
});

interface Answer {
  readonly code: string;
  readonly text: string;
  readonly message: Message;
}

/** A call of a caller, by its token. */
async function call(caller: string, path: string, fields: Fields, token?: string): Promise<Answer> {
  const metadata = { authorization: `Bearer ${caller}`, ...(token === undefined ? {} : { token }) };
  const response = await client.unary(`/etcdserverpb.${path}`, encode(fields), metadata);
  const { code, message } = statusOf(response);
  const body = response.body.subarray(5);
  return { code, text: decodeURIComponent(message), message: new Message(body) };
}

const codeOf = async (...asked: Parameters<typeof call>): Promise<string> =>
  (await call(...asked)).code;

/** Grants a lease, and attaches keys to it, as the caller. */
async function leaseOf(caller: string, ...keys: readonly string[]): Promise<bigint> {
  const granted = await call(caller, "Lease/LeaseGrant", { 1: 1_000 });
  expect(granted.code).toBe("0");
  const lease = granted.message.integer(2);
  for (const key of keys) {
    expect(await codeOf(caller, "KV/Put", { 1: key, 2: "v", 3: lease })).toBe("0");
  }
  return lease;
}

/** The keys that are attached to a lease. */
async function attachedTo(lease: bigint): Promise<string[]> {
  const { message } = await call("root", "Lease/LeaseTimeToLive", { 1: lease, 2: true });
  return message.all(5).map(String).toSorted();
}

const put = (key: string, lease: bigint): Buffer =>
  encode({ 2: encode({ 1: key, 2: "v", 3: lease }) });

async function renewalsOf({ url }: Etcd): Promise<number> {
  const text = await (await fetch(`${url}/metrics`)).text();
  return Number(/^etcd_debugging_lease_renewed_total (\d+)/m.exec(text)?.[1]);
}

test("A limited caller grants, attaches, keeps alive, reads and revokes a lease of its own keys", async () => {
  const lease = await leaseOf("editor", "/r/pods/d/own1");
  const nested = encode({ 2: encode({ 4: encode({ 2: put("/r/pods/d/own2", lease) }) }) });
  const txn = await client.unary("/etcdserverpb.KV/Txn", nested, {
    authorization: "Bearer editor",
  });
  expect(statusOf(txn).code).toBe("0");
  expect(await attachedTo(lease)).toEqual(["/r/pods/d/own1", "/r/pods/d/own2"]);
  const kept = await call("editor", "Lease/LeaseKeepAlive", { 1: lease });
  expect([kept.code, kept.message.integer(2), kept.message.number(3)]).toEqual(["0", lease, 1_000]);
  expect(kept.message.message(1)?.number(3)).toBeGreaterThan(0);
  const bare = await call("editor", "Lease/LeaseTimeToLive", { 1: lease });
  expect([bare.message.number(4), bare.message.all(5)]).toEqual([1_000, []]);
  const full = await call("editor", "Lease/LeaseTimeToLive", { 1: lease, 2: true });
  expect(full.message.all(5).map(String).toSorted()).toEqual(["/r/pods/d/own1", "/r/pods/d/own2"]);
  expect(await codeOf("editor", "Lease/LeaseRevoke", { 1: lease })).toBe("0");
  // etcd's own answers to a lease that does not exist.
  expect(await codeOf("editor", "KV/Put", { 1: "/r/pods/d/own1", 3: lease + 1n })).toBe("5");
  expect(await codeOf("editor", "Lease/LeaseRevoke", { 1: lease + 1n })).toBe("5");
  const gone = await call("editor", "Lease/LeaseTimeToLive", { 1: lease });
  expect([gone.code, gone.message.number(3)]).toEqual(["0", -1]);
  const range = await call("editor", "KV/Range", { 1: "/r/pods/d/own", 2: "/r/pods/d/owo" });
  expect(range.message.all(2)).toEqual([]);
});

test("The id of a lease does not follow from another one", async () => {
  // etcd counts in the lower bits of its own ids.
  const ids = [await leaseOf("root"), await leaseOf("editor"), await leaseOf("editor")];
  const starts = ids.map((id) => id >> 40n);
  expect(new Set(starts).size).toBe(3);
  for (const id of ids) expect(id).toBeGreaterThan(0n);
  const unset = await call("editor", "Lease/LeaseGrant", { 1: 1_000, 2: 0 });
  expect([unset.code, unset.message.number(3)]).toEqual(["0", 1_000]);
  expect(starts).not.toContain(unset.message.integer(2) >> 40n);
});

test("A limited caller can't take the id that etcd would choose next, or another may be about to use", async () => {
  const etcd = new RawGrpc((await etcdOf()).url);
  onTestFinished(() => etcd.close());
  const grant = async (fields: Fields): Promise<Message> => {
    const granted = await etcd.unary("/etcdserverpb.Lease/LeaseGrant", encode(fields));
    return new Message(granted.body.subarray(5));
  };
  const last = (await grant({ 1: 1_000 })).integer(2);
  for (let next = last + 60n; next < last + 80n; next++) {
    const refused = await call("editor", "Lease/LeaseGrant", { 1: 1_000, 2: next });
    expect([refused.code, refused.text]).toEqual(["7", expect.stringContaining("may not choose")]);
  }
  // etcd counts by two, and does not look for an id that is free: it would fail with "lease already exists".
  for (let id = last; id < last + 100n; ) {
    id = (await grant({ 1: 1_000 })).integer(2);
    expect(id).toBeGreaterThan(last);
  }
  const unlimited = await call("root", "Lease/LeaseGrant", { 1: 1_000, 2: 12_345 });
  expect([unlimited.code, unlimited.message.integer(2)]).toEqual(["0", 12_345n]);
});

test.each([
  ["a key of another caller", ["/r/pods/d/mixed", "/r/pods/z/foreign"]],
  ["a key that it may only put", ["/r/pods/w/1"]],
  ["a key of no resource", ["/elsewhere"]],
  ["the key of the history", ["/watchfanout/history-of-another"]],
])("A lease with %s can't be used", async (_, keys) => {
  const lease = await leaseOf("root", ...keys);
  for (const caller of ["editor", "writer"]) {
    const before = await renewalsOf(await etcdOf());
    const key = caller === "editor" ? "/r/pods/d/mine" : "/r/pods/w/mine";
    expect(await codeOf(caller, "KV/Put", { 1: key, 3: lease })).toBe("7");
    for (const fields of [
      { 2: put(key, lease) },
      { 3: encode({ 4: encode({ 3: put(key, lease) }) }) },
    ])
      expect(await codeOf(caller, "KV/Txn", fields)).toBe("7");
    for (const hasKeys of [false, true]) {
      const read = await call(caller, "Lease/LeaseTimeToLive", { 1: lease, 2: hasKeys });
      expect(read.code).toBe("7");
      expect(read.text).toContain(`may not use the lease ${lease.toString(16).padStart(16, "0")}`);
      expect(read.text).not.toContain(keys[0]);
    }
    expect(await codeOf(caller, "Lease/LeaseRevoke", { 1: lease })).toBe("7");
    const kept = await call(caller, "Lease/LeaseKeepAlive", { 1: lease });
    expect([kept.code, kept.message.integer(2), kept.message.number(3)]).toEqual(["0", lease, 0]);
    expect(await renewalsOf(await etcdOf())).toBe(before);
  }
  expect(await attachedTo(lease)).toEqual(keys.toSorted());
});

test("To attach a key needs the right to delete it, as the end of the lease does", async () => {
  const lease = await leaseOf("writer");
  expect(await codeOf("writer", "KV/Put", { 1: "/r/pods/w/1", 2: "v" })).toBe("0");
  const refused = await call("writer", "KV/Put", { 1: "/r/pods/w/1", 2: "v", 3: lease });
  expect([refused.code, refused.text]).toEqual(["7", expect.stringContaining("may not delete")]);
  expect(await attachedTo(lease)).toEqual([]);
});

test("Names of keys are for callers that may get them", async () => {
  const lease = await leaseOf("editor", "/r/pods/d/names");
  expect(await codeOf("root", "KV/Put", { 1: "/r/pods/x/1", 3: lease })).toBe("0");
  expect(await codeOf("editor", "Lease/LeaseTimeToLive", { 1: lease, 2: true })).toBe("7");
});

test("Leases are for callers that may put a key, and their list is not for them", async () => {
  const lease = await leaseOf("root");
  for (const caller of ["reader", "watcher", "stranger"]) {
    for (const method of ["LeaseGrant", "LeaseRevoke", "LeaseTimeToLive", "LeaseKeepAlive"]) {
      const asked = await codeOf(caller, `Lease/${method}`, { 1: lease });
      expect([caller, method, asked]).toEqual([caller, method, "7"]);
    }
  }
  expect(await codeOf("editor", "Lease/LeaseLeases", {})).toBe("7");
  // Without a key it is for each caller that may put a key and knows its id.
  expect(await codeOf("writer", "Lease/LeaseKeepAlive", { 1: lease })).toBe("0");
  expect(await codeOf("editor", "KV/Put", { 1: "/r/pods/d/any", 3: lease })).toBe("0");
  expect(await codeOf("writer", "Lease/LeaseRevoke", { 1: lease })).toBe("7");
  expect(await codeOf("editor", "Lease/LeaseRevoke", { 1: lease })).toBe("0");
});

test("A stream keeps its leases alive in order, and one that its caller may not use does not end it", async () => {
  const own = [await leaseOf("editor", "/r/pods/d/k1"), await leaseOf("editor", "/r/pods/d/k2")];
  const foreign = await leaseOf("root", "/r/pods/z/k3");
  const stream = client.open("/etcdserverpb.Lease/LeaseKeepAlive", {
    authorization: "Bearer editor",
  });
  const asked = [own[0], foreign, own[1], own[0]] as bigint[];
  for (const lease of asked) stream.send(encode({ 1: lease }));
  const messages = (await stream.untilMessages(4)).map((bytes) => new Message(bytes));
  expect(messages.map((message) => message.integer(2))).toEqual(asked);
  expect(messages.map((message) => message.number(3))).toEqual([1_000, 0, 1_000, 1_000]);
  // A key of another caller ends the use of the lease, though not at once.
  await call("root", "KV/Put", { 1: "/r/pods/z/k4", 3: own[0] });
  stream.send(encode({ 1: own[1] }));
  await stream.untilMessages(5);
  stream.halfClose();
  expect(statusOf(await stream.response).code).toBe("0");
});

test.each([
  ["of a field twice", encode({ 1: [1, 2] })],
  ["with an unknown field", encode({ 1: 1, 9: 1 })],
  ["of a wrong type", encode({ 1: "x" })],
])("A request for a lease %s is refused", async (_, message) => {
  for (const method of ["LeaseRevoke", "LeaseTimeToLive", "LeaseKeepAlive", "LeaseGrant"]) {
    const path = `/etcdserverpb.Lease/${method}`;
    const response = await client.unary(path, message, { authorization: "Bearer editor" });
    expect([method, statusOf(response).code]).toEqual([method, "7"]);
  }
});

test("A lease of more keys than are checked is refused, and a caller can't make one", async () => {
  const many = await leaseOf("root");
  for (let from = 0; from < 4_000; from += 100) {
    const puts = Array.from({ length: 100 }, (_, i) => put(`/r/pods/d/many/${from + i}`, many));
    expect(await codeOf("root", "KV/Txn", { 2: puts })).toBe("0");
  }
  for (const [method, hasKeys] of [
    ["LeaseTimeToLive", true],
    ["LeaseTimeToLive", undefined],
    ["LeaseRevoke", undefined],
  ] as const) {
    const refused = await call("editor", `Lease/${method}`, { 1: many, 2: hasKeys });
    expect([refused.code, refused.text]).toEqual(["7", expect.stringContaining("262144 bytes")]);
  }
  const own = await leaseOf("editor");
  const keyOf = (i: number): string => `/r/pods/d/${"long".repeat(1_000)}/${i}`;
  let attached = 0;
  while ((await codeOf("editor", "KV/Put", { 1: keyOf(attached), 3: own })) === "0") attached++;
  // What it has it can still use.
  expect(attached).toBeGreaterThan(20);
  expect(attached).toBeLessThan(70);
  const kept = await call("editor", "Lease/LeaseKeepAlive", { 1: own });
  expect(kept.message.number(3)).toBe(1_000);
  expect(await codeOf("editor", "Lease/LeaseRevoke", { 1: own })).toBe("0");
});

test("The audit has the calls for leases, the keys that are attached, and the lease that is revoked", async () => {
  const lease = await leaseOf("editor", "/r/pods/d/audited");
  const foreign = await leaseOf("root", "/r/pods/z/audited");
  await call("editor", "Lease/LeaseRevoke", { 1: foreign });
  await call("editor", "Lease/LeaseRevoke", { 1: lease });
  const name = (id: bigint): string => `lease ${id.toString(16).padStart(16, "0")}`;
  let lines: readonly Readonly<Record<string, unknown>>[] = [];
  await until(async () => {
    const text = await readFile(files.audit, "utf8");
    lines = text.split("\n").flatMap((line) => (line === "" ? [] : [JSON.parse(line)]));
    return lines.some(({ key, decision }) => key === name(lease) && decision === "allowed");
  });
  const ends = lines.filter(({ identity }) => identity === "editor").slice(-5);
  expect(
    ends.map(({ verb, resource, key, prefix, decision }) => [
      ...[verb, resource, key ?? prefix, decision],
    ]),
  ).toEqual([
    ["put", "*", "", "allowed"],
    ["put", "pods", "d/audited", "allowed"],
    ["delete", "pods", "d/audited", "allowed"],
    ["delete", "*", name(foreign), "denied"],
    ["delete", "*", name(lease), "allowed"],
  ]);
});

test("Leases by the JSON gateway need the same rights", async () => {
  const { url } = await frontOf();
  const post = async (path: string, body: object): Promise<Readonly<Record<string, unknown>>> => {
    const headers = { authorization: "Bearer editor" };
    const response = await fetch(`${url}${path}`, {
      ...{ method: "POST", headers, body: JSON.stringify(body) },
    });
    return (await response.json()) as Readonly<Record<string, unknown>>;
  };
  const key = Buffer.from("/r/pods/d/json").toString("base64");
  const { ID: own } = await post("/v3/lease/grant", { TTL: 500 });
  expect(await post("/v3/kv/put", { key, lease: own })).toHaveProperty("header");
  const foreign = String(await leaseOf("root", "/r/pods/z/json"));
  expect(await post("/v3/kv/put", { key, lease: foreign })).toMatchObject({ code: 7 });
  expect(await post("/v3/lease/keepalive", { ID: own })).toMatchObject({
    result: { ID: own, TTL: "500" },
  });
  const denied = await post("/v3/lease/keepalive", { ID: foreign });
  expect(denied).toMatchObject({ result: { ID: foreign } });
  expect(denied).not.toHaveProperty("result.TTL");
  for (const path of ["/v3/lease/timetolive", "/v3/kv/lease/timetolive"]) {
    expect(await post(path, { ID: own, keys: true })).toMatchObject({ keys: [key] });
    expect(await post(path, { ID: foreign, keys: true })).toMatchObject({ code: 7 });
  }
  for (const path of ["/v3/lease/revoke", "/v3/kv/lease/revoke"]) {
    expect(await post(path, { ID: foreign })).toMatchObject({ code: 7 });
  }
  expect(await post("/v3/kv/lease/revoke", { ID: own })).toHaveProperty("header");
  expect(await post("/v3/lease/leases", {})).toMatchObject({ code: 7 });
});

test("With etcd's users both have to allow it, and any caller with a right may authenticate", async () => {
  const etcd = await startEtcd({ rootPassword: "password" });
  onTestFinished(() => etcd.stop());
  const front = await startFront([etcd.url], {
    ...facing,
    ...{ "etcd-username": ["root"], "etcd-password": ["password"] },
    "watch-fanout-api": ["off"],
  });
  onTestFinished(() => front.stop());
  await untilReady(front);
  const shared = client;
  client = new RawGrpc(front.url);
  onTestFinished(() => {
    client.close();
    client = shared;
  });
  const login = { 1: "root", 2: "password" };
  const root = (await call("root", "Auth/Authenticate", login)).message.text(2);
  const asRoot = (path: string, fields: Fields) => codeOf("root", path, fields, root);
  expect(await asRoot("Auth/RoleAdd", { 1: "role" })).toBe("0");
  const grant = { 1: "role", 2: encode({ 1: 2, 2: "/r/pods/d/ann", 3: "/r/pods/d/ano" }) };
  expect(await asRoot("Auth/RoleGrantPermission", grant)).toBe("0");
  expect(await asRoot("Auth/UserAdd", { 1: "ann", 2: "a" })).toBe("0");
  expect(await asRoot("Auth/UserGrantRole", { 1: "ann", 2: "role" })).toBe("0");

  expect(await codeOf("stranger", "Auth/Authenticate", { 1: "ann", 2: "a" })).toBe("7");
  expect((await call("editor", "Auth/Authenticate", { 1: "ann", 2: "b" })).text).toContain(
    "authentication failed",
  );
  const several = await Promise.all(
    Array.from({ length: 6 }, () => call("editor", "Auth/Authenticate", { 1: "ann", 2: "a" })),
  );
  expect(several.map(({ code }) => code)).toEqual(several.map(() => "0"));
  const token = several[0]?.message.text(2) ?? "";
  expect(token).not.toBe("");

  const granted = await call("editor", "Lease/LeaseGrant", { 1: 1_000 }, token);
  const lease = granted.message.integer(2);
  const attach = (key: string, as?: string) =>
    call("editor", "KV/Put", { 1: `/r/pods/d/${key}`, 3: lease }, as);
  expect(await attach("ann1", token)).toMatchObject({ code: "0" });
  // The policy allows it, etcd does not.
  expect((await attach("other", token)).text).toContain("etcdserver: permission denied");
  expect(await attach("ann1")).not.toMatchObject({ code: "0" });
  expect((await attach("ann2", "none.1")).text).toContain("invalid auth token");
  const read = await call("editor", "Lease/LeaseTimeToLive", { 1: lease, 2: true }, token);
  expect(read.message.all(5).map(String)).toEqual(["/r/pods/d/ann1"]);
  const kept = await call("editor", "Lease/LeaseKeepAlive", { 1: lease }, token);
  expect(kept.message.number(3)).toBe(1_000);
  // etcd does not name the keys of this one, which does not end the stream of the others.
  const unread = (await call("editor", "Lease/LeaseGrant", { 1: 1_000 }, token)).message.integer(2);
  expect(await asRoot("KV/Put", { 1: "/r/pods/d/other", 3: unread })).toBe("0");
  const stream = client.open("/etcdserverpb.Lease/LeaseKeepAlive", {
    ...{ authorization: "Bearer editor", token },
  });
  for (const id of [lease, unread, lease]) stream.send(encode({ 1: id }));
  const messages = (await stream.untilMessages(3)).map((bytes) => new Message(bytes));
  expect(messages.map((message) => message.number(3))).toEqual([1_000, 0, 1_000]);
  stream.halfClose();
  expect(statusOf(await stream.response).code).toBe("0");
  // etcd allows it, the policy does not.
  const z = { 1: "/r/pods/z/1", 3: lease };
  expect(await codeOf("editor", "KV/Put", z, root)).toBe("7");
  expect(await asRoot("KV/Put", z)).toBe("0");
  expect(await codeOf("editor", "Lease/LeaseRevoke", { 1: lease }, root)).toBe("7");
});

test("Few passwords are checked by etcd at once, fewer of one caller, and a request is small", async () => {
  const member = await FakeMember.start(1, 1_000);
  const front = await startBefore(member, facing);
  const grpc = new RawGrpc(front.url);
  onTestFinished(() => grpc.close());
  const authenticate = (caller: string, name: string) =>
    grpc.unary("/etcdserverpb.Auth/Authenticate", encode({ 1: name }), {
      authorization: `Bearer ${caller}`,
    });
  const atEtcd = () => member.calls.filter(({ request }) => request.includes("user of "));
  const several = ["editor", "owner", "reader"].map((caller) =>
    Array.from({ length: 5 }, () => authenticate(caller, `user of ${caller}`)),
  );
  await until(() => atEtcd().length === 4);
  // Ends behind those before it, on the same connection.
  const large = await authenticate("editor", "x".repeat(4_096));
  expect(statusOf(large).code).toBe("13");
  expect(atEtcd()).toHaveLength(4);
  const users = atEtcd().map(({ request }) => request.subarray(7).toString());
  expect(new Set(users).size).toBe(2);
  for (let answered = 0; answered < 15; answered++) {
    await until(() => atEtcd().length > answered);
    atEtcd()[answered]?.answer(1);
  }
  const codes = (await Promise.all(several.flat())).map((response) => statusOf(response).code);
  expect(codes).toEqual(codes.map(() => "0"));
});

test("etcd is asked about the leases of a transaction at once, so that no answer is old", async () => {
  const member = await FakeMember.start(1, 1_000);
  const front = await startBefore(member, facing);
  const grpc = new RawGrpc(front.url);
  onTestFinished(() => grpc.close());
  const puts = [1n, 2n].map((lease) => put(`/r/pods/d/${lease}`, lease));
  const txn = grpc.unary("/etcdserverpb.KV/Txn", encode({ 2: puts }), {
    authorization: "Bearer editor",
  });
  const questions = () =>
    member.calls.filter(({ request }) =>
      [1n, 2n].some((lease) => request.subarray(5).equals(encode({ 1: lease, 2: true }))),
    );
  await until(() => questions().length === 2);
  for (const question of questions()) question.answer(1);
  await until(() => member.calls.some(({ request }) => request.includes("/r/pods/d/2")));
  member.calls.find(({ request }) => request.includes("/r/pods/d/2"))?.answer(1);
  expect(statusOf(await txn).code).toBe("0");
});

test("A request that does not arrive, or is cut, is not answered", async () => {
  for (const path of ["LeaseTimeToLive", "LeaseKeepAlive"]) {
    const cut = client.open(`/etcdserverpb.Lease/${path}`, { authorization: "Bearer editor" });
    cut.stream.end(Buffer.of(0, 0, 0, 0, 9, 8));
    expect(statusOf(await cut.response).code).toBe("13");
  }
  const none = client.open("/etcdserverpb.Lease/LeaseKeepAlive", {
    authorization: "Bearer editor",
  });
  none.halfClose();
  const response = await none.response;
  expect([statusOf(response).code, response.body.length]).toEqual(["0", 0]);
  const compressed = client.open("/etcdserverpb.Lease/LeaseTimeToLive", {
    authorization: "Bearer editor",
  });
  compressed.stream.end(Buffer.of(1, 0, 0, 0, 1, 8));
  expect(statusOf(await compressed.response).code).toBe("13");
});
