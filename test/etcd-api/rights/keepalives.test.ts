import { readFile } from "node:fs/promises";
import { afterAll, expect, onTestFinished, test } from "vitest";
import { etcdOfFile } from "../../etcd/etcd-of-file.ts";
import { encode, Message } from "../../foreign/protobuf.ts";
import { temporaryFiles } from "../../relay/tiers.ts";
import { FakeMember } from "../fake-member.ts";
import { metricOf, startBefore, startFront, until, untilReady } from "../front.ts";
import { type RawCall, RawGrpc, statusOf } from "../raw-grpc.ts";
import { policyText, prefixes, tokensText } from "./limited-callers.ts";

const files = temporaryFiles({ policy: policyText, tokens: tokensText, audit: "" }, afterAll);
const resource = Object.entries(prefixes).map(([name, prefix]) => `${name}=${prefix}`);
const facing = { resource, policy: [files.policy], "token-file": [files.tokens] };
const etcdOf = etcdOfFile();

function keepalivesOf(url: string): RawCall {
  const client = new RawGrpc(url);
  onTestFinished(() => client.close());
  return client.open("/etcdserverpb.Lease/LeaseKeepAlive", { authorization: "Bearer editor" });
}

test("Keepalives of a stream are several at etcd at once, and answered in their order", async () => {
  const member = await FakeMember.start(1, 1_000);
  const front = await startBefore(member, facing);
  const stream = keepalivesOf(front.url);
  const leases = Array.from({ length: 40 }, (_, i) => i + 1);
  for (const lease of leases) stream.send(encode({ 1: lease }));
  stream.halfClose();
  const isRequest = (fields: Record<number, unknown>) => {
    const encoded = encode(fields as never);
    return ({ request }: { readonly request: Buffer }) => request.subarray(5).equals(encoded);
  };
  const questions = () => member.calls.filter(({ request }) => request.subarray(5).length === 4);
  const kept = () => leases.filter((lease) => member.calls.some(isRequest({ 1: lease })));
  let questioned = 0;
  let answered = 0;
  while (answered < leases.length) {
    const expected = Math.min(8, leases.length - answered);
    await until(() => {
      for (; questioned < questions().length; questioned++) questions()[questioned]?.answer(1);
      return kept().length === answered + expected;
    });
    // Of the last to the first: their responses wait for those before them.
    for (const lease of kept().slice(answered).reverse())
      member.calls.find(isRequest({ 1: lease }))?.answer(1_000 + lease);
    answered += expected;
    await stream.untilMessages(answered);
  }
  const headers = stream.messages.map((bytes) => new Message(bytes).all(1));
  const revisions = headers.map((each) => each.map((header) => new Message(header).number(3)));
  expect(revisions.map(([ofMember]) => ofMember)).toEqual(leases.map((lease) => 1_000 + lease));
  expect(statusOf(await stream.response).code).toBe("0");

  // The member that is asked may be behind those that answered before. The last header of a message counts.
  const later = keepalivesOf(front.url);
  later.send(encode({ 1: 99 }));
  await until(() => {
    for (; questioned < questions().length; questioned++) questions()[questioned]?.answer(1);
    return member.calls.some(isRequest({ 1: 99 }));
  });
  member.calls.find(isRequest({ 1: 99 }))?.answer(1_000);
  const [message = Buffer.alloc(0)] = await later.untilMessages(1);
  const last = new Message(message).all(1).at(-1) ?? Buffer.alloc(0);
  expect(new Message(last).number(3)).toBe(1_040);
});

test("A large request that has arrived before there is a connection is passed on to its end", async () => {
  const member = await FakeMember.start(1, 1_000);
  const front = await startBefore(member, facing);
  const client = new RawGrpc(front.url);
  onTestFinished(() => client.close());
  const put = encode({ 1: "/r/pods/d/1", 2: "v".repeat(100_000) });
  const editor = { authorization: "Bearer editor" };
  const response = client.unary("/etcdserverpb.KV/Put", put, editor);
  const isPut = ({ request }: { readonly request: Buffer }): boolean =>
    request.subarray(5).equals(put);
  await until(() => member.calls.some(isPut));
  member.calls.find(isPut)?.answer(1);
  expect(statusOf(await response).code).toBe("0");
});

test.each([
  ["a compressed message", Buffer.of(1, 0, 0, 0, 0), "A message is compressed."],
  ["a message that is too large", Buffer.of(0, 0, 0, 16, 1), "A message has 4097 bytes"],
  ["a message that is cut", Buffer.of(0, 0, 0, 0, 2, 8), "ends before its message does"],
])(
  "What ends a stream of keepalives comes behind the responses to those before it, here %s",
  async (_name, last, details) => {
    const member = await FakeMember.start(1, 1_000);
    const front = await startBefore(member, facing);
    const stream = keepalivesOf(front.url);
    for (const lease of [1, 2, 3]) stream.send(encode({ 1: lease }));
    stream.stream.write(last);
    stream.halfClose();
    // Behind what was sent.
    await new Promise((resolve) => stream.stream.session?.ping(resolve));
    let answered = 0;
    await until(() => {
      const asked = member.calls.filter(({ request }) => request.length <= 5 + 4);
      for (; answered < asked.length; answered++) asked[answered]?.answer(1);
      return stream.stream.destroyed;
    });
    const { code, message } = statusOf(await stream.response);
    expect([code, decodeURIComponent(message)]).toEqual(["13", expect.stringContaining(details)]);
    expect(stream.messages).toHaveLength(3);
  },
);

test("A thousand leases of a stream are kept alive in order, and what ends it comes behind them", async () => {
  const etcd = await etcdOf();
  const front = await startFront([etcd.url], facing);
  onTestFinished(() => front.stop());
  await untilReady(front);
  const direct = new RawGrpc(etcd.url);
  onTestFinished(() => direct.close());
  const granted = await Promise.all(
    Array.from({ length: 1_000 }, () =>
      direct.unary("/etcdserverpb.Lease/LeaseGrant", encode({ 1: 1_000 })),
    ),
  );
  const leases = granted.map(({ body }) => new Message(body.subarray(5)).integer(2));
  const stream = keepalivesOf(front.url);
  for (const lease of leases) stream.send(encode({ 1: lease }));
  // Not understood completely.
  stream.send(encode({ 1: 1, 9: 1 }));
  expect(statusOf(await stream.response).code).toBe("7");
  const kept = stream.messages.map((bytes) => new Message(bytes));
  expect(kept.map((message) => message.integer(2))).toEqual(leases);
  expect(new Set(kept.map((message) => message.number(3)))).toEqual(new Set([1_000]));
});

test("A stream that asks again and again for leases it may not use has a line of each in the audit, and is counted", async () => {
  const etcd = await etcdOf();
  const front = await startFront([etcd.url], { ...facing, "audit-log": [files.audit] });
  onTestFinished(() => front.stop());
  await untilReady(front);
  const root = new RawGrpc(front.url);
  onTestFinished(() => root.close());
  const asRoot = async (path: string, message: Buffer): Promise<Message> => {
    const response = await root.unary(path, message, { authorization: "Bearer root" });
    expect(statusOf(response).code).toBe("0");
    return new Message(response.body.subarray(5));
  };
  const foreign: bigint[] = [];
  for (const key of ["/r/pods/z/1", "/r/pods/z/2"]) {
    const lease = (await asRoot("/etcdserverpb.Lease/LeaseGrant", encode({ 1: 1_000 }))).integer(2);
    await asRoot("/etcdserverpb.KV/Put", encode({ 1: key, 3: lease }));
    foreign.push(lease);
  }
  const denied = () => metricOf(front, "watch_fanout_denied_calls_total", "put");
  const before = (await denied()) || 0;
  for (let streams = 1; streams <= 2; streams++) {
    const stream = keepalivesOf(front.url);
    for (let i = 0; i < 100; i++) stream.send(encode({ 1: foreign[i % 2] as bigint }));
    const messages = await stream.untilMessages(100);
    expect(messages.map((bytes) => new Message(bytes).number(3))).toEqual(messages.map(() => 0));
    stream.halfClose();
    await stream.response;
  }
  expect(await denied()).toBe(before + 200);
  // Behind the lines before it.
  const last = await root.unary("/etcdserverpb.KV/Put", encode({ 1: "/r/pods/d/last" }), {
    authorization: "Bearer editor",
  });
  expect(statusOf(last).code).toBe("0");
  let text = "";
  await until(async () => {
    text = await readFile(files.audit, "utf8");
    return text.includes("d/last");
  });
  const refusals = text.split("\n").filter((line) => line.includes('"denied"'));
  // Several are asked about at once, so their order is not that of the requests.
  expect(refusals.map((line) => JSON.parse(line).key).toSorted()).toEqual(
    [...foreign, ...foreign]
      .map((lease) => `lease ${lease.toString(16).padStart(16, "0")}`)
      .toSorted(),
  );
});
